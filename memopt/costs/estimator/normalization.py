"""Batch normalization, its gradient, and Softmax."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.costs.estimator.convolution import DATA_FORMAT, IMAGE_AXES, IMAGE_RANK, NCHW, NHWC
from memopt.costs.estimator.elementwise import EXPONENTIAL, INVERSE_SQUARE_ROOT, RECIPROCAL
from memopt.costs.estimator.op_info import Attribute, Formula, flag_of

if TYPE_CHECKING:
    from memopt.costs.estimator.op_info import OpInfo, Work
    from memopt.shapes.tensor_properties import Shape


def _batch_normalization(info: OpInfo) -> Work | None:
    """Image, scale and three more per channel (`PredictFusedBatchNorm`).

    In training the image is read twice and four results per channel are written; otherwise mean and
    variance are read.
    """
    image, scale = info.input(0), info.input(1)
    elements, channels = _image_elements(info, image.shape)
    image_bytes, channel_bytes = info.tensor_bytes(image), info.tensor_bytes(scale)
    if not info.attributes["is_training"]:
        return info.work(2 * elements, image_bytes + 4 * channel_bytes, image_bytes)
    operations = 4 * elements + channels * (6 + INVERSE_SQUARE_ROOT)
    return info.work(
        operations, 2 * image_bytes + 2 * channel_bytes, image_bytes + 4 * channel_bytes
    )


def _batch_normalization_gradient(info: OpInfo) -> Work | None:
    """Gradient of the result, image, scale, mean, variance (`PredictFusedBatchNormGrad`).

    Images are read three times, and the variance not at all: so Grappler counts.
    """
    image, scale = info.input(1), info.input(2)
    elements, channels = _image_elements(info, image.shape)
    image_bytes, channel_bytes = info.tensor_bytes(image), info.tensor_bytes(scale)
    operations = 11 * elements + channels * (5 + INVERSE_SQUARE_ROOT)
    return info.work(
        operations, 3 * image_bytes + 2 * channel_bytes, image_bytes + 2 * channel_bytes
    )


def _image_elements(info: OpInfo, shape: Shape) -> tuple[int, int]:
    """The elements of an image, and its channels."""
    axes = IMAGE_AXES[NCHW if info.attributes["data_format"] == NCHW else NHWC]
    sizes = info.sizes(shape, IMAGE_RANK)
    return prod(sizes), sizes[axes.channels[0]]


BATCH_NORMALIZATION = Formula(
    _batch_normalization, (DATA_FORMAT, Attribute("is_training", flag_of, True))
)
BATCH_NORMALIZATION_GRADIENT = Formula(_batch_normalization_gradient, (DATA_FORMAT,))


def _softmax(info: OpInfo) -> Work | None:
    """Exponential, sum and product of each element, a reciprocal per row (`PredictSoftmax`).

    A number of rows that is not known is taken as it is written, -1.
    """
    shape = info.input(0).shape
    if not shape:
        return None
    elements = info.elements(info.input(0))
    return info.work_on_all((EXPONENTIAL + 2) * elements + RECIPROCAL * shape[0])


SOFTMAX = Formula(_softmax)
