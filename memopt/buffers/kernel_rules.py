"""What kernels do with memory: which outputs share or take over buffers, and scratch memory.

The tables of `kernel_table` are those of TensorFlow's own kernels on the host, found by running
every op alone (`benchmarks/kernel_memory.py`); `host_scratch` has the scratch memory of these.
Where kernels on a GPU do something else, `gpu_rules` says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers import gpu_rules
from memopt.buffers.device_types import GPU, device_type_of
from memopt.buffers.einsum_rules import product_of
from memopt.buffers.host_scratch import (
    SCRATCH,
    SCRATCH_BEFORE,
    computes_with_halves,
    pools_by_onednn,
)
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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.buffers.kernel_call import KernelCall
    from memopt.shapes.tensor_properties import TensorProperties

_FORWARDS = {
    **{op: {0: 0} for op in ("Enter", "Exit", "NextIteration", "Merge", "LoopCond")},
    **{op: {0: 0, 1: 0} for op in ("Switch", "RefSwitch")},
}
"""What control flow consists of hands tensors on; it does not run alone."""

_SHARED = {**ALIASES, **_FORWARDS, "DestroyTemporaryVariable": {0: 0}}

_REUSES: Mapping[str, Mapping[int, tuple[int, ...]]] = {
    **REUSES,
    "_UnaryOpsComposition": {0: (0,)},
    "Cholesky": {0: (0,)},
    # It writes into whatever it is given; a copy of it writes the same there.
    "InplaceUpdate": {0: (0,)},
}
"""With ops that nobody can call alone, or not with any values."""

ALIGNMENT_BYTES = 64
"""Kernels may read a tensor from any multiple of it (`EIGEN_MAX_ALIGN_BYTES`)."""

_NORMALIZATION_GRADIENTS = "FusedBatchNormGrad"


def memory_by_rule(call: KernelCall) -> KernelMemory:
    """What a kernel does with memory, as far as rules know it."""
    asked_after, noted_bytes = scratch_bytes(call), 0
    if notes_workspace(call):
        asked_after, noted_bytes = 0, asked_after
    slot = _POOLED_SLOT if reads_workspace(call) else -1
    return KernelMemory(placements(call), asked_after, scratch_buffers(call), noted_bytes, slot)


def is_known(call: KernelCall) -> bool:
    """Whether a rule knows what a kernel does with memory; of others the outputs are all there is.

    Nobody knows without having run them what XLA compiles, convolutions of groups, those of one
    channel with tall filters where oneDNN computes them, and products of 16-bit numbers where it
    computes with these.
    """
    op = call.node.op
    if op in gpu_rules.WITH_WORKSPACE and is_on_gpu(call):
        return False
    if op in CONVOLUTIONS and (_has_groups(call) or _lays_out_anew(call)):
        return False
    if op in _PRODUCTS and not is_on_gpu(call) and computes_with_halves(call):
        return False
    return product_of(call) is not None if op == "Einsum" else op in _KNOWN


def _has_groups(call: KernelCall) -> bool:
    """Whether each filter reads only some of the channels."""
    images, filters = CONVOLUTIONS[call.node.op](call)
    if not images.shape or not filters.shape or len(filters.shape) < _LEAST_FILTER_RANK:
        return False
    channels = images.shape[1 if call.has_channels_first else -1]
    return bool(channels != filters.shape[-2])


def _lays_out_anew(call: KernelCall) -> bool:
    """Whether oneDNN may copy images of one channel once for each row of tall filters.

    With filters of 41 rows it took 57 times what the convolution makes, and below 9 rows, or for
    one image alone, little.
    """
    images, filters = CONVOLUTIONS[call.node.op](call)
    if not call.runtime.onednn or is_on_gpu(call) or not images.shape or not filters.shape:
        return False
    is_tall = filters.shape[0] > _LITTLE_ROWS or filters.shape[0] < 0
    return is_tall and filters.shape[-2] == 1 and images.shape[0] != 1


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
    is_other = op in gpu_rules.NO_REUSES and (is_on_gpu(call) or reads_workspace(call))
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
        return whole == inner and rows > 0 and source.size_bytes // rows % ALIGNMENT_BYTES == 0
    kept = tuple(part.shape[len(part.shape) - len(inner) :]) if inner else ()
    if kept != inner or rows <= 0 or len(part.shape) < len(inner):
        return False
    row_bytes = source.size_bytes // rows
    if inner:
        return row_bytes % ALIGNMENT_BYTES == 0
    begin, end = call.constants(1), call.constants(2)
    if not begin or not end:
        return False
    return begin[0] * row_bytes % ALIGNMENT_BYTES == end[0] * row_bytes % ALIGNMENT_BYTES == 0


def scratch_bytes(call: KernelCall) -> int:
    """What the kernel has only while it runs and asks for after its outputs; 0 if not known."""
    rules = gpu_rules.SCRATCH if is_on_gpu(call) else SCRATCH
    formula = rules.get(call.node.op)
    return formula(call) if formula is not None and _is_known(call) else 0


def scratch_buffers(call: KernelCall) -> list[tuple[int, tuple[int, ...]]]:
    """What it has only while it runs and asks for before: bytes, and the slots it may take over."""
    formula = SCRATCH_BEFORE.get(call.node.op)
    if formula is None or not _is_known(call) or is_on_gpu(call) or reads_workspace(call):
        return []
    return [(size_bytes, slots) for size_bytes, slots in formula(call) if size_bytes]


def reads_workspace(call: KernelCall) -> bool:
    """Whether a gradient of pooling is oneDNN's, which reads what its pooling has noted.

    It is another kernel than the op's own, and makes its result in memory of its own.
    """
    node = call.node
    if node.op not in _POOLING_OF or not pools_by_onednn(call):
        return False
    return node.inputs[_POOLED_SLOT].node.op == _POOLING_OF[node.op]


def notes_workspace(call: KernelCall) -> bool:
    """Whether pooling is oneDNN's and its gradient reads what it notes, so that this is held.

    The edge that says so is added after all rewriting
    (`AddWorkSpaceEdgeIfNeeded` in tensorflow/core/common_runtime/mkl_layout_pass.cc).
    """
    if call.node.op not in _POOLING_OF.values() or not pools_by_onednn(call):
        return False
    readers = call.node.output().uses
    return any(slot == _POOLED_SLOT and reader.op in _POOLING_OF for reader, slot in readers)


def is_on_gpu(call: KernelCall) -> bool:
    """Whether it runs on a GPU."""
    return device_type_of(call.node) == GPU


def _is_known(call: KernelCall) -> bool:
    if call.node.op.startswith(_NORMALIZATION_GRADIENTS):
        # Of what is reserved for later nobody infers anything.
        return call.outputs[1].is_known
    return all(tensor.is_known for tensor in (*call.inputs, *call.outputs))


_POOLING_OF = {"MaxPoolGrad": "MaxPool", "MaxPool3DGrad": "MaxPool3D"}
_POOLED_SLOT = 1
"""The input of a gradient of pooling that is what was pooled."""
_LEAST_FILTER_RANK = 4
_LITTLE_ROWS = 8
_PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Conv2D"})

CONVOLUTIONS: Mapping[str, Callable[[KernelCall], tuple[TensorProperties, TensorProperties]]] = {
    "Conv2D": lambda call: (call.inputs[0], call.inputs[1]),
    "Conv2DBackpropFilter": lambda call: (call.inputs[0], call.outputs[0]),
    "Conv2DBackpropInput": lambda call: (call.outputs[0], call.inputs[1]),
    "_FusedConv2D": lambda call: (call.inputs[0], call.inputs[1]),
}
"""The images and the filters of a convolution."""

_OF_FURTHER_LAYERS = (
    *("BatchToSpaceND", "SpaceToBatchND", "IsNan", "ResizeBilinearGrad", "MaxPool3DGrad", "Conv3D"),
    *("Conv3DBackpropFilterV2", "Conv3DBackpropInputV2", "_MklSwish", "TemporaryVariable"),
)
"""Of these the outputs are all, or a rule of their op tells the rest: layers that no model has on
which the table's experiments are made, and what oneDNN's kernels make of others."""

_KNOWN = frozenset(
    {
        *_SHARED,
        *PORT_BY_PORT,
        *ANY_INPUT,
        *_REUSES,
        *UNCHANGED,
        *ROWS,
        *PLAIN,
        *SCRATCH,
        *SCRATCH_BEFORE,
        *_OF_FURTHER_LAYERS,
        # What Grappler makes of others, and what lists and variables are asked for.
        *("NoOp", "_FusedConv2D", "_FusedMatMul", "VariableShape"),
        *("TensorListLength", "TensorListElementShape", "TensorListStack"),
    }
)
