"""Copies in a compiled step, in kernels like those of their originals, so that they round alike.

A kernel that computes a product and a sum rounds once, two kernels round twice; of a sum of two
products the one that is rounded once is chosen by how long the ways to both are. So a copy has the
bits of its original if its kernel begins with the same results in memory, and ends with the same.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from memopt.graph.copy_names import COPY_PREFIX, free_name, is_copy
from memopt.graph.op_types import DT_FLOAT
from memopt.graph.xla_ops import ELEMENTWISE, Fusion, fusion_of
from memopt.rematerialization.rewriting.apply import find_original
from memopt.rematerialization.rewriting.data_triggers import (
    READS,
    DataTriggers,
    can_wait,
    divide,
    dtype_of,
    find_known,
    least_bytes,
)
from memopt.rematerialization.rewriting.kept_results import NORMALIZATION, find_readers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_FUSED = ELEMENTWISE | {Fusion.VIEW}
_MOVES = frozenset(
    "BatchToSpaceND BroadcastTo Concat ConcatV2 ConjugateTranspose DepthToSpace Fill MirrorPad "
    "OneHot Pack Pad PadV2 Range ReverseV2 Slice SpaceToBatchND SpaceToDepth Split SplitV "
    "StridedSlice Tile Transpose Unpack".split()
)
"""Ops that round nothing; what reads them may read what they move instead."""
_FARTHEST = 400
"""How many nodes behind a result its kernel's end is looked for."""
_LEAST_BYTES = 4096
"""What is smaller is in no kernel that matters."""
_SUMMED = frozenset({"Mul", "Square", "SquaredDifference", "Sub"})
"""Sums of these are computed in another order where something else is done to them before."""


def copy_operands(rewriter: Rewriter, context: Context, order: Sequence[Node]) -> list[Node]:
    """Let copies begin with what their originals' kernels read, by further copies.

    What is computed in the kernels of its readers is computed in those of copies, too: a run of
    copies gets copies of it. So what has to wait is in memory, and no product and sum are parted.

    Args:
        rewriter: With an edit open.
        context: The sizes of tensors, and which results are stored; if none, nothing is done.
        order: The nodes in the order that was planned, copies among them.

    Returns:
        The order, with the further copies right before those that read them.
    """
    if not context.stored:
        return list(order)
    found: list[Node] = []
    for are_copies, grouped in groupby(order, key=lambda node: is_copy(node.name)):
        copies: dict[Node, Node] = {}
        run = list(grouped)
        own = frozenset(run)
        for node in run:
            if are_copies:
                for source in _computed_for(node, own | copies.keys(), rewriter, context.stored):
                    copies[source] = _copied(rewriter, context, source, copies)
                    found.append(copies[source])
                inputs = _from_copies(node, copies)
                if inputs != list(node.inputs):
                    rewriter.set_inputs(node, inputs)
            found.append(node)
    return found


def _computed_for(
    copy: Node, own: AbstractSet[Node], rewriter: Rewriter, stored: frozenset[str]
) -> list[Node]:
    """What is computed in the kernel of a copy's original and not in its run, producers first.

    Args:
        copy: The copy.
        own: The copies of its run, and what has copies there.
        rewriter: For types.
        stored: The operations whose results are in memory.
    """

    def has_copy_to_come(tensor: Tensor) -> bool:
        node = tensor.node
        is_own = node in own or node in found
        is_fused = fusion_of(node) in _FUSED and bool(node.inputs)
        is_fused = is_fused and node.op != READS and not node.op.startswith(NORMALIZATION)
        is_stored = find_original(node.name, stored) is not None
        return not is_own and is_fused and can_wait(tensor, rewriter) and not is_stored

    found: dict[Node, None] = {}
    pending = [copy]
    opened: set[Node] = set()
    while pending:
        node = pending[-1]
        if node not in opened:
            opened.add(node)
            pending += [tensor.node for tensor in node.inputs if has_copy_to_come(tensor)]
            continue
        pending.pop()
        if node is not copy:
            found[node] = None
    return list(found)


