"""What kernels do with memory: which outputs share or take over buffers, and scratch memory.

The tables of `kernel_table` and the formulas here are those of TensorFlow's own kernels on the
host, found by running every op alone (`benchmarks/kernel_memory.py`) and put to the test with every
kind of layer (`benchmarks/layer_kernels.py`). oneDNN's kernels have scratch memory of their own, of
which only what grows with the step is told. Where kernels on a GPU do something else, `gpu_rules`
says what.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.buffers import gpu_rules
from memopt.buffers.device_types import GPU, device_type_of
from memopt.buffers.einsum_rules import einsum_scratch_bytes, product_of
from memopt.buffers.kernel_call import KernelMemory, Placement
from memopt.buffers.kernel_table import (
    ALIASES,
    ANY_INPUT,
    PLAIN,
    PORT_BY_PORT,
    REUSES,
    ROWS,
    UNCHANGED,
)
from memopt.graph.kernels import has_avx512

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.buffers.kernel_call import KernelCall
    from memopt.shapes.tensor_properties import TensorProperties

    _Scratch = list[tuple[int, tuple[int, ...]]]

_FORWARDS = {
    **{op: {0: 0} for op in ("Enter", "Exit", "NextIteration", "Merge", "LoopCond")},
    **{op: {0: 0, 1: 0} for op in ("Switch", "RefSwitch")},
}
"""What control flow consists of hands tensors on; it does not run alone."""

_SHARED = {**ALIASES, **_FORWARDS}

_REUSES: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    **REUSES,
    "_UnaryOpsComposition": {0: (0,)},
    "Cholesky": {0: (0,)},
    # It writes into whatever it is given; a copy of it writes the same there.
    "InplaceUpdate": {0: (0,)},
}
"""With ops that nobody can call alone, or not with any values."""

_ALIGNMENT_BYTES = 64
"""Kernels may read a tensor from any multiple of it (`EIGEN_MAX_ALIGN_BYTES`)."""

_WORKING_SET_BYTES = 30 << 20
_LARGE_WORK_ELEMENTS = 1 << 16
_PACKET_ELEMENTS = 8
_BLOCK_WORK = 2000
_FLAG_BYTES = 4
_NORMALIZATION_GRADIENTS = "FusedBatchNormGrad"
_MOST_TURNS = 3
_START_CYCLES = _THREAD_CYCLES = 100_000


def memory_by_rule(call: KernelCall) -> KernelMemory:
    """What a kernel does with memory, as far as rules know it."""
    return KernelMemory(placements(call), scratch_bytes(call), scratch_buffers(call))


def is_known(call: KernelCall) -> bool:
    """Whether a rule knows what a kernel does with memory; of others the outputs are all there is.

    Nobody knows without having run them what XLA compiles, convolutions of groups, and products of
    16-bit numbers where oneDNN computes with them.
    """
    op = call.node.op
    if op in gpu_rules.WITH_WORKSPACE and is_on_gpu(call):
        return False
    if op in _CONVOLUTIONS and _has_groups(call):
        return False
    if op in _PRODUCTS and _computes_with_halves(call):
        return False
    return product_of(call) is not None if op == "Einsum" else op in _KNOWN


def _computes_with_halves(call: KernelCall) -> bool:
    """Whether oneDNN computes with 16-bit numbers, as it does where the processor can."""
    has_halves = any(tensor.dtype in _HALVES for tensor in call.inputs)
    return has_halves and call.runtime.onednn and has_avx512() and not is_on_gpu(call)


def _has_groups(call: KernelCall) -> bool:
    """Whether each filter reads only some of the channels."""
    images, filters = _CONVOLUTIONS[call.node.op](call)
    if not images.shape or not filters.shape or len(filters.shape) < _LEAST_FILTER_RANK:
        return False
    form = call.node.attributes.get("data_format")
    channels = images.shape[1 if form is not None and form.s.startswith(b"NC") else -1]
    return bool(channels != filters.shape[-2])


def placements(call: KernelCall) -> list[Placement]:
    """Where the outputs lie, by port."""
    op, ports = call.node.op, range(len(call.outputs))
    if op in PORT_BY_PORT:
        return [Placement(port) for port in ports]
    if op in _SHARED:
        return [Placement(_SHARED[op].get(port, -1)) for port in ports]
    shared = _shared_slot(call)
    if shared >= 0:
        return [Placement(shared) for _ in ports]
    if op in ANY_INPUT:
        return [Placement(-1, _alike(call, range(len(call.inputs)), 0))]
    is_other = op in gpu_rules.NO_REUSES and is_on_gpu(call)
    slots = {} if is_other else _REUSES.get(op, {})
    return [Placement(-1, _alike(call, slots.get(port, ()), port)) for port in ports]


def _alike(call: KernelCall, slots: Sequence[int], port: int) -> list[int]:
    """Those slots whose tensors could lie in the output's buffer: same type, as many elements."""
    output = call.outputs[port]
    return [
        slot
        for slot in slots
        if slot < len(call.inputs)
        and _fits(call.inputs[slot], output)
        # A single number is broadcast even to one of more dimensions.
        and (call.inputs[slot].shape != () or output.shape == ())
    ]


