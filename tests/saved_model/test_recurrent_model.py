"""A Keras model with a recurrent layer, exported, rewritten within a budget, and trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import memopt

if TYPE_CHECKING:
    from pathlib import Path


def test_the_loops_as_they_were_do_not_run_beside_the_rewritten_ones(tmp_path: Path) -> None:
    """They read variables, so TensorFlow would run them although nobody needs what they give."""
    import keras

    series = keras.Input((24, 8))
    model = keras.Model(series, keras.layers.Dense(4)(keras.layers.LSTM(32)(series)))
    model.compile("sgd", "mse")
    memopt.export_training_step(model, tmp_path / "model", batch_size=16)
    result = memopt.optimize_saved_model(tmp_path / "model", tmp_path / "leaner", budget="50%")
    (trained,) = (one for one in result.functions if one.report is not None)
    assert trained.report is not None
    (done,) = (
        one
        for one in trained.report.passes
        if one.name.startswith("checkpoint-loops") and one.edits
    )
    assert len(done.edits) == 1

    losses = []
    random = np.random.default_rng(0)
    x = random.random((16, 24, 8), np.float32)
    y = random.random((16, 4), np.float32)
    for folder in ("model", "leaner"):
        loaded = tf.saved_model.load(str(tmp_path / folder))
        step = loaded.signatures["train_step"]
        losses.append([step(x=tf.constant(x), y=tf.constant(y))["loss"].numpy() for _ in range(3)])
    assert losses[0] == losses[1]

    written = saved_model_pb2.SavedModel.FromString(
        (tmp_path / "leaner/saved_model.pb").read_bytes()
    )
    functions = written.meta_graphs[0].graph_def.library.function
    rewritten = [one for one in functions if "memopt" in one.signature.name]
    names = [node.name for one in rewritten for node in one.node_def]
    assert names
    assert not [name for name in names if "before_grappler" in name]
