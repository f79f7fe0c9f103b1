"""Scratch memory of kernels on the host, by formulas.

Found by running every op alone (`benchmarks/kernel_memory.py`) and put to the test with every kind
of layer (`benchmarks/layer_kernels.py`). oneDNN's kernels have scratch memory of their own, of
which only what grows with the step is told; `product_scratch` has that of its products.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.buffers.device_types import GPU, device_type_of
from memopt.buffers.einsum_rules import einsum_scratch_bytes, matrices_of
from memopt.buffers.product_scratch import Product, product_scratch_bytes
from memopt.buffers.rounding import divided, round_up
from memopt.graph.attributes import number_attribute
from memopt.graph.kernels import has_avx512
from memopt.graph.op_types import DT_DOUBLE, DT_FLOAT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memopt.buffers.kernel_call import KernelCall
    from memopt.shapes.tensor_properties import TensorProperties

    _Scratch = list[tuple[int, tuple[int, ...]]]

_WORKING_SET_BYTES = 30 << 20
_LARGE_WORK_ELEMENTS = 1 << 16
_PACKET_ELEMENTS = 8
_BLOCK_WORK = 2000
_FLAG_BYTES = 4
_MOST_TURNS = 3
_START_CYCLES = _THREAD_CYCLES = 100_000
_HALVES = frozenset({14, 19})


def computes_with_halves(call: KernelCall) -> bool:
    """Whether oneDNN computes with 16-bit numbers, as it does where the processor can."""
    has_halves = any(tensor.dtype in _HALVES for tensor in call.inputs)
    return has_halves and call.runtime.onednn and has_avx512()


def _columns(
    call: KernelCall, gradient: TensorProperties, weights: TensorProperties
) -> tuple[int, int, int]:
    """Sizes of the matrices of a convolution: output pixels, filter elements, output channels."""
    shape, filter_shape = gradient.shape, weights.shape
    assert shape is not None
    assert filter_shape is not None
    pixels = prod(shape[2:]) if call.has_channels_first else prod(shape[1:-1])
    return pixels, prod(filter_shape[:-1]), filter_shape[-1]


def images_at_once(pixels: int, elements: int, channels: int, number_bytes: int) -> int:
    """How many images' columns the kernels hold, whatever the batch is.

    Args:
        pixels: Of what was made of each image.
        elements: Of a filter, by channel that it makes.
        channels: How many it makes.
        number_bytes: The size of a number.
    """
    work = pixels * elements + pixels * channels + elements * channels
    return divided(_WORKING_SET_BYTES // number_bytes, work)


def columns_at_once(
    samples: int, pixels: int, elements: int, channels: int, number_bytes: int, threads: int
) -> int:
    """How many images' columns the kernel for a gradient of images holds.

    Those of one image where there is only one, or where threads share the work of each.

    Args:
        samples: How many images there are.
        pixels: Of the gradient of what was made of each image.
        elements: Of a filter, by channel that it makes.
        channels: How many it makes.
        number_bytes: The size of a number.
        threads: How many share the work of a kernel.
    """
    work = pixels * elements + pixels * channels + elements * channels
    if samples == 1 or work // threads >= _LARGE_WORK_ELEMENTS:
        return 1
    return images_at_once(pixels, elements, channels, number_bytes)


def _number_bytes(tensor: TensorProperties) -> int:
    return 2 if tensor.dtype in _HALVES else 4


def _filter_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    sizes = _columns(call, call.inputs[2], call.outputs[0])
    number_bytes = _number_bytes(call.inputs[0])
    return images_at_once(*sizes, number_bytes) * sizes[0] * sizes[1] * number_bytes


def _input_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    sizes = _columns(call, call.inputs[2], call.inputs[1])
    gradient = call.inputs[2].shape
    assert gradient is not None
    number_bytes = _number_bytes(call.inputs[2])
    threads = call.runtime.intra_op_threads
    images = columns_at_once(gradient[0], *sizes, number_bytes, threads)
    return images * sizes[0] * sizes[1] * number_bytes


def _wider_copies(call: KernelCall) -> int:
    """What a product of 16-bit numbers reads and gives, as 32-bit numbers."""
    if not any(tensor.dtype in _HALVES for tensor in call.inputs) or computes_with_halves(call):
        return 0
    return 2 * sum(tensor.least_bytes for tensor in (*call.inputs, *call.outputs))


def _copies_blocks(call: KernelCall) -> bool:
    """Whether oneDNN's products of batches run, with blocks copied by each thread."""
    is_single = call.outputs[0].dtype == DT_FLOAT
    return is_single and call.runtime.onednn and has_avx512()


def _batch_product(call: KernelCall) -> int:
    if not _copies_blocks(call):
        return _wider_copies(call)
    left, output = call.inputs[0].shape, call.outputs[0].shape
    assert left is not None
    assert output is not None
    transposes_left, transposes_right = (
        bool(number_attribute(call.node, name)) for name in ("adj_x", "adj_y")
    )
    *batch, rows, columns = output
    depth = left[-2] if transposes_left else left[-1]
    product = Product(prod(batch), rows, depth, columns, transposes_left, transposes_right)
    return product_scratch_bytes(product, call.runtime.intra_op_threads)


def _einsum(call: KernelCall) -> int:
    product = matrices_of(call) if _copies_blocks(call) else None
    copied = product_scratch_bytes(product, call.runtime.intra_op_threads) if product else 0
    return einsum_scratch_bytes(call, copied)


