"""Convolutions, their gradients, and the fused convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.estimator.elementwise import largest_elements
from memopt.costs.estimator.op_info import Attribute, Formula, OpInfo, integers_of, text_of
from memopt.graph.op_types import DT_FLOAT
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memopt.costs.estimator.op_info import Work
    from memopt.shapes.tensor_properties import Shape, TensorProperties

OPERATIONS_PER_MAC = 2
"""A multiplication and an addition."""

NHWC, NCHW, NCHW_VECT_C = "NHWC", "NCHW", "NCHW_VECT_C"
HWIO, OIHW, OIHW_VECT_I = "HWIO", "OIHW", "OIHW_VECT_I"

DATA_FORMAT = Attribute("data_format", text_of, NHWC)
FILTER_FORMAT = Attribute("filter_format", text_of, HWIO)
PADDING = Attribute("padding", text_of, "SAME")
STRIDES = Attribute("strides", integers_of, (1, 1, 1, 1))
CONVOLUTION_ATTRIBUTES = (DATA_FORMAT, FILTER_FORMAT, PADDING, STRIDES)

IMAGE_RANK = 4


class ImageAxes(NamedTuple):
    """Where an image's dimensions are. The batch is always first."""

    y: int
    x: int
    channels: tuple[int, ...]

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return 3 + len(self.channels)


class FilterAxes(NamedTuple):
    """Where a filter's dimensions are."""

    y: int
    x: int
    into: tuple[int, ...]
    out: int

    @property
    def rank(self) -> int:
        """How many dimensions there are."""
        return 3 + len(self.into)


IMAGE_AXES = {
    NHWC: ImageAxes(1, 2, (3,)),
    NCHW: ImageAxes(2, 3, (1,)),
    NCHW_VECT_C: ImageAxes(2, 3, (1, 4)),
}
FILTER_AXES = {
    HWIO: FilterAxes(0, 1, (2,), 3),
    OIHW: FilterAxes(2, 3, (1,), 0),
    OIHW_VECT_I: FilterAxes(2, 3, (1, 4), 0),
}


class Dimensions(NamedTuple):
    """Sizes of a convolution (`ConvolutionDimensions`)."""

    batch: int
    depth: int
    kernel_x: int
    kernel_y: int
    kernel_depth: int
    out_x: int
    out_y: int
    filters: int


def window_count(size: int, kernel: int, stride: int, padding: str) -> int:
    """How many places a window has along an axis (`GetOutputSize`)."""
    if padding != "VALID":
        return (size + stride - 1) // stride
    span = size - kernel + stride
    return span // stride if span >= 0 else -(-span // stride)


def four(values: tuple[int, ...]) -> tuple[int, ...]:
    """Strides or a window by axis; anything but four values is not understood."""
    return values if len(values) == len(STRIDES.default) else STRIDES.default


def dimensions(info: OpInfo, image: Shape, kernel: Shape) -> Dimensions | None:
    """The sizes of a convolution of an image with a filter (`ConvolutionDimensionsFromInputs`)."""
    image_axes = IMAGE_AXES.get(info.attributes["data_format"], IMAGE_AXES[NHWC])
    filter_axes = FILTER_AXES.get(info.attributes["filter_format"], FILTER_AXES[OIHW])
    image_sizes = info.sizes(image, image_axes.rank)
    filter_sizes = info.sizes(kernel, filter_axes.rank)
    depth, kernel_depth = 1, 1
    for axis in image_axes.channels:
        depth *= image_sizes[axis]
    for axis in filter_axes.into:
        kernel_depth *= filter_sizes[axis]
    strides = four(info.attributes["strides"])
    stride_x, stride_y = strides[image_axes.x], strides[image_axes.y]
    if not (kernel_depth and stride_x and stride_y):
        return None
    if 1 in (depth, kernel_depth):
        # One of them may not have been known.
        depth = kernel_depth = max(depth, kernel_depth)
    elif depth % kernel_depth:
        info.inaccurate = True
    kernel_x, kernel_y = filter_sizes[filter_axes.x], filter_sizes[filter_axes.y]
    padding = info.attributes["padding"]
    return Dimensions(
        batch=image_sizes[0],
        depth=depth,
        kernel_x=kernel_x,
        kernel_y=kernel_y,
        kernel_depth=kernel_depth,
        out_x=window_count(image_sizes[image_axes.x], kernel_x, stride_x, padding),
        out_y=window_count(image_sizes[image_axes.y], kernel_y, stride_y, padding),
        filters=filter_sizes[filter_axes.out],
    )