def _fits(one: TensorProperties, other: TensorProperties) -> bool:
    return one.dtype == other.dtype and one.size_bytes == other.size_bytes is not None


def _shared_slot(call: KernelCall) -> int:
    """The slot whose buffer all outputs share because next to nothing happens, or -1."""
    op = call.node.op
    if op == "Transpose":
        return 0 if _keeps_order(call) else -1
    slot = UNCHANGED.get(op, -1)
    alone = op not in ANY_INPUT or len(call.inputs) == 1
    if 0 <= slot < len(call.inputs) and alone and _fits(call.inputs[slot], call.outputs[0]):
        return slot
    slot = ROWS.get(op, -1)
    return slot if slot >= 0 and _is_rows(call, slot) else -1


def _keeps_order(call: KernelCall) -> bool:
    """Whether a transposition moves only dimensions of one element."""
    shape, order = call.inputs[0].shape, call.constants(1)
    if shape is None or order is None:
        return False
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _is_rows(call: KernelCall, slot: int) -> bool:
    """Whether the outputs are rows of an input, from where kernels may read them."""
    source, part = call.inputs[slot], call.outputs[0]
    if not source.shape or part.shape is None or source.size_bytes is None:
        return False
    rows = source.shape[0]
    inner = tuple(source.shape[1:])
    if call.node.op in {"Unpack", "Split"}:
        whole = tuple(part.shape) if call.node.op == "Unpack" else tuple(part.shape[1:])
        return whole == inner and rows > 0 and source.size_bytes // rows % _ALIGNMENT_BYTES == 0
    kept = tuple(part.shape[len(part.shape) - len(inner) :]) if inner else ()
    if kept != inner or rows <= 0 or len(part.shape) < len(inner):
        return False
    row_bytes = source.size_bytes // rows
    if inner:
        return row_bytes % _ALIGNMENT_BYTES == 0
    begin, end = call.constants(1), call.constants(2)
    if not begin or not end:
        return False
    return begin[0] * row_bytes % _ALIGNMENT_BYTES == end[0] * row_bytes % _ALIGNMENT_BYTES == 0


def scratch_bytes(call: KernelCall) -> int:
    """What the kernel has only while it runs and asks for after its outputs; 0 if not known."""
    op = call.node.op
    formula = _SCRATCH.get(op)
    if formula is not _reduction and is_on_gpu(call):
        formula = gpu_rules.SCRATCH.get(op)
    return formula(call) if formula is not None and _is_known(call) else 0


def scratch_buffers(call: KernelCall) -> list[tuple[int, tuple[int, ...]]]:
    """What it has only while it runs and asks for before: bytes, and the slots it may take over."""
    formula = _SCRATCH_BEFORE.get(call.node.op)
    if formula is None or not _is_known(call) or is_on_gpu(call):
        return []
    return [(size_bytes, slots) for size_bytes, slots in formula(call) if size_bytes]


def is_on_gpu(call: KernelCall) -> bool:
    """Whether it runs on a GPU."""
    return device_type_of(call.node) == GPU


def _is_known(call: KernelCall) -> bool:
    if call.node.op.startswith(_NORMALIZATION_GRADIENTS):
        # Of what is reserved for later nobody infers anything.
        return call.outputs[1].is_known
    return all(tensor.is_known for tensor in (*call.inputs, *call.outputs))


