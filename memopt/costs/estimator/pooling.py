"""Pooling and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.estimator.convolution import (
    DATA_FORMAT,
    IMAGE_AXES,
    IMAGE_RANK,
    NCHW,
    NHWC,
    PADDING,
    STRIDES,
    four,
    window_count,
)
from memopt.costs.estimator.op_info import Attribute, Formula, element_bytes, integers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.costs.estimator.op_info import OpInfo, Work
    from memopt.shapes.tensor_properties import Shape

POOLING_ATTRIBUTES = (
    DATA_FORMAT,
    PADDING,
    STRIDES,
    Attribute("ksize", integers_of, (1, 1, 1, 1)),
)


class Windows(NamedTuple):
    """An image and the windows over it (`OpDimensionsFromInputs`).

    Attributes:
        planes: Images times channels.
        pixels: Of one plane.
        width: Of a plane.
        window: Elements of one window.
        window_height: Rows of one window.
        per_column: Windows above each other.
        per_plane: Windows over one plane.
        overlap: Whether windows share elements.
        skips_rows: Whether there are rows between the windows that are not read.
    """

    planes: int
    pixels: int
    width: int
    window: int
    window_height: int
    per_column: int
    per_plane: int
    overlap: bool
    skips_rows: bool


def windows_over(info: OpInfo, shape: Shape) -> Windows | None:
    """The windows over an image of this shape; `None` if they do not move."""
    axes = IMAGE_AXES[NCHW if info.attributes["data_format"] == NCHW else NHWC]
    sizes = info.sizes(shape, IMAGE_RANK)
    kernel, strides = four(info.attributes["ksize"]), four(info.attributes["strides"])
    stride_x, stride_y = strides[axes.x], strides[axes.y]
    if not stride_x or not stride_y:
        return None
    padding = info.attributes["padding"]
    width, height = sizes[axes.x], sizes[axes.y]
    kernel_x, kernel_y = kernel[axes.x], kernel[axes.y]
    per_column = window_count(height, kernel_y, stride_y, padding)
    return Windows(
        planes=sizes[0] * sizes[axes.channels[0]],
        pixels=width * height,
        width=width,
        window=kernel_x * kernel_y,
        window_height=kernel_y,
        per_column=per_column,
        per_plane=window_count(width, kernel_x, stride_x, padding) * per_column,
        overlap=kernel_x > stride_x or kernel_y > stride_y,
        skips_rows=kernel_y < stride_y,
    )


def pooling(operations_per_window: Callable[[int], int]) -> Formula:
    """Pooling of input 0 (`PredictMaxPool`, `PredictAvgPool`)."""

    def work(info: OpInfo) -> Work | None:
        image = info.input(0)
        windows = windows_over(info, image.shape)
        if windows is None:
            return None
        operations = windows.planes * windows.per_plane * operations_per_window(windows.window)
        if windows.skips_rows:
            rows_read = windows.window_height * windows.per_column
            read_bytes = windows.planes * windows.width * rows_read * element_bytes(image)
        else:
            read_bytes = info.tensor_bytes(image)
        return info.work(operations, read_bytes, info.total_bytes(info.outputs))

    return Formula(work, POOLING_ATTRIBUTES)


def _comparisons(window: int) -> int:
    """All elements but the first are compared; a single one is copied."""
    return max(1, window - 1)


def _additions(window: int) -> int:
    """All elements but the first are added, and the sum is divided."""
    return window


MAX_POOLING = pooling(_comparisons)
AVERAGE_POOLING = pooling(_additions)


def _max_gradient(info: OpInfo) -> Work | None:
    """Image, result, gradient of the result; pools again (`PredictMaxPoolGrad`)."""
    image, gradient = info.input(0), info.input(2)
    windows = windows_over(info, image.shape)
    if windows is None:
        return None
    operations = windows.pixels
    if windows.window > 1:
        writes = windows.pixels * (2 if windows.overlap else 1)
        operations = windows.per_plane * (windows.window - 1) + writes
    image_bytes = info.tensor_bytes(image)
    read_bytes = image_bytes + info.tensor_bytes(gradient)
    return info.work(windows.planes * operations, read_bytes, image_bytes)


def _average_gradient(info: OpInfo) -> Work | None:
    """The image's sizes, gradient of the result (`PredictAvgPoolGrad`).

    It reads the image's shape from the value of input 0; where that is known, so is the output's
    shape, and they are the same.
    """
    windows = windows_over(info, info.output().shape)
    if windows is None:
        return None
    per_window = windows.window + 1 if windows.overlap else 1
    operations = windows.planes * (windows.pixels + windows.per_plane * per_window)
    return info.work_on_all(operations)


MAX_GRADIENT = Formula(_max_gradient, POOLING_ATTRIBUTES)
AVERAGE_GRADIENT = Formula(_average_gradient, POOLING_ATTRIBUTES)