def full_operations(sizes: Dimensions) -> int:
    """Every filter sees every channel."""
    return _window_operations(sizes) * sizes.kernel_depth * sizes.filters


def depthwise_operations(sizes: Dimensions) -> int:
    """Every channel has filters of its own."""
    return _window_operations(sizes) * sizes.depth * sizes.filters


def _window_operations(sizes: Dimensions) -> int:
    windows = sizes.batch * sizes.out_x * sizes.out_y
    return windows * sizes.kernel_x * sizes.kernel_y * OPERATIONS_PER_MAC


def forward(count: Callable[[Dimensions], int]) -> Formula:
    """A convolution of input 0 with filter 1 (`PredictConv2D`)."""

    def work(info: OpInfo) -> Work | None:
        sizes = dimensions(info, info.input(0).shape, info.input(1).shape)
        return _work(info, sizes, count)

    return Formula(work, CONVOLUTION_ATTRIBUTES)


def input_gradient(count: Callable[[Dimensions], int]) -> Formula:
    """The gradient of the image: sizes of the image, filter, gradient of the result.

    `PredictConv2DBackpropInput`. It reads the image's shape from the value of input 0; where that
    is known, so is the output's shape, and they are the same.
    """

    def work(info: OpInfo) -> Work | None:
        sizes = dimensions(info, _image_as_told(info), info.input(1).shape)
        return _work(info, sizes, count)

    return Formula(work, CONVOLUTION_ATTRIBUTES)


def filter_gradient(count: Callable[[Dimensions], int]) -> Formula:
    """The gradient of the filter: image, sizes of the filter, gradient of the result.

    `PredictConv2DBackpropFilter`; of the value of input 1 the same holds as for the image's.
    """

    def work(info: OpInfo) -> Work | None:
        sizes = dimensions(info, info.input(0).shape, info.output().shape)
        return _work(info, sizes, count)

    return Formula(work, CONVOLUTION_ATTRIBUTES)


def _work(
    info: OpInfo, sizes: Dimensions | None, count: Callable[[Dimensions], int]
) -> Work | None:
    if sizes is None or has_empty(info.inputs):
        return None
    return info.work_on_all(count(sizes))


def _image_as_told(info: OpInfo) -> Shape:
    """The image's shape; of height and width alone Grappler takes them for batch and height."""
    image = info.output().shape
    if info.input(0).shape != (2,) or image is None or len(image) != IMAGE_RANK:
        return image
    axes = IMAGE_AXES.get(info.attributes["data_format"], IMAGE_AXES[NHWC])
    spatial = (image[axes.y], image[axes.x])
    return image if min(spatial) < 0 else spatial


def has_empty(tensors: Iterable[TensorProperties]) -> bool:
    """Whether one of the tensors has no elements (`HasZeroDim`)."""
    return any(0 in (tensor.shape or ()) for tensor in tensors)


def fused_bias_activation(info: OpInfo) -> Work | None:
    """A convolution, a scaled side input, a bias, Relu (`PredictFusedConv2DBiasActivation`).

    Inputs: image, filter, bias, side input, the scales of image and side input. The arithmetic is
    that of the parts, the memory that of the node.
    """
    data_format = info.attributes["data_format"]
    if data_format not in IMAGE_AXES or info.attributes["filter_format"] not in FILTER_AXES:
        return None
    sizes = dimensions(info, info.input(0).shape, info.input(1).shape)
    if sizes is None:
        return None
    spatial = (sizes.out_y, sizes.out_x)
    shape = (*spatial, sizes.filters) if data_format == NHWC else (sizes.filters, *spatial)
    result = tensor_properties(DT_FLOAT, (sizes.batch, *shape))
    parts = [(result, info.input(4)), (result, result), (result,)]  # Scale, bias, Relu.
    side = info.input(3)
    if side.shape:
        parts += [(side, info.input(5)), (result, result)]  # Scale, sum.
    operations = 0 if has_empty(info.inputs[:2]) else full_operations(sizes)
    operations += sum(largest_elements(info, part, part[0]) for part in parts)
    info.outputs = (result,)
    return info.work_on_all(operations)


FUSED_BIAS_ACTIVATION = Formula(fused_bias_activation, CONVOLUTION_ATTRIBUTES)
