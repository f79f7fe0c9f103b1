"""U-Net: segmentation with skip connections that hold activations for long."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memopt.errors import OptionsError
from memopt.models.compilation import compile_training_step
from memopt.models.images import ImageSizes, random_images
from memopt.models.program import run_as_program

if TYPE_CHECKING:
    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep

DROPOUT_RATE = 0.5


def unet(  # noqa: PLR0913 - the sizes of a model, all by name
    *,
    batch: int | None = 8,
    image_size: int = 64,
    classes: int = 4,
    width: int = 16,
    depth: int = 4,
    seed: int = 0,
    optimizer: OptimizerName = "sgd",
) -> TrainingStep:
    """Builds a training step of a U-Net.

    Args:
        batch: Images in a batch; `None` for a step that takes any number.
        image_size: Height and width of an image, in pixels; a multiple of 2**depth.
        classes: Different labels of a pixel.
        width: Channels at full resolution; each level below has twice as many.
        depth: How often the resolution is halved.
        seed: What weights, images and dropout are drawn from.
        optimizer: `"sgd"` (with momentum) or `"adam"`.

    Returns:
        A step of images, float32 [batch, image_size, image_size, 3], and labels of their pixels,
        int32 [batch, image_size, image_size].

    Raises:
        OptionsError: The image cannot be halved that often.
    """
    if image_size % 2**depth:
        raise OptionsError(f"an image of {image_size} pixels cannot be halved {depth} times")
    sizes = ImageSizes(batch, image_size, classes)
    generator = np.random.default_rng(seed)
    images = random_images(sizes, generator)
    labels = generator.integers(classes, size=images.shape[:-1], dtype=np.int32)
    build_model = partial(_build_model, sizes, width, depth)
    inputs = (images, labels)
    return compile_training_step(
        "unet", build_model, inputs, seed=seed, optimizer=optimizer, any_batch=batch is None
    )


def _build_model(sizes: ImageSizes, width: int, depth: int) -> keras.Model:
    import keras

    images = keras.Input(sizes.image_shape)
    features = images
    skips = []
    for level in range(depth):
        features = _convolve_twice(features, width * 2**level)
        skips.append(features)
        features = keras.layers.MaxPooling2D()(features)
    features = _convolve_twice(features, width * 2**depth)
    features = keras.layers.Dropout(DROPOUT_RATE)(features)
    for level in reversed(range(depth)):
        channels = width * 2**level
        features = keras.layers.Conv2DTranspose(channels, 2, strides=2)(features)
        features = keras.layers.Concatenate()([skips[level], features])
        features = _convolve_twice(features, channels)
    return keras.Model(images, keras.layers.Conv2D(sizes.classes, 1)(features), name="unet")


def _convolve_twice(features: keras.KerasTensor, channels: int) -> keras.KerasTensor:
    import keras

    for _ in range(2):
        convolution = keras.layers.Conv2D(
            channels, 3, padding="same", activation="relu", kernel_initializer="he_normal"
        )
        features = convolution(features)
    return features


if __name__ == "__main__":
    run_as_program(unet)
