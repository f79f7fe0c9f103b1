"""Instructions and buffers as they grow while copies and conversions are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import BufferGraph
from memopt.rematerialization.instruction_list import Line
from memopt.rematerialization.storage.forms import Conversion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.storage.forms import Form


class Instructions:
    """What runs, in a line: the nodes of a network and the copies made of them.

    An instruction is a number: a node's own, or one above all nodes for a copy, or for an operation
    that stores a result in another form or restores it. What restores a result is a copy of the
    node that made it, as far as its readers can see. Nothing here knows what has run; see
    `MemoryUsageTracker`.

    Attributes:
        network: What it started from.
        line: The order.
        origin: By instruction: the node that it is a copy of; a node's is itself. Of what converts
            a result it is the node that made the result first.
        conversions: By instruction: what it does, for those that convert a result.
        copies_of: By node: its copies, if there are any, conversions not among them.
        inputs: By instruction: the instructions whose outputs it reads, each once.
        reads: By instruction: the buffers that it reads.
        makes: By instruction: the buffers that it makes.
        handed_on: By instruction: the buffers of others that its readers get through it.
        maker: By buffer: who makes it, -1 for nobody.
        readers: By buffer: the instructions that read it.
        size_bytes: By buffer.
        lasting: By buffer.
        reusable: By buffer: see `BufferGraph`.
        pinned: By buffer: see `Views`.
    """

    def __init__(self, network: Network) -> None:
        graph = network.buffer_graph
        views = network.views
        self.network = network
        self.line = Line(network.sequence, len(graph.nodes))
        self.origin = list(range(len(graph.nodes)))
        self.conversions: dict[int, Conversion] = {}
        self.copies_of: dict[int, list[int]] = {}
        self.inputs = [list(inputs) for inputs in network.inputs]
        self.reads = [list(buffers) for buffers in graph.read]
        self.makes = [list(buffers) for buffers in graph.made]
        self.handed_on = [list(buffers) for buffers in views.handed_on]
        self.maker = list(graph.makers)
        self.size_bytes = list(graph.size_bytes)
        self.readers: list[list[int]] = []
        self.find_readers()
        self.lasting = list(graph.lasting)
        self.reusable = [list(buffers) for buffers in graph.reusable]
        self.pinned = list(views.pinned)

    def find_readers(self) -> None:
        """Find out anew who reads each buffer, from what the instructions in the line read."""
        self.readers = [[] for _ in self.size_bytes]
        for instruction in self.line:
            for buffer in self.reads[instruction]:
                self.readers[buffer].append(instruction)

    def followers(self, instruction: int) -> Iterable[int]:
        """Who must come after an instruction and reads nothing from it."""
        if instruction in self.conversions:
            return ()
        return self.network.followers[self.origin[instruction]]

    def is_view(self, instruction: int) -> bool:
        """Whether an instruction only hands on what others made."""
        return not self.makes[instruction]

    def scratch_bytes(self, instruction: int) -> int:
        """What an instruction has only while it runs."""
        if instruction in self.conversions:
            return 0
        return self.network.buffer_graph.scratch_bytes[self.origin[instruction]]

    def can_run_again(self, instruction: int) -> bool:
        """Whether running an instruction again gives the same and disturbs nobody."""
        conversion = self.conversions.get(instruction)
        if conversion is not None:
            return conversion.restores and conversion.form.stays
        return self.network.recomputable[self.origin[instruction]]

    def weight(self, instruction: int) -> int:
        """What running an instruction costs, or running it once more."""
        conversion = self.conversions.get(instruction)
        if conversion is not None:
            form = conversion.form
            return form.restore_weight if conversion.restores else form.weight - form.restore_weight
        return self.network.weights[self.origin[instruction]]

    def made_bytes(self, instruction: int) -> int:
        """The sum of the buffers that an instruction makes."""
        return sum(self.size_bytes[buffer] for buffer in self.makes[instruction])

    def add_copy(self, original: int, anchor: int) -> int:
        """A copy of an instruction, just before another one, that makes and reads nothing yet."""
        copy = self.line.insert_before(anchor)
        self._add(original)
        if original in self.conversions:
            self.conversions[copy] = self.conversions[original]
        else:
            self.copies_of.setdefault(self.origin[original], []).append(copy)
        return copy

    def add_store(self, original: int, form: Form, last_use: int) -> int:
        """What stores the only result of an instruction in a form, just after another one."""
        (source,) = self.makes[original]
        store = self.line.insert_after(last_use)
        self._add(original)
        self.conversions[store] = Conversion(form, restores=False)
        self.inputs[store].append(original)
        self.reads[store].append(source)
        self.readers[source].append(store)
        self._add_buffer(store, form.size_bytes, pinned=False)
        return store

    def add_restore(self, store: int, anchor: int) -> int:
        """What makes of a stored form the result again, just before another instruction."""
        (form,) = self.makes[store]
        restore = self.line.insert_before(anchor)
        self._add(store)
        self.conversions[restore] = Conversion(self.conversions[store].form, restores=True)
        self.inputs[restore].append(store)
        self.reads[restore].append(form)
        self.readers[form].append(restore)
        return restore

    def add_buffer(self, maker: int, like: int) -> int:
        """A new buffer of the size of another one."""
        return self._add_buffer(maker, self.size_bytes[like], pinned=self.pinned[like])

    def _add(self, original: int) -> None:
        self.origin.append(self.origin[original])
        for column in (self.inputs, self.reads, self.makes, self.handed_on):
            column.append([])

    def _add_buffer(self, maker: int, size_bytes: int, *, pinned: bool) -> int:
        buffer = len(self.size_bytes)
        self.maker.append(maker)
        self.readers.append([])
        self.size_bytes.append(size_bytes)
        self.lasting.append(False)
        self.reusable.append([])
        self.pinned.append(pinned)
        self.makes[maker].append(buffer)
        return buffer

    def buffer_graph(self, removed: Collection[int] = ()) -> BufferGraph:
        """The graph with its copies, whose nodes are those that they are copies of.

        Args:
            removed: Instructions that do not run any more: nobody waits for them.
        """
        graph, origin = self.network.buffer_graph, self.origin
        producers: list[list[int]] = []
        for instruction, node in enumerate(origin):
            if instruction in self.conversions:
                producers.append(list(self.inputs[instruction]))
                continue
            data = frozenset(self.network.inputs[node])
            controls = (p for p in graph.producers[node] if p not in data)
            producers.append(list(dict.fromkeys((*self.inputs[instruction], *controls))))
        for node, copies in self.copies_of.items():
            if self.is_view(node):
                continue
            for follower in self.network.followers[node]:
                for instruction in (follower, *self.copies_of.get(follower, ())):
                    producers[instruction] += copies
        gone = frozenset(removed)
        return BufferGraph(
            nodes=tuple(graph.nodes[node] for node in origin),
            producers=[[p for p in before if p not in gone] for before in producers],
            made=[list(buffers) for buffers in self.makes],
            read=[list(buffers) for buffers in self.reads],
            size_bytes=list(self.size_bytes),
            scratch_bytes=[self.scratch_bytes(instruction) for instruction in range(len(origin))],
            lasting=list(self.lasting),
            reusable=[list(buffers) for buffers in self.reusable],
            next_values=dict(graph.next_values),
        )
