"""The step for sessions: initialises itself, trains, and is the same at every build."""

from __future__ import annotations

import numpy as np

from memopt.models import SESSION_MODELS, TINY, SessionStep


def build() -> SessionStep:
    return SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])


def losses(step: SessionStep, steps: int) -> np.ndarray:
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    feed = dict(zip(step.feed, step.inputs, strict=True))
    with tf.Graph().as_default():
        tf.import_graph_def(step.graph_def, name="")
        with tf.compat.v1.Session(config=config) as session:
            session.run(step.initializer)
            return np.array([session.run(step.fetch, feed)[0] for _ in range(steps)])


def test_loss_decreases() -> None:
    trained = losses(build(), 40)
    assert np.isfinite(trained).all()
    assert trained[-10:].mean() < trained[:10].mean()


def test_two_sessions_are_bit_identical() -> None:
    step = build()
    assert losses(step, 3).tobytes() == losses(step, 3).tobytes()


def test_graph_trains_reference_variables() -> None:
    nodes = {node.name: node for node in build().graph_def.node}
    operations = {node.op for node in nodes.values()}
    assert {"VariableV2", "ApplyMomentum", "RandomUniform", "Sigmoid", "Relu"} <= operations
    assert "VarHandleOp" not in operations
    assert any(name.startswith("gradients/") for name in nodes)


def test_names_are_of_the_graph() -> None:
    step = build()
    nodes = {node.name for node in step.graph_def.node}
    assert step.fetch == ("loss:0", "train")
    assert {name.partition(":")[0] for name in (*step.feed, *step.fetch)} <= nodes
    assert step.initializer in nodes


def test_second_build_is_identical() -> None:
    first, second = build(), build()
    assert second.graph_def == first.graph_def
    assert [array.tobytes() for array in second.inputs] == [
        array.tobytes() for array in first.inputs
    ]
