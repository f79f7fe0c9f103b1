"""SavedModels that tests rewrite, and their steps run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

BATCH = 256
WIDTH = 48
LAYERS = 6


def save_network(path: Path, batch: int | None = BATCH, *, compiled: bool = False) -> Path:
    """Write a network of dense layers: its training step, its prediction, and an asset.

    Both call the same function for a layer.
    """
    import tensorflow as tf

    labels = path.with_name(f"{path.name}_labels.txt")
    labels.write_text("one\ntwo\n")
    net = tf.Module(name="net")
    random = np.random.default_rng(5)

    def variable(*shape: int) -> tf.Variable:
        return tf.Variable(random.standard_normal(shape).astype(np.float32) * 0.2)

    net.weights = [variable(WIDTH, WIDTH) for _ in range(LAYERS)]
    net.momenta = [tf.Variable(tf.zeros_like(weight)) for weight in net.weights]
    net.labels = tf.saved_model.Asset(str(labels))

    layer = tf.function(lambda hidden, weight: tf.nn.gelu(hidden @ weight))

    def forward(x: tf.Tensor) -> tf.Tensor:
        hidden = x
        for weight in net.weights:
            hidden = layer(hidden, weight)
        return hidden

    x = tf.TensorSpec((batch, WIDTH), tf.float32, "x")
    y = tf.TensorSpec((batch, WIDTH), tf.float32, "y")

    def train(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(forward(x) - y))
        gradients = tape.gradient(loss, net.weights)
        for weight, momentum, gradient in zip(net.weights, net.momenta, gradients, strict=True):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.1 * momentum)
        return {"loss": loss}

    def predict(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"hidden": forward(x)}

    net.train = tf.function(train, input_signature=[x, y], jit_compile=compiled or None)
    net.predict = tf.function(predict, input_signature=[x])
    signatures = {"train": net.train, "predict": net.predict}
    tf.saved_model.save(net, str(path), signatures=signatures)
    return path


def values(batch: int = BATCH) -> dict[str, npt.NDArray[Any]]:
    """What a training step is given."""
    random = np.random.default_rng(7)
    return {name: random.standard_normal((batch, WIDTH)).astype(np.float32) for name in "xy"}


def train(path: Path, steps: int = 3, batch: int = BATCH) -> list[bytes]:
    """Load a network and train it: the bits of losses and of all variables."""
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))
    given = {name: tf.constant(value) for name, value in values(batch).items()}
    outcome = [loaded.signatures["train"](**given)["loss"].numpy().tobytes() for _ in range(steps)]
    kept = [*loaded.weights, *loaded.momenta]
    return [*outcome, *(variable.numpy().tobytes() for variable in kept)]


def read_message(path: Path) -> Any:
    """The message of a SavedModel."""
    from tensorflow.core.protobuf import saved_model_pb2

    return saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())


def nodes_of(path: Path) -> list[str]:
    """The names of all nodes in the functions of a SavedModel."""
    from memopt.saved_model.files import read_saved_model

    return [
        node.name
        for meta_graph in read_saved_model(path).meta_graphs
        for function in meta_graph.graph_def.library.function
        for node in function.node_def
    ]
