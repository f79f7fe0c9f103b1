"""A Keras training with a `MemoryReport` and TensorBoard, which is read back as it shows it."""

from __future__ import annotations

from typing import Any

from support.programs.keras_memory import make_rewritten


def main(folder: str) -> dict[str, Any]:
    """The scalars of each run that TensorBoard finds, by tag, and what the callback says."""
    import keras
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    import memopt

    model, features, labels = make_rewritten(layers=4, width=64, samples=256)
    report = memopt.keras.MemoryReport()
    history = model.fit(
        features,
        labels,
        batch_size=128,
        epochs=3,
        verbose=0,
        validation_data=(features, labels),
        callbacks=[report, keras.callbacks.TensorBoard(folder)],
    )
    shown = EventMultiplexer().AddRunsFromDirectory(folder).Reload()
    return {
        "epochs": report.epochs,
        "history": history.history,
        "shown": {
            run: {
                tag: _values(shown, run, tag)
                for tag in found["tensors"]
                # The model itself is a text there.
                if tag.startswith("epoch_")
            }
            for run, found in shown.Runs().items()
        },
    }


def _values(shown: Any, run: str, tag: str) -> list[float]:
    from tensorboard.util.tensor_util import make_ndarray

    return [float(make_ndarray(event.tensor_proto)) for event in shown.Tensors(run, tag)]
