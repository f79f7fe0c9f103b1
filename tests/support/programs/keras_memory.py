"""A Keras training with a `MemoryReport`, twice, where the host's allocator keeps count."""

from __future__ import annotations

from typing import Any


def main() -> dict[str, Any]:
    """What was written to the logs, and the records of the steps."""
    import memopt

    model, features, labels = make_rewritten(layers=8, width=128, samples=1024)
    report = memopt.keras.MemoryReport()
    logs = []
    for _ in range(2):
        history = model.fit(
            features, labels, batch_size=512, epochs=2, verbose=0, callbacks=[report]
        )
        logs.append(history.history)
    records = [record for record in memopt.last_reports() if record.peak_after_bytes]
    return {
        "logs": logs,
        "predicted": [record.peak_after_bytes for record in records],
        "measured": [record.measured_peak_bytes for record in records],
        "text": repr(report),
    }


def make_rewritten(layers: int, width: int, samples: int) -> tuple[Any, Any, Any]:
    """A compiled model whose step memopt is going to rewrite, features and labels."""
    import keras
    import numpy as np

    import memopt

    memopt.enable(budget="60%", only_lower=False)
    hidden = [keras.layers.Dense(width, activation="relu") for _ in range(layers)]
    model = keras.Sequential([*hidden, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model, np.ones((samples, 32), np.float32), np.ones((samples, 1), np.float32)
