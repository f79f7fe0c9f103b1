"""What rematerialization starts from: a sequence, who reads from whom, and what may run twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from memopt.buffers.buffer_graph import simulate
from memopt.buffers.working_sets import largest_working_set
from memopt.sequencing.frames import find_loop_entries
from memopt.sequencing.precedence import Precedence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline

T = TypeVar("T")

OUT_OF_REACH = 0
"""A limit in bytes that no plan keeps: for the lowest one."""


@dataclass(frozen=True)
class Network:
    """A graph in numbers, in the order in which it runs.

    Attributes:
        buffer_graph: The buffers.
        sequence: The nodes that run, producers first.
        inputs: By node: the nodes whose outputs it reads, each once, but for those of a loop's turn
            before.
        followers: By node: the nodes that must come after it and read nothing from it: those that
            wait for it by control, and those that change the state that it reads.
        recomputable: By node: whether running it again gives the same and disturbs nobody.
        weights: By node: what running it again costs beside other nodes; at least 1.
        intensities: By node: how much it computes for each byte that it moves, beside other nodes.
        bound: By node that must neither run again nor be stored elsewhere: the name of a sum whose
            order of addition could change (see `find_shared_inputs`).
    """

    buffer_graph: BufferGraph
    sequence: Sequence[int]
    inputs: Sequence[Sequence[int]]
    followers: Sequence[Sequence[int]]
    recomputable: Sequence[bool]
    weights: Sequence[int]
    intensities: Sequence[float] = ()
    bound: Mapping[int, str] = field(default_factory=dict)
    _derived: dict[object, tuple[tuple[object, ...], Any]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def derived(self, kind: Callable[..., T], *arguments: object) -> T:
        """`kind(self, *arguments)`, made anew where an argument is not the same as the last time.

        The same is the same object, and of whole numbers an equal one.
        """
        last = self._derived.get(kind)
        if last is None or not all(map(_is_same, last[0], arguments)):
            last = (arguments, kind(self, *arguments))
            self._derived[kind] = last
        made: T = last[1]
        return made

    @cached_property
    def precedence(self) -> Precedence:
        """What must come before what in any sequence of the same nodes, copies aside."""
        graph = self.buffer_graph
        producers = [list(before) for before in graph.producers]
        runs = frozenset(self.sequence)
        for node in self.sequence:
            for follower in self.followers[node]:
                producers[follower].append(node)
        for enter, condition in find_loop_entries(graph.nodes):
            if enter in runs:
                producers[condition].append(enter)
        return Precedence(producers, runs)

    @cached_property
    def weight(self) -> int:
        """What running everything once costs."""
        return sum(self.weights[node] for node in self.sequence)

    @cached_property
    def timeline(self) -> MemoryTimeline:
        """The memory of the sequence without any copy."""
        return simulate(self.buffer_graph, self.sequence)

    @property
    def peak_bytes(self) -> int:
        """The most that is in use without any copy, what is held included."""
        return self.timeline.peak_bytes

    @cached_property
    def floor_bytes(self) -> int:
        """What one of its nodes needs by itself, and no plan gets below."""
        return largest_working_set(self.buffer_graph, self.sequence).size_bytes

    @cached_property
    def views(self) -> Views:
        """Through which nodes buffers are read that others made."""
        return _find_views(self)


def _is_same(first: object, second: object) -> bool:
    return first is second or (isinstance(first, int) and first == second)


@dataclass(frozen=True)
class Views:
    """The nodes through which buffers are read that others made.

    Attributes:
        handed_on: By node: the buffers that it only hands on to its readers, as a Reshape does.
        pinned: By buffer: whether its maker must not be rematerialized, since a reader gets it in
            a way that a copy could not replace (XLA's indirect uses).
    """

    handed_on: Sequence[Sequence[int]]
    pinned: Sequence[bool]


def _find_views(network: Network) -> Views:
    """Find out through which nodes buffers are read; linear in edges.

    A reader gets a buffer from each input that makes it, and from each input that reads it and
    makes nothing. If there is none, it comes from a node that makes something besides, or in no
    way that the edges show; and what a view that cannot run twice hands on is pinned too.
    """
    graph = network.buffer_graph
    handed_on: list[dict[int, None]] = [{} for _ in graph.nodes]
    pinned = [False] * len(graph.size_bytes)
    maker = graph.makers
    for user in network.sequence:
        inputs = network.inputs[user]
        views = [node for node in inputs if not graph.made[node]]
        through: dict[int, list[int]] = {}
        for node in views:
            for buffer in graph.read[node]:
                through.setdefault(buffer, []).append(node)
        for buffer in graph.read[user]:
            sources = through.get(buffer, ())
            for node in sources:
                handed_on[node][buffer] = None
                if not network.recomputable[node]:
                    pinned[buffer] = True
            if not sources and maker[buffer] not in inputs:
                pinned[buffer] = True
    return Views([tuple(buffers) for buffers in handed_on], pinned)