def _depthwise_row(weights: TensorProperties) -> tuple[int, int, int]:
    """Bytes of a padded filter, of one of its rows, and of the filter's padded copy if needed."""
    assert weights.shape is not None
    height, width, channels, multiplier = weights.shape
    padded = round_up(channels * multiplier, _PACKET_ELEMENTS)
    row_bytes = padded * 4
    whole_bytes = height * width * row_bytes
    copied = padded != channels * multiplier
    return whole_bytes, row_bytes, whole_bytes if copied else 0


def _depthwise(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    whole_bytes, _, copy_bytes = _depthwise_row(call.inputs[1])
    parts = _parts(call, 2.5 * prod(call.outputs[0].shape or ()))
    return copy_bytes + parts * whole_bytes


def _depthwise_input_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    whole_bytes, row_bytes, copy_bytes = _depthwise_row(call.inputs[1])
    parts = _parts(call, prod(call.outputs[0].shape or ()))
    return copy_bytes + parts * (whole_bytes + row_bytes)


def _depthwise_filter_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    whole_bytes, _, _ = _depthwise_row(call.outputs[0])
    parts = _parts(call, prod(call.inputs[2].shape or ()))
    return (_batch(call.inputs[2]) + parts) * whole_bytes


def _parts(call: KernelCall, work: float) -> int:
    """Parts of the work that run at once, at most: Eigen's estimate from cycles of arithmetic.

    `TensorCostModel::numThreads`; how many really do differs from run to run.
    """
    threads = int((work - _START_CYCLES) / _THREAD_CYCLES + 0.9)
    return max(1, min(threads, call.runtime.intra_op_threads))


def _batch(tensor: TensorProperties) -> int:
    assert tensor.shape is not None
    return tensor.shape[0]


def _bias_gradient(call: KernelCall) -> int:
    """Partial sums of blocks of rows, where the channels are too few to be shared out."""
    shape = call.inputs[0].shape
    assert shape is not None
    channels, threads = shape[-1], call.runtime.intra_op_threads
    rows = prod(shape[:-1])
    if channels == 1 or rows == 1 or channels > threads * 32:
        return 0
    blocks = min(rows, divided(rows * channels, divided(_BLOCK_WORK, channels)), threads)
    return blocks * channels * 4


def reduction_bytes(call: KernelCall) -> int:
    """A transposed copy, where reduced and kept dimensions take turns more than twice."""
    source = call.inputs[0]
    axes = call.constants(1)
    assert source.shape is not None
    if axes is None or source.size_bytes is None:
        return 0
    rank = len(source.shape)
    reduced = {axis % rank for axis in axes} if rank else set()
    kinds = [axis in reduced for axis in range(rank) if source.shape[axis] != 1]
    turns = [kind for k, kind in enumerate(kinds) if not k or kinds[k - 1] != kind]
    return source.size_bytes if len(turns) > _MOST_TURNS else 0


def _whole_input(call: KernelCall) -> int:
    return call.inputs[0].size_bytes or 0


def _labels(call: KernelCall) -> _Scratch:
    return [(call.outputs[0].size_bytes or 0, ())]


def _pool_gradient(call: KernelCall) -> _Scratch:
    """The pooled numbers, recomputed, and for each of them its place, 64 bits wide."""
    return [(call.inputs[1].least_bytes, (1,)), (8 * prod(call.inputs[1].shape or ()), ())]


def pools_by_onednn(call: KernelCall) -> bool:
    """Whether oneDNN's kernel pools on the host, or computes the gradient: not of doubles."""
    is_single = call.outputs[0].dtype != DT_DOUBLE
    return call.runtime.onednn and is_single and device_type_of(call.node) != GPU


def _pooling(call: KernelCall) -> int:
    """Where in its window each number was, which oneDNN notes in a byte."""
    return prod(call.outputs[0].shape or ()) if pools_by_onednn(call) else 0


def _normalization_gradient(call: KernelCall) -> int:
    return 3 * (call.outputs[1].size_bytes or 0)


def _padding(call: KernelCall) -> _Scratch:
    """The paddings, two 32-bit numbers for each dimension."""
    return [(8 * len(call.outputs[0].shape or ()), ())]


SCRATCH: Mapping[str, Callable[[KernelCall], int]] = {
    "Conv2DBackpropFilter": _filter_gradient,
    "Conv2DBackpropInput": _input_gradient,
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_filter_gradient,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_input_gradient,
    "BiasAddGrad": _bias_gradient,
    "Einsum": _einsum,
    "GatherNd": lambda _: _FLAG_BYTES,
    "MatMul": _wider_copies,
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_product),
    **dict.fromkeys(("MaxPool", "MaxPool3D"), _pooling),
    "MirrorPadGrad": _whole_input,
    "FusedBatchNormGrad": _normalization_gradient,
    "FusedBatchNormGradV2": _normalization_gradient,
    "FusedBatchNormGradV3": _normalization_gradient,
    **dict.fromkeys(("Sum", "Mean", "Prod", "Max", "Min", "All", "Any"), reduction_bytes),
}

SCRATCH_BEFORE: Mapping[str, Callable[[KernelCall], _Scratch]] = {
    "MaxPoolGrad": _pool_gradient,
    "Pad": _padding,
    "PadV2": _padding,
    "SoftmaxCrossEntropyWithLogits": _labels,
    "SparseSoftmaxCrossEntropyWithLogits": _labels,
}
