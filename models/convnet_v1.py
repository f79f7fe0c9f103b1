"""A convolutional net as a graph for sessions, with reference variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.models.images import ImageSizes, labelled_images
from memopt.models.program import run_as_program
from memopt.models.training_step import SessionStep

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef

DROPOUT_RATE = 0.1


def convnet_v1(
    *,
    batch: int = 32,
    image_size: int = 32,
    width: int = 32,
    layers: int = 4,
    classes: int = 10,
    seed: int = 0,
) -> SessionStep:
    """Builds a training step of convolutions under a dense layer, updated with momentum.

    Args:
        batch: Images in a batch.
        image_size: Height and width of an image, in pixels.
        width: Channels of each convolution and, times four, units of the dense layer.
        layers: Convolutions, alternating between ReLU and sigmoid.
        classes: Different labels.
        seed: What weights, images and dropout are drawn from.

    Returns:
        A step of images, float32 [batch, image_size, image_size, 3], and labels, int32 [batch].
    """
    sizes = ImageSizes(batch, image_size, classes)
    return SessionStep(
        name="convnet_v1",
        graph_def=_build_graph(sizes, width, layers, seed),
        feed=("images:0", "labels:0"),
        inputs=labelled_images(sizes, seed),
        fetch=("loss:0", "train"),
        initializer="init",
        seed=seed,
    )


def _build_graph(sizes: ImageSizes, width: int, layers: int, seed: int) -> GraphDef:
    """The graph of the step; the nodes that its caller names get their names here."""
    import tensorflow as tf

    image_shape = (sizes.batch, *sizes.image_shape)
    with tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(seed)
        images = tf.compat.v1.placeholder(tf.float32, image_shape, name="images")
        labels = tf.compat.v1.placeholder(tf.int32, (sizes.batch,), name="labels")
        logits = _classify(_convolve(images, width, layers), 4 * width, sizes.classes)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        loss = tf.reduce_mean(losses, name="loss")
        optimizer = tf.compat.v1.train.MomentumOptimizer(learning_rate=0.003, momentum=0.9)
        optimizer.minimize(loss, name="train")
        tf.compat.v1.variables_initializer(tf.compat.v1.global_variables(), name="init")
    return graph.as_graph_def()


def _convolve(features: tf.Tensor, channels: int, layers: int) -> tf.Tensor:
    """Convolutions, alternating between two activations, and one pooling."""
    import tensorflow as tf

    activations = (tf.nn.relu, tf.nn.sigmoid)
    for layer in range(layers):
        with tf.compat.v1.variable_scope(f"convolution_{layer}"):
            kernel = _variable("kernel", (3, 3, features.shape[-1], channels))
            convolved = tf.nn.conv2d(features, kernel, strides=1, padding="SAME")
            biased = tf.nn.bias_add(convolved, _zeros("bias", channels))
            features = activations[layer % len(activations)](biased)
    return tf.nn.max_pool2d(features, ksize=2, strides=2, padding="VALID", name="pool")


def _classify(features: tf.Tensor, units: int, classes: int) -> tf.Tensor:
    """A dense layer with tanh and dropout, and one that gives the logits."""
    import tensorflow as tf

    features = tf.reshape(features, (features.shape[0], -1), name="flatten")
    with tf.compat.v1.variable_scope("dense"):
        features = tf.nn.tanh(_multiply_and_add(features, units))
        features = tf.compat.v1.nn.dropout(features, rate=DROPOUT_RATE)
    with tf.compat.v1.variable_scope("logits"):
        return _multiply_and_add(features, classes)


def _multiply_and_add(features: tf.Tensor, units: int) -> tf.Tensor:
    import tensorflow as tf

    kernel = _variable("kernel", (features.shape[-1], units))
    return tf.nn.bias_add(tf.matmul(features, kernel), _zeros("bias", units))


def _variable(name: str, shape: tuple[int, ...], initializer: object = None) -> tf.Variable:
    """A reference variable: a mutable tensor in the graph instead of a handle to a resource."""
    import tensorflow as tf

    return tf.compat.v1.get_variable(name, shape, initializer=initializer, use_resource=False)


def _zeros(name: str, size: int) -> tf.Variable:
    import tensorflow as tf

    return _variable(name, (size,), tf.compat.v1.zeros_initializer())


if __name__ == "__main__":
    run_as_program(convnet_v1)
