"""VGG16: plain convolutions under three wide dense layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.models.images import ImageSizes, compile_classifier
from memopt.models.program import run_as_program

if TYPE_CHECKING:
    from memopt.models.compilation import OptimizerName
    from memopt.models.training_step import TrainingStep


def vgg16(
    batch: int | None = 8,
    image_size: int = 64,
    classes: int = 100,
    seed: int = 0,
    optimizer: OptimizerName = "sgd",
) -> TrainingStep:
    """Builds a training step of VGG16.

    Args:
        batch: Images in a batch; `None` for a step that takes any number.
        image_size: Height and width of an image, in pixels; at least 32.
        classes: Different labels.
        seed: What weights and images are drawn from.
        optimizer: `"sgd"` (with momentum) or `"adam"`.

    Returns:
        A step of images, float32 [batch, image_size, image_size, 3], and labels, int32 [batch].
    """
    from keras.applications import VGG16

    sizes = ImageSizes(batch, image_size, classes)
    return compile_classifier("vgg16", VGG16, sizes, seed=seed, optimizer=optimizer)


if __name__ == "__main__":
    run_as_program(vgg16)
