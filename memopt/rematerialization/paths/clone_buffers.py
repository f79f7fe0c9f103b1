"""What clones make and read: it follows from their nodes' buffers and from whom they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import BufferGraph
from memopt.rematerialization.instruction_list import Line
from memopt.rematerialization.instructions import Instructions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.rematerialization.paths.facts import Facts


class CloneBuffers:
    """The buffers of clones: each makes its own, and reads those of the clones it reads from.

    Linear in the instructions of the sequence and what they read.

    Attributes:
        facts: What is cloned.
        origin: By instruction: the node that it is a clone of.
        inputs: By instruction: the instructions that it reads from.
        sequence: The instructions that run.
        made: By instruction: the buffers that it makes.
        read: By instruction: the buffers that it reads.
        handed_on: By instruction: the buffers of others that its readers get through it.
        size_bytes: By buffer.
        lasting: By buffer.
        reusable: By buffer: see `BufferGraph`.
        like: By buffer: the buffer of the network that it stands for.
    """

    def __init__(
        self,
        facts: Facts,
        origin: Sequence[int],
        inputs: Sequence[Sequence[int]],
        sequence: Sequence[int],
    ) -> None:
        graph = facts.network.buffer_graph
        extra = len(origin) - len(graph.nodes)
        self.facts = facts
        self.origin = origin
        self.inputs = inputs
        self.sequence = sequence
        self.made = graph.made + [[] for _ in range(extra)]
        self.read = graph.read + [[] for _ in range(extra)]
        self.handed_on = facts.handed_on + [[] for _ in range(extra)]
        self.size_bytes = list(graph.size_bytes)
        self.lasting = list(graph.lasting)
        self.reusable = list(graph.reusable)
        self.like = list(range(len(graph.size_bytes)))
        # By instruction whose readers do not get what the network says: what they get instead.
        self._shown: dict[int, dict[int, list[int]]] = {}
        for instruction in sequence:
            self._add(instruction)

    def graph(self, producers: list[list[int]] | None = None) -> BufferGraph:
        """The graph in numbers; without producers only good for simulating."""
        origin, graph = self.origin, self.facts.network.buffer_graph
        return BufferGraph(
            nodes=tuple(graph.nodes[node] for node in origin),
            producers=producers if producers is not None else [[] for _ in origin],
            made=self.made,
            read=self.read,
            size_bytes=self.size_bytes,
            scratch_bytes=[graph.scratch_bytes[node] for node in origin],
            lasting=self.lasting,
            reusable=self.reusable,
        )

    def _add(self, instruction: int) -> None:
        facts, origin, all_shown = self.facts, self.origin, self._shown
        is_copy = instruction >= len(facts.runs)
        changed = {
            origin[source]: all_shown[source]
            for source in self.inputs[instruction]
            if source in all_shown
        }
        if not is_copy and not changed:
            return
        node = origin[instruction]
        graph = facts.network.buffer_graph
        gets = self._find_reads(node, changed)
        self.read[instruction] = list(dict.fromkeys(b for found in gets.values() for b in found))
        shown: dict[int, list[int]] = {}
        if facts.handed_on[node]:
            shown = {buffer: gets[buffer] for buffer in facts.handed_on[node]}
            self.handed_on[instruction] = [b for found in shown.values() for b in found]
        if is_copy:
            self.made[instruction] = [self._add_buffer(buffer) for buffer in graph.made[node]]
            for buffer, copy in zip(graph.made[node], self.made[instruction], strict=True):
                shown[buffer] = [copy]
        for buffer, own in zip(graph.made[node], self.made[instruction], strict=True):
            sources = graph.reusable[buffer]
            self.reusable[own] = [b for source in sources for b in gets.get(source, [source])]
        if shown:
            all_shown[instruction] = shown

    def _find_reads(
        self, node: int, changed: Mapping[int, Mapping[int, list[int]]]
    ) -> dict[int, list[int]]:
        """What an instruction reads instead of each buffer of the network."""
        if not changed:
            return {buffer: [buffer] for buffer in self.facts.network.buffer_graph.read[node]}
        gets: dict[int, list[int]] = {}
        for buffer, sources in self.facts.routes(node):
            found: dict[int, None] = {}
            for source in sources:
                now = changed.get(source)
                found.update(dict.fromkeys(now.get(buffer, [buffer]) if now else [buffer]))
            gets[buffer] = list(found) or [buffer]
        return gets

    def _add_buffer(self, like: int) -> int:
        self.size_bytes.append(self.size_bytes[like])
        self.lasting.append(False)
        self.reusable.append([])
        self.like.append(like)
        return len(self.size_bytes) - 1


class ClonedInstructions(Instructions):
    """Instructions with all clones in them, as if they had been added one by one.

    Args:
        buffers: The buffers of the clones and of what runs.
        removed: The nodes that do not run any more.
    """

    def __init__(self, buffers: CloneBuffers, removed: Sequence[int]) -> None:
        facts = buffers.facts
        super().__init__(facts.network)
        self.origin = list(buffers.origin)
        self.line = Line([*removed, *buffers.sequence], len(self.origin))
        for number in range(len(facts.runs), len(self.origin)):
            self.copies_of.setdefault(self.origin[number], []).append(number)
        self.inputs = [list(inputs) for inputs in buffers.inputs]
        self.reads = [list(found) for found in buffers.read]
        self.makes = [list(found) for found in buffers.made]
        self.handed_on = [list(found) for found in buffers.handed_on]
        self.size_bytes = list(buffers.size_bytes)
        self.lasting = list(buffers.lasting)
        self.reusable = [list(found) for found in buffers.reusable]
        self.pinned = [facts.pinned[buffer] for buffer in buffers.like]
        self.maker = [-1] * len(self.size_bytes)
        for number, found in enumerate(self.makes):
            for buffer in found:
                self.maker[buffer] = number
        self.readers = [[] for _ in self.size_bytes]
        for instruction in buffers.sequence:
            for buffer in self.reads[instruction]:
                self.readers[buffer].append(instruction)
