"""What clones make and read: it follows from their nodes' buffers and from whom they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import BufferGraph
from memopt.rematerialization.instruction_list import Line
from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.network import find_views

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.paths.clones import Clones


class Facts:
    """What is the same for all clones of a node.

    Attributes:
        network: What is cloned.
        runs: By node: whether it runs at all.
        maker: By buffer: who makes it, -1 for nobody.
        handed_on: By node: the buffers of others that its readers get through it.
        pinned: By buffer: see `Views`.
        is_view: By node: whether it only hands on what others made.
        waits: By node: the nodes that it waits for if they run themselves, without reading them.
        after: By node: the nodes that it must come after, and after all of their clones.
        cloneable: By node: whether it may be cloned at all.
        size_bytes: By node: what it makes, and for a view what it hands on.
    """

    def __init__(self, network: Network) -> None:
        graph = network.buffer_graph
        views = find_views(network)
        self.network = network
        self._routes: dict[int, list[tuple[int, list[int]]]] = {}
        self.runs = [False] * len(graph.nodes)
        for node in network.sequence:
            self.runs[node] = True
        self.maker = list(graph.makers)
        self.handed_on = views.handed_on
        self.pinned = views.pinned
        self.is_view = [not made for made in graph.made]
        self.waits: list[list[int]] = [[] for _ in graph.nodes]
        self.after: list[list[int]] = [[] for _ in graph.nodes]
        for node in network.sequence:
            data = frozenset(network.inputs[node])
            self.waits[node] = [p for p in graph.producers[node] if p not in data]
            for follower in network.followers[node]:
                self.after[follower].append(node)
        self.size_bytes = [0] * len(graph.nodes)
        self.cloneable = [False] * len(graph.nodes)
        for node in network.sequence:
            buffers = self.handed_on[node] if self.is_view[node] else graph.made[node]
            self.size_bytes[node] = sum(graph.size_bytes[buffer] for buffer in buffers)
            free = not any(graph.lasting[b] or self.pinned[b] for b in buffers)
            self.cloneable[node] = network.recomputable[node] and bool(buffers) and free

    def routes(self, node: int) -> list[tuple[int, list[int]]]:
        """The buffers that a node reads, each with those it gets it from; none if no edge shows."""
        found = self._routes.get(node)
        if found is None:
            found = [
                (buffer, [s for s in self.network.inputs[node] if self._gives(s, buffer)])
                for buffer in self.network.buffer_graph.read[node]
            ]
            self._routes[node] = found
        return found

    def _gives(self, source: int, buffer: int) -> bool:
        if self.maker[buffer] == source:
            return True
        return self.is_view[source] and buffer in self.handed_on[source]


class CloneBuffers:
    """The buffers of clones: each makes its own, and reads those of the clones it reads from.

    Linear in the instructions of the sequence and what they read.

    Attributes:
        clones: The clones.
        sequence: The instructions that run.
        made: By instruction: the buffers that it makes.
        read: By instruction: the buffers that it reads.
        handed_on: By instruction: the buffers of others that its readers get through it.
        size_bytes: By buffer.
        lasting: By buffer.
        reusable: By buffer: see `BufferGraph`.
        like: By buffer: the buffer of the network that it stands for.
    """

    def __init__(self, clones: Clones, sequence: Sequence[int]) -> None:
        facts = clones.facts
        graph = facts.network.buffer_graph
        extra = len(clones.origin) - len(graph.nodes)
        self.clones = clones
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
        origin, graph = self.clones.origin, self.clones.facts.network.buffer_graph
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
        facts, origin, all_shown = self.clones.facts, self.clones.origin, self._shown
        is_copy = instruction >= len(facts.runs)
        changed = {
            origin[source]: all_shown[source]
            for source in self.clones.inputs[instruction]
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
            return {
                buffer: [buffer] for buffer in self.clones.facts.network.buffer_graph.read[node]
            }
        gets: dict[int, list[int]] = {}
        for buffer, sources in self.clones.facts.routes(node):
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
        clones, facts = buffers.clones, buffers.clones.facts
        super().__init__(facts.network)
        self.origin = list(clones.origin)
        self.line = Line([*removed, *buffers.sequence], len(self.origin))
        for number in range(len(facts.runs), len(self.origin)):
            self.copies_of.setdefault(self.origin[number], []).append(number)
        self.inputs = [list(inputs) for inputs in clones.inputs]
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