def _divided(amount: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-amount // by)


def _columns(
    call: KernelCall, gradient: TensorProperties, weights: TensorProperties
) -> tuple[int, int, int]:
    """Sizes of the matrices of a convolution: output pixels, filter elements, output channels."""
    shape, filter_shape = gradient.shape, weights.shape
    assert shape is not None
    assert filter_shape is not None
    last = call.node.attributes.get("data_format")
    channels_first = last is not None and last.s == b"NCHW"
    pixels = prod(shape[2:]) if channels_first else prod(shape[1:-1])
    return pixels, prod(filter_shape[:-1]), filter_shape[-1]


def _images_at_once(pixels: int, elements: int, channels: int, number_bytes: int) -> int:
    """How many images' columns the kernels hold, whatever the batch is."""
    work = pixels * elements + pixels * channels + elements * channels
    return _divided(_WORKING_SET_BYTES // number_bytes, work)


def _number_bytes(tensor: TensorProperties) -> int:
    return 2 if tensor.dtype in _HALVES else 4


def _filter_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    sizes = _columns(call, call.inputs[2], call.outputs[0])
    number_bytes = _number_bytes(call.inputs[0])
    return _images_at_once(*sizes, number_bytes) * sizes[0] * sizes[1] * number_bytes


def _input_gradient(call: KernelCall) -> int:
    if call.runtime.onednn:
        return 0
    sizes = pixels, elements, channels = _columns(call, call.inputs[2], call.inputs[1])
    gradient = call.inputs[2].shape
    assert gradient is not None
    work = pixels * elements + pixels * channels + elements * channels
    alone = gradient[0] == 1 or work // call.runtime.intra_op_threads >= _LARGE_WORK_ELEMENTS
    number_bytes = _number_bytes(call.inputs[2])
    images = 1 if alone else _images_at_once(*sizes, number_bytes)
    return images * pixels * elements * number_bytes


def _wider_copies(call: KernelCall) -> int:
    """What a product of 16-bit numbers reads and gives, as 32-bit numbers."""
    if not any(tensor.dtype in _HALVES for tensor in call.inputs) or _computes_with_halves(call):
        return 0
    return 2 * sum(tensor.least_bytes for tensor in (*call.inputs, *call.outputs))


def _depthwise_row(weights: TensorProperties) -> tuple[int, int, int]:
    """Bytes of a padded filter, of one of its rows, and of the filter's padded copy if needed."""
    assert weights.shape is not None
    height, width, channels, multiplier = weights.shape
    padded = _divided(channels * multiplier, _PACKET_ELEMENTS) * _PACKET_ELEMENTS
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
    blocks = min(rows, _divided(rows * channels, _divided(_BLOCK_WORK, channels)), threads)
    return blocks * channels * 4


def _reduction(call: KernelCall) -> int:
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


def _pooling(call: KernelCall) -> int:
    """Where in its window each number was, which oneDNN notes in a byte."""
    return prod(call.outputs[0].shape or ()) if call.runtime.onednn else 0


def _normalization_gradient(call: KernelCall) -> int:
    return 3 * (call.outputs[1].size_bytes or 0)


def _padding(call: KernelCall) -> _Scratch:
    """The paddings, two 32-bit numbers for each dimension."""
    return [(8 * len(call.outputs[0].shape or ()), ())]


_SCRATCH: Mapping[str, Callable[[KernelCall], int]] = {
    "Conv2DBackpropFilter": _filter_gradient,
    "Conv2DBackpropInput": _input_gradient,
    "DepthwiseConv2dNative": _depthwise,
    "DepthwiseConv2dNativeBackpropFilter": _depthwise_filter_gradient,
    "DepthwiseConv2dNativeBackpropInput": _depthwise_input_gradient,
    "BiasAddGrad": _bias_gradient,
    "Einsum": einsum_scratch_bytes,
    "GatherNd": lambda _: _FLAG_BYTES,
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _wider_copies),
    **dict.fromkeys(("MaxPool", "MaxPool3D"), _pooling),
    "MirrorPadGrad": _whole_input,
    "FusedBatchNormGrad": _normalization_gradient,
    "FusedBatchNormGradV2": _normalization_gradient,
    "FusedBatchNormGradV3": _normalization_gradient,
    **dict.fromkeys(("Sum", "Mean", "Prod", "Max", "Min", "All", "Any"), _reduction),
}

_SCRATCH_BEFORE: Mapping[str, Callable[[KernelCall], _Scratch]] = {
    "MaxPoolGrad": _pool_gradient,
    "Pad": _padding,
    "PadV2": _padding,
    "SoftmaxCrossEntropyWithLogits": _labels,
    "SparseSoftmaxCrossEntropyWithLogits": _labels,
}

_LEAST_FILTER_RANK = 4
_HALVES = frozenset({14, 19})
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D"})

_CONVOLUTIONS: Mapping[str, Callable[[KernelCall], tuple[TensorProperties, TensorProperties]]] = {
    "Conv2D": lambda call: (call.inputs[0], call.inputs[1]),
    "Conv2DBackpropFilter": lambda call: (call.inputs[0], call.outputs[0]),
    "Conv2DBackpropInput": lambda call: (call.outputs[0], call.inputs[1]),
}
"""The images and the filters of a convolution."""

_KNOWN = frozenset(
    {
        *_SHARED,
        *PORT_BY_PORT,
        *ANY_INPUT,
        *_REUSES,
        *UNCHANGED,
        *ROWS,
        *PLAIN,
        *_SCRATCH,
        *_SCRATCH_BEFORE,
        # What Grappler makes of others, and what lists and variables are asked for.
        *("NoOp", "_FusedConv2D", "_FusedMatMul", "VariableShape"),
        *("TensorListLength", "TensorListElementShape", "TensorListStack"),
    }
)
