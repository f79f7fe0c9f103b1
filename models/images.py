"""Image classification: what the convolutional classifiers share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from memopt.models.compilation import compile_training_step
from memopt.models.training_step import EXAMPLE_BATCH

if TYPE_CHECKING:
    from collections.abc import Callable

    import keras

    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep

CHANNELS = 3


@dataclass(frozen=True)
class ImageSizes:
    """The sizes of a batch of labelled square images.

    Attributes:
        batch: Images in a batch; `None` for a step that takes any number.
        image_size: Height and width of an image, in pixels.
        classes: Different labels.
    """

    batch: int | None
    image_size: int
    classes: int

    @property
    def examples(self) -> int:
        """Images in the batch of the example inputs."""
        return self.batch or EXAMPLE_BATCH

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of one image."""
        return (self.image_size, self.image_size, CHANNELS)


def random_images(sizes: ImageSizes, generator: np.random.Generator) -> np.ndarray:
    """Draws normally distributed images: float32, [batch, height, width, channels]."""
    return generator.standard_normal((sizes.examples, *sizes.image_shape), dtype=np.float32)


def labelled_images(sizes: ImageSizes, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws images, as `random_images`, and their labels: int32, [batch]."""
    generator = np.random.default_rng(seed)
    images = random_images(sizes, generator)
    return images, generator.integers(sizes.classes, size=sizes.examples, dtype=np.int32)


def compile_classifier(
    name: str,
    application: Callable[..., keras.Model],
    sizes: ImageSizes,
    *,
    seed: int,
    optimizer: OptimizerName,
) -> TrainingStep:
    """Compiles a network of `keras.applications`, with random weights, on random images.

    Args:
        name: The model's name in the registry.
        application: The builder of the network, such as `keras.applications.ResNet50`.
        sizes: The sizes of the batch.
        seed: What weights and images are drawn from.
        optimizer: Name of the optimizer.
    """
    build_model = partial(
        application,
        weights=None,
        input_shape=sizes.image_shape,
        classes=sizes.classes,
        classifier_activation=None,
    )
    generator = np.random.default_rng(seed)
    images = random_images(sizes, generator)
    labels = generator.integers(sizes.classes, size=sizes.examples, dtype=np.int32)
    return compile_training_step(
        name,
        build_model,
        (images, labels),
        seed=seed,
        optimizer=optimizer,
        any_batch=sizes.batch is None,
    )