def _copied(
    rewriter: Rewriter, context: Context, source: Node, copies: Mapping[Node, Node]
) -> Node:
    copy = rewriter.add_node(
        free_name(COPY_PREFIX + source.name, rewriter.graph),
        source.op,
        inputs=_from_copies(source, copies),
        control_inputs=source.control_inputs,
        device=source.device,
        attributes=source.attributes,
    )
    context.properties.copy(copy.name, source.name)
    return copy


def _from_copies(node: Node, copies: Mapping[Node, Node]) -> list[Tensor]:
    return [
        copies[tensor.node].output(tensor.port) if tensor.node in copies else tensor
        for tensor in node.inputs
    ]


def is_divided_by_readers(tensor: Tensor, stored: frozenset[str]) -> bool:
    """Whether a tensor is an average of which the sum is in memory: readers divide it, and add.

    Args:
        tensor: The tensor.
        stored: The operations whose results are in memory.
    """
    is_average = tensor.node.op == "Mean" and bool(stored)
    return is_average and find_original(tensor.node.name, stored) is None


def store_copies(rewriter: Rewriter, context: Context, order: Sequence[Node]) -> None:
    """Have results of copies in memory where those of their originals are.

    Divided by a one that no compiler knows a result is what it was, and costly, so that XLA does
    not compute it for each kernel that reads it. Where all of these would be one kernel, something
    in another kernel waits for it, too.

    Args:
        rewriter: With an edit open.
        context: The sizes of tensors, and which results are stored; if none, nothing is done.
        order: The nodes, copies among them.
    """
    if not context.stored:
        return
    known = find_known(rewriter, context)
    if known is not None:
        copies = [node for node in order if is_copy(node.name)]
        _Storing(rewriter, context, known).store(copies)


class _Storing:
    def __init__(self, rewriter: Rewriter, context: Context, known: Tensor) -> None:
        self._rewriter = rewriter
        self._context = context
        self._known = known
        self._triggers = DataTriggers(rewriter, context)

    def store(self, copies: Sequence[Node]) -> None:
        results = [node.output(0) for node in copies if self._has_to_be_stored(node)]
        if not results:
            return
        triggers = self._triggers
        one = triggers.unknown_one(self._known)
        for result in [self._divide(result, one) for result in results]:
            end = self._find_end(result)
            if end is not None:
                readers = [user for user, _ in end.uses]
                triggers.read_instead(readers, end, triggers.hold([end], result)[end])

    def _has_to_be_stored(self, copy: Node) -> bool:
        if copy.op in _MOVES or fusion_of(copy) not in ELEMENTWISE:
            return False
        if find_original(copy.name, self._context.stored) is None:
            return False
        result = copy.output(0)
        if least_bytes(result, self._context.properties) < _LEAST_BYTES or not result.uses:
            return False
        return dtype_of(result, self._rewriter) == DT_FLOAT

    def _divide(self, result: Tensor, one: Tensor) -> Tensor:
        triggers, readers = self._triggers, [user for user, _ in result.uses]
        stored = divide(triggers, result, one)
        triggers.read_instead(readers, result, stored)
        return stored

    def _find_end(self, result: Tensor) -> Tensor | None:
        """Where the kernel ends that reads a result; `None` if others than one do."""
        if any(fusion_of(reader) is Fusion.KERNEL for reader in find_readers(result)):
            return None
        pending = [user for user, _ in result.uses]
        seen: set[Node] = set()
        for node in pending:
            if node in seen or fusion_of(node) not in _FUSED:
                continue
            if len(seen) >= _FARTHEST:
                return None
            seen.add(node)
            if find_original(node.name, self._context.stored) and self._can_end(node):
                return node.output(0)
            pending += [user for tensor in node.outputs for user, _ in tensor.uses]
        return None

    def _can_end(self, node: Node) -> bool:
        result = node.output(0)
        if not can_wait(result, self._rewriter):
            return False
        is_summed = any(fusion_of(one) is Fusion.REDUCTION for one in find_readers(result))
        return not (is_summed and node.op in _SUMMED)
