"""A Keras training with a `MemoryReport`, twice, where the host's allocator keeps count."""

from __future__ import annotations

from typing import Any


def main() -> dict[str, Any]:
    """What was written to the logs, and the records of the steps."""
    import keras
    import numpy as np

    import memopt

    memopt.enable(budget="60%", only_lower=False)
    layers = [keras.layers.Dense(128, activation="relu") for _ in range(8)]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    features, labels = np.ones((1024, 32), np.float32), np.ones((1024, 1), np.float32)
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
