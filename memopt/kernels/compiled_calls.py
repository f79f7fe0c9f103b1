"""Memory of calls that XLA compiles within a step, by a rule: convolutions and their gradients.

Keras has XLA compile what TensorFlow's own kernels cannot do on a CPU, such as convolutions of
groups. XLA's code for the two gradients of one lays all that it is given out anew, and the gradient
of the pictures takes the memory of the pictures' copy. Where each channel has one filter of its
own, it works with filters of all channels, or all of each part (see `DepthwiseGradients`), and has
the largest twice, or the copy of what comes in. So `memopt.profile_kernels` measures it, in one and
two dimensions, with strides and without, to within 24 bytes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from memopt.buffers.kernel_rules import is_on_gpu, memory_by_rule
from memopt.buffers.kernel_signature import is_compiled
from memopt.graph.op_types import DT_FLOAT, DT_RESOURCE
from memopt.passes.depthwise_gradients import part_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.buffers.kernel_call import KernelCall, KernelMemory, Measurements
    from memopt.graph.functiondef import Bodies

_FILTER_GRADIENTS = frozenset({"Conv2DBackpropFilter", "Conv3DBackpropFilterV2"})
_CONVOLUTIONS = _FILTER_GRADIENTS | {
    *("Conv2D", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2")
}
_HANDED_ON = frozenset({"Identity", "Reshape", "Squeeze", "ExpandDims"})
_JOINED = "ConcatV2"
_LEAST_RANK = 3
"""Of filters, and of what they are for: those in one dimension have it."""
_AROUND = _HANDED_ON | {*"Const NoOp ReadVariableOp Shape ShapeN SplitV".split(), _JOINED}
"""What stands around a convolution in the functions that Keras has compiled, and costs nothing."""


class CompiledCalls:
    """What is known of the memory of compiled calls; a `Measurements` that was not measured.

    Args:
        bodies: The functions that the graph's nodes call.
        measured: What was measured of kernels, which counts before the rule.
    """

    def __init__(self, bodies: Bodies, measured: Measurements | None) -> None:
        self._bodies = cache(bodies)
        self._measured = measured

    def find(self, call: KernelCall) -> KernelMemory | None:
        """What a kernel does with memory; `None` if neither was measured nor is a rule known."""
        found = None if self._measured is None else self._measured.find(call)
        if found is not None or not is_compiled(call.node) or is_on_gpu(call):
            return found
        body = self._bodies(call.node.attributes["f"].func.name)
        scratch_bytes = None if body is None else _scratch_bytes(call, body)
        if scratch_bytes is None:
            return None
        return memory_by_rule(call)._replace(scratch_bytes=scratch_bytes)


def _scratch_bytes(call: KernelCall, body: FunctionDef) -> int | None:
    """What a call needs besides its results while it runs.

    Returns:
        Bytes; `None` where no rule is known: for other functions, for channels that come first,
        and for other numbers than those of 32 bits.
    """
    work = [node for node in body.node_def if node.op not in _AROUND]
    if any(node.op not in _CONVOLUTIONS or _has_channels_first(node) for node in work):
        return None
    numbers = [each for each in (*call.inputs, *call.outputs) if each.dtype != DT_RESOURCE]
    if any(each.dtype != DT_FLOAT or not each.is_known for each in numbers):
        return None
    filters = list(_filter_gradients(body))
    if not filters:
        return 0
    (port, parts), *more = filters
    others = [each for number, each in enumerate(call.outputs) if number != port]
    kernel = call.outputs[port]
    shapes = [each.shape or () for each in (kernel, *others)]
    if more or len(others) != 1 or min(map(len, shapes)) < _LEAST_RANK:
        return None
    (*_, read, made), (*_, channels) = shapes
    laid_out_bytes = sum(each.least_bytes for each in call.inputs) - others[0].least_bytes
    if read == 1 and made == channels > 0:
        widths = part_sizes(made) if parts > 1 else (made,)
        full = [kernel.least_bytes // made * width * width for width in widths]
        return sum(full) + max(*full, laid_out_bytes - kernel.least_bytes)
    return max(0, laid_out_bytes) if parts == 1 else None


def _has_channels_first(node: NodeDef) -> bool:
    form: bytes = node.attr["data_format"].s
    return form.startswith(b"NC")


def _filter_gradients(body: FunctionDef) -> Iterator[tuple[int, int]]:
    """The ports of a function's results that are gradients of filters, and in how many parts."""
    nodes = {node.name: node for node in body.node_def}
    for port, result in enumerate(body.signature.output_arg):
        made = _maker(body.ret[result.name], nodes)
        makers = [made]
        if made is not None and made.op == _JOINED:
            makers = [_maker(tensor, nodes) for tensor in made.input[:-1]]
        if makers and all(one is not None and one.op in _FILTER_GRADIENTS for one in makers):
            yield port, len(makers)


def _maker(tensor: str, nodes: dict[str, NodeDef]) -> NodeDef | None:
    """What made a tensor that others may have handed on; `None` for an argument."""
    seen = set()
    while (name := tensor.partition(":")[0]) in nodes and name not in seen:
        seen.add(name)
        if nodes[name].op not in _HANDED_ON or not nodes[name].input:
            return nodes[name]
        tensor = nodes[name].input[0]
    return None
