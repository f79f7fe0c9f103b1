"""What copies in a compiled step wait for: the last result before them that is read after them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.copy_names import is_copy
from memopt.graph.xla_ops import Fusion, fusion_of
from memopt.rematerialization.rewriting.data_triggers import READS, can_wait, least_bytes
from memopt.rematerialization.rewriting.same_kernels import is_divided_by_readers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.rewriting.data_triggers import Triggers

_LEAST_BYTES = 1024
"""What is smaller is no trigger: a compiler may have it long before."""
_FARTHEST = 400
"""How many nodes before the copies a trigger is looked for."""


class _Version(NamedTuple):
    """What takes a tensor's place for those that run at a position or behind it."""

    position: int
    tensor: Tensor


def hold_copies(
    rewriter: Rewriter, context: Context, order: Sequence[Node], triggers: Triggers
) -> int:
    """Let each run of copies wait for what is made just before it, so that none is merged or early.

    A copy that reads what differs from what its original reads is one of its own. So of each run
    those wait that read nothing but what is there already, for one of their operands; whoever reads
    that operand later reads what waited, and the operand itself can go.

    Args:
        rewriter: With an edit open.
        context: The sizes of tensors, and which results are stored, if that matters.
        order: The nodes in the order that was planned, copies among them.
        triggers: How tensors wait.

    Returns:
        How many runs of copies wait.
    """
    return _Holding(rewriter, context, order, triggers).hold()


def _kernel_depths(order: Sequence[Node]) -> dict[Node, int]:
    """How many kernels run one after the other before a node is there, at the most."""
    depths: dict[Node, int] = {}
    for node in order:
        depth = max((depths.get(tensor.node, 0) for tensor in node.inputs), default=0)
        is_kernel = fusion_of(node) in (Fusion.KERNEL, Fusion.REDUCTION)
        depths[node] = depth + (is_kernel and bool(node.inputs))
    return depths


class _Holding:
    def __init__(
        self, rewriter: Rewriter, context: Context, order: Sequence[Node], triggers: Triggers
    ) -> None:
        self._rewriter = rewriter
        self._properties = context.properties
        self._stored = context.stored
        self._order = order
        self._triggers = triggers
        self._position = {node: position for position, node in enumerate(order)}
        self._depths = _kernel_depths(order)
        self._versions: dict[Tensor, list[_Version]] = {}
        self._own: set[Node] = set()

    def hold(self) -> int:
        count, position = 0, 0
        for are_copies, run in groupby(self._order, key=lambda node: is_copy(node.name)):
            nodes = list(run)
            if are_copies:
                count += self._hold_run(nodes, position)
            position += len(nodes)
        for node in self._order:
            self._read_versions(node)
        return count

    def _hold_run(self, copies: Sequence[Node], start: int) -> bool:
        """Let copies that stand together wait, if something can be waited for."""
        behind = start + len(copies)
        trigger = self._find_trigger(start, behind)
        if trigger is None:
            return False
        waiting: dict[Tensor, None] = {}
        for copy in copies:
            if any(tensor.node in self._own or tensor in waiting for tensor in copy.inputs):
                self._own.add(copy)
                continue
            operand = self._find_operand(copy, trigger)
            if operand is not None:
                waiting[operand] = None
                self._own.add(copy)
        if not waiting:
            return False
        current = {self._current(tensor): tensor for tensor in waiting}
        held = self._triggers.hold(list(current), self._current(trigger))
        for before, after in held.items():
            original = current.get(before, trigger)
            self._versions.setdefault(original, []).append(_Version(start, after))
        return True

    def _find_trigger(self, start: int, behind: int) -> Tensor | None:
        """A tensor before a run of copies that is read behind it, made as late as there is one.

        What is planned right before may have been ready long since: a moment of an optimizer that
        waits for nothing, the update of a weight whose gradient was there some layers ago. So it is
        the one behind the most kernels; of several the last.
        """
        found: tuple[int, Tensor] | None = None
        for node in reversed(self._order[max(0, start - _FARTHEST) : start]):
            depth = self._depths[node]
            if node.op == READS or (found is not None and depth <= found[0]):
                continue
            for tensor in node.outputs:
                if self._size_bytes(tensor) < _LEAST_BYTES or not can_wait(tensor, self._rewriter):
                    continue
                uses = (self._position.get(user, -1) for user, _ in tensor.uses)
                if any(position >= behind for position in uses):
                    found = depth, tensor
                    break
        return None if found is None else found[1]

    def _find_operand(self, copy: Node, trigger: Tensor) -> Tensor | None:
        """The operand of a copy that is to wait: the smallest that is no variable, if there is one.

        Only what is there before the copies can wait for the trigger. An average that its readers
        divide cannot: copies that read nothing else are what their originals are.
        """
        fit = [
            tensor
            for tensor in dict.fromkeys(copy.inputs)
            if tensor != trigger
            and not is_copy(tensor.node.name)
            and can_wait(tensor, self._rewriter)
            and not is_divided_by_readers(tensor, self._stored)
        ]
        computed = [tensor for tensor in fit if tensor.node.op != READS]
        return min(computed or fit, key=self._size_bytes, default=None)

    def _current(self, tensor: Tensor) -> Tensor:
        return self._versions[tensor][-1].tensor if tensor in self._versions else tensor

    def _read_versions(self, node: Node) -> None:
        """Let a node read what took the place of its operands before it."""
        position = self._position[node]
        inputs = [self._version_at(tensor, position) for tensor in node.inputs]
        if tuple(inputs) != node.inputs:
            self._rewriter.set_inputs(node, inputs)

    def _version_at(self, tensor: Tensor, position: int) -> Tensor:
        known = [v.tensor for v in self._versions.get(tensor, ()) if v.position <= position]
        return known[-1] if known else tensor

    def _size_bytes(self, tensor: Tensor) -> int:
        return least_bytes(tensor, self._properties)
