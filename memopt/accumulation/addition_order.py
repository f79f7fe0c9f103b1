"""The order in which TensorFlow's AddN adds: which of its inputs' buffers it takes over.

The kernel (tensorflow/core/kernels/aggregate_ops.h) adds into the buffer of the first input that
nobody else holds, and that input and the first one change places in the sum. Who holds a buffer can
depend on what has run already, so some AddNs have no fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.paths import find_earlier, leads_to
from memopt.graph.running import Running, roots_of
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.graph.graph import Graph, Node, Tensor

_ANY_ORDER = 2
"""To exchange two inputs changes no sum."""

_CONTRACTED = 2

GROUP = 8
"""The kernel adds this many inputs at a time."""

_INTEGERS = frozenset({3, 4, 5, 6, 9, 17, 22, 23})
"""Types whose addition gives the same bits in any order."""

_HELD = frozenset({"Const", "HostConst", "Variable", "VariableV2", "VarHandleOp"})
"""Ops that keep the buffers of their outputs."""

_HANDING_ON = frozenset(
    "Bitcast CheckNumerics EnsureShape ExpandDims Identity PreventGradient Reshape Squeeze "
    "StopGradient".split()
)
"""Ops whose output is their first input's buffer."""

_OWN_BUFFER = frozenset(
    "Abs Add AddN AddV2 AvgPool AvgPoolGrad BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd "
    "BiasAddGrad Conv2D Conv2DBackpropFilter Conv2DBackpropInput Conv3D Conv3DBackpropFilterV2 "
    "Conv3DBackpropInputV2 Cos DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter "
    "DepthwiseConv2dNativeBackpropInput Div DivNoNan Elu EluGrad Erf Exp Expm1 LeakyRelu "
    "LeakyReluGrad Log Log1p LogSoftmax MatMul MaxPool MaxPoolGrad Maximum Minimum Mul Neg Pow "
    "RandomStandardNormal RandomUniform RealDiv Reciprocal ReciprocalGrad Relu Relu6 Relu6Grad "
    "ReluGrad Rsqrt RsqrtGrad Selu SeluGrad Sigmoid SigmoidGrad Sin Softmax Softplus SoftplusGrad "
    "Softsign SoftsignGrad Sqrt SqrtGrad Square SquaredDifference StatelessRandomNormalV2 "
    "StatelessRandomUniformV2 StatelessTruncatedNormalV2 Sub Tanh TanhGrad TruncatedNormal "
    "UnsortedSegmentSum "
    # What Grappler and oneDNN make of them, and what normalizes.
    "_FusedBatchNormEx _FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative _FusedMatMul "
    "_MklFusedBatchMatMulV2 _MklLayerNorm FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 "
    "FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 "
    # What moves and selects.
    "ClipByValue DepthToSpace Floor FloorDiv FloorMod GatherV2 LRN LRNGrad MulNoNan "
    "ResourceGather Round Select SelectV2 Sign SpaceToDepth Xdivy "
    "Xlogy".split()
)
"""Ops that give their output a buffer that nobody else holds, if need be one of an input."""

_LETTING_GO = _OWN_BUFFER | frozenset(
    "ArgMax Equal Greater GreaterEqual L2Loss Less LessEqual NotEqual OnesLike Rank Shape ShapeN "
    "Size ZerosLike".split()
)
"""Ops that do not hold on to an input that somebody else reads as well."""


class AdditionOrders:
    """In what orders the sums of a graph add.

    A picture of the graph as it is now; what does not run in the step holds nothing.

    Args:
        graph: The graph.
        fetched: Names of the nodes that the caller asks for; all nodes run if there are none.
        kept: Names of further nodes; in a function's body they run for their effects.

    Attributes:
        numbering: The graph in numbers.
        running: Which of its nodes run.
    """

    def __init__(
        self, graph: Graph, fetched: Collection[str] = (), kept: Collection[str] = ()
    ) -> None:
        self.numbering = Numbering.of(graph)
        self._fetched = fetched
        self.running = Running.of(graph, roots_of(graph, fetched, kept))

    def order(self, node: Node) -> tuple[Tensor, ...] | None:
        """The inputs of a sum in an order that gives its bits, added as `addition_groups` says.

        `None` if the order depends on timing, or is not known. Integers can be added in any order,
        and AccumulateNV2 promises none.
        """
        inputs = node.inputs
        if node.op != "AddN" or node.attributes["T"].type in _INTEGERS:
            return inputs
        slot = self.taken_slot(node)
        return None if slot is None else take_slot(inputs, slot)

    def taken_slot(self, node: Node) -> int | None:
        """The input whose buffer an AddN takes over, as far as that matters; 0 also for none.

        `None` if that depends on timing, or is not known.
        """
        if node.op != "AddN":
            return None
        holders = _Holders(self.numbering, node, self._fetched, self.running)
        possible: set[int] = set()
        for slot, tensor in enumerate(node.inputs):
            free = holders.leave(tensor)
            if free is not False:
                # To change the first two places changes no sum.
                possible.add(slot if slot > 1 else 0)
            if free:
                break
        else:
            # It may be that none is free; then the sum gets a new buffer.
            possible.add(0)
        return possible.pop() if len(possible) == 1 else None


