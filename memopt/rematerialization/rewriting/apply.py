"""The copies and conversions that rematerialization planned, made in the graph."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph.copy_names import COPY_PREFIX, free_name
from memopt.graph.op_types import CONTROL_FLOW
from memopt.graph.removal import Removal
from memopt.rematerialization.storage.conversions import Conversions
from memopt.sequencing.frames import find_frames

if TYPE_CHECKING:
    from collections.abc import Container

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.rematerialized import Rematerialized

_LATER_COPY = re.compile(r"/[0-9]+$")


def original_names(name: str) -> tuple[str, ...]:
    """What a node may be called of which another is a copy: its own name if it is none."""
    original = name.removeprefix(COPY_PREFIX)
    return name, original, _LATER_COPY.sub("", original)


def find_original(name: str, known: Container[str]) -> str | None:
    """The name, among those that are known, of what a node is or of what it is a copy of."""
    return next((one for one in original_names(name) if one in known), None)


def apply_copies(rewriter: Rewriter, done: Rematerialized, context: Context) -> list[Node]:
    """Make the copies, let their readers read them, and take out what nobody needs any more.

    Likewise what stores results in other forms and restores them. What brings a result back from
    the host waits for the operation before it.

    To be called inside an edit. The properties learn what is made.

    Returns:
        The nodes in the order in which they are to run.
    """
    return _Applying(rewriter, done, context).apply()


class _Applying:
    def __init__(self, rewriter: Rewriter, done: Rematerialized, context: Context) -> None:
        self._rewriter = rewriter
        self._done = done
        self._context = context
        self._table = done.instructions
        nodes = self._table.network.buffer_graph.nodes
        self._count = len(nodes)
        self._node_of: dict[int, Node] = dict(enumerate(nodes))
        self._place = {node: number for number, node in enumerate(nodes)}
        self._removed = frozenset(done.removed)
        self._waits = self._find_waits()
        self._conversions = Conversions(rewriter, context)
        self._frames = find_frames(nodes, self._table.network.sequence)

    def apply(self) -> list[Node]:
        order: list[Node] = []
        trigger: Node | None = None
        for instruction in self._done.sequence:
            if instruction in self._table.conversions:
                order += self._convert(instruction, trigger)
                trigger = order[-1]
                continue
            if instruction >= self._count:
                self._make(instruction)
            order.append(self._node_of[instruction])
            if self._can_trigger(instruction):
                trigger = order[-1]
        for instruction in self._done.sequence:
            if instruction < self._count:
                self._rewire(instruction)
        self._remove()
        return order

    def _convert(self, instruction: int, trigger: Node | None) -> list[Node]:
        """Make what stores or restores a result."""
        conversion = self._table.conversions[instruction]
        (source,) = self._table.inputs[instruction]
        method, source_node = conversion.form.method, self._node_of[source]
        if conversion.restores:
            original = self._node_of[self._table.origin[instruction]]
            made = self._conversions.restore(method, original, source_node, trigger)
        else:
            made = self._conversions.store(method, source_node)
        self._node_of[instruction] = made[-1]
        return made

    def _can_trigger(self, instruction: int) -> bool:
        """Whether what waits for an instruction runs whenever that should run."""
        origin = self._table.origin[instruction]
        if self._frames[origin] or self._node_of[origin].op in CONTROL_FLOW:
            return False
        return not self._table.is_view(instruction)

    def _make(self, copy: int) -> None:
        original = self._node_of[self._table.origin[copy]]
        self._node_of[copy] = self._rewriter.add_node(
            self._free_name(original.name),
            original.op,
            inputs=self._inputs(copy),
            control_inputs=self._controls(original),
            device=original.device,
            attributes=original.attributes,
        )
        self._context.properties.copy(self._node_of[copy].name, original.name)

    def _free_name(self, name: str) -> str:
        """`Recomputed/<name>`, and from the second copy on with a number."""
        return free_name(COPY_PREFIX + name, self._rewriter.graph)

    def _inputs(self, instruction: int) -> list[Tensor]:
        """The tensors of an instruction, from the copies where it reads copies."""
        table = self._table
        source = {table.origin[producer]: producer for producer in table.inputs[instruction]}
        inputs = self._node_of[table.origin[instruction]].inputs
        places = (self._place[tensor.node] for tensor in inputs)
        # What a loop's turn before made is not among the sources, and has no copies.
        return [
            self._node_of[source.get(place, place)].output(tensor.port)
            for place, tensor in zip(places, inputs, strict=True)
        ]

    def _controls(self, node: Node) -> list[Node]:
        """What a node, or a copy of it, waits for: what it did, if that still runs."""
        place, removed = self._place, self._removed
        return [before for before in node.control_inputs if place.get(before) not in removed]

    def _rewire(self, node: int) -> None:
        """Let a node of the graph read copies, and wait for those that it follows."""
        rewriter, target = self._rewriter, self._node_of[node]
        inputs = self._inputs(node)
        if tuple(inputs) != target.inputs:
            rewriter.set_inputs(target, inputs)
        controls = self._controls(target)
        controls += [self._node_of[copy] for copy in self._waits.get(node, ())]
        if tuple(dict.fromkeys(controls)) != target.control_inputs:
            rewriter.set_control_inputs(target, controls)

    def _find_waits(self) -> dict[int, list[int]]:
        """By node: the copies that run and that it has to come after without reading them."""
        table = self._table
        waits: dict[int, list[int]] = {}
        for copy in self._done.copies:
            if not table.is_view(copy):
                for follower in table.followers(copy):
                    waits.setdefault(follower, []).append(copy)
        return waits

    def _remove(self) -> None:
        removal = Removal(
            self._rewriter.graph,
            fetched=self._context.fetched,
            named=self._context.named,
        )
        for instruction in reversed(list(self._table.line)):
            if instruction in self._removed and instruction < self._count:
                node = self._node_of[instruction]
                if removal.can_remove(node):
                    self._rewriter.remove_node(node)