def take_slot(inputs: tuple[Tensor, ...], slot: int) -> tuple[Tensor, ...]:
    """The inputs of an AddN in the order in which it adds if it takes over one's buffer."""
    return (inputs[slot], *inputs[1:slot], inputs[0], *inputs[slot + 1 :]) if slot else inputs


def addition_groups(terms: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
    """The terms in the groups that the kernel adds: from left to right each, then their sums.

    The first group has 2 to 9 terms, every other one 8.
    """
    first = (len(terms) - 2) % GROUP + 2
    starts = range(first, len(terms), GROUP)
    return [terms[:first], *(terms[start : start + GROUP] for start in starts)]


class _Sharing(NamedTuple):
    """A buffer that several tensors may share.

    Attributes:
        root: The tensor that the buffer was made for.
        tensors: All that share it.
        readers: The nodes that read one of them, repeated for each input.
    """

    root: Tensor
    tensors: list[Tensor]
    readers: list[Node]


def _find_sharing(tensor: Tensor) -> _Sharing:
    root = tensor
    while _hands_on(root.node):
        root = root.node.inputs[0]
    tensors = [root]
    readers: list[Node] = []
    for shared in tensors:
        for reader, slot in shared.uses:
            readers.append(reader)
            if slot == 0 and _hands_on(reader):
                tensors.append(reader.output())
    return _Sharing(root, tensors, readers)


class _Holders:
    """Tells who else holds the buffers that a node reads when the node runs."""

    def __init__(
        self, numbering: Numbering, node: Node, fetched: Collection[str], running: Running
    ) -> None:
        self._numbering = numbering
        self._node = node
        self._fetched = fetched
        self._running = running

    def leave(self, tensor: Tensor) -> bool | None:
        """Whether the node can take over the buffer of a tensor; `None` if that is not certain."""
        root, tensors, readers = _find_sharing(tensor)
        if root.node.op in _HELD or any(shared.node.name in self._fetched for shared in tensors):
            return False
        if readers.count(self._node) > 1:
            return False
        others = [reader for reader in readers if reader is not self._node]
        # Nearly always the same ones: what is found out of them is found out once.
        readers_that_run = {
            tuple(filter(runs, others)) for runs in (self._running.does, self._running.may)
        }
        possible = {self._is_left_by(root, some) for some in readers_that_run}
        return possible.pop() if len(possible) == 1 else None

    def _is_left_by(self, root: Tensor, readers: Sequence[Node]) -> bool | None:
        if not self._all_done(readers):
            return self._any_waits(readers)
        is_near = root.node.device == self._node.device
        return True if _has_own_buffer(root.node) and not root.port and is_near else None

    def _all_done(self, readers: Sequence[Node]) -> bool:
        """Whether readers have run, and let go of what they read, when the node starts."""
        done = find_earlier(self._numbering, self._node, readers)
        return all(reader in done and (_lets_go(reader) or _hands_on(reader)) for reader in readers)

    def _any_waits(self, readers: Sequence[Node]) -> bool | None:
        """`False` if one of some readers runs after the node, and so holds what it will read."""
        later = any(leads_to(self._numbering, self._node, reader) for reader in readers)
        return False if later else None


def _has_own_buffer(node: Node) -> bool:
    return node.op in _OWN_BUFFER or _contracts(node)


def _lets_go(node: Node) -> bool:
    return node.op in _LETTING_GO or _contracts(node)


def _contracts(node: Node) -> bool:
    """Whether a node is an Einsum that makes a tensor: of one input it may only have another shape.

    `EinsumHelper::ContractOperands` (tensorflow/core/kernels/linalg/einsum_op_impl.h).
    """
    return node.op == "Einsum" and len(node.inputs) == _CONTRACTED


def _hands_on(node: Node) -> bool:
    return node.op in _HANDING_ON or (node.op == "AddN" and len(node.inputs) == 1)


def has_order(node: Node) -> bool:
    """Whether the order in which a node adds makes a difference."""
    is_sum = node.op in ("AddN", "AccumulateNV2") and len(node.inputs) > _ANY_ORDER
    return is_sum and node.attributes["T"].type not in _INTEGERS
