"""A predicted timeline as a track: who makes what, who reads it, from when to when it is there."""

from __future__ import annotations

from itertools import accumulate
from operator import le
from typing import TYPE_CHECKING, NamedTuple

from memopt.report.page.grouping import (
    HELD,
    KEPT,
    SCRATCH,
    Layers,
    find_backward,
    kind_of_name,
)
from memopt.report.page.model import Curve, Operation, Tensor, Track, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline

AXIS = "operations that touch memory, in the order in which they run"
READERS_SHOWN = 12
GIVES = frozenset({"Const", "Placeholder", "VarHandleOp", "_Arg", "VariableV2", "Variable"})
"""Ops whose results are there before the step."""


def layers_of(timelines: Sequence[MemoryTimeline]) -> Layers:
    """The layers of steps that are shown together."""
    return Layers(
        (timeline.buffer_graph.nodes[node].name, timeline.buffer_graph.size_bytes[buffer])
        for timeline in timelines
        for node in timeline.sequence
        for buffer in timeline.buffer_graph.made[node]
    )


def track_of(timeline: MemoryTimeline, title: str, layers: Layers) -> Track:
    """The track of a predicted timeline; its moments are the operations that touch memory.

    Constants, arguments and what else takes nothing and reads nothing is left out: there is nothing
    to be seen of it.
    """
    return _Drawing(timeline, layers).track(title)


class _Life(NamedTuple):
    birth: int
    end: int


class _Drawing:
    """One timeline while it becomes a track: positions of the sequence become moments."""

    def __init__(self, timeline: MemoryTimeline, layers: Layers) -> None:
        graph = timeline.buffer_graph
        self._timeline = timeline
        self._graph = graph
        self._layers = layers
        self._names = [node.name for node in graph.nodes]
        makers = graph.makers
        # Not `producers`: an order that is enforced holds forward operations after backward ones.
        read = [[makers[buffer] for buffer in of if makers[buffer] >= 0] for of in graph.read]
        self._backward = find_backward(self._names, read, timeline.sequence)
        self._places = moments_of(timeline)
        self._moment = {position: moment for moment, position in enumerate(self._places)}
        self._readers: list[list[int]] = [[] for _ in graph.size_bytes]
        self._number = {timeline.sequence[place]: at for at, place in enumerate(self._places)}
        for at, place in enumerate(self._places):
            for buffer in graph.read[timeline.sequence[place]]:
                self._readers[buffer].append(at)

    def track(self, title: str) -> Track:
        tensors = tuple(sorted(self._tensors(), key=lambda one: (one.birth, one.maker, one.name)))
        usage_bytes = usage_of(tensors, len(self._places))
        # Not the timeline's peak: that may be one of threads, which no order of operations shows.
        peak_bytes = max(usage_bytes, default=self._timeline.held_bytes)
        return Track(
            title,
            len(self._places),
            tuple(self._operations()),
            tensors,
            peak_bytes,
            usage_bytes.index(peak_bytes) if usage_bytes else 0,
        )

    def _operations(self) -> Iterator[Operation]:
        for at, place in enumerate(self._places):
            number = self._timeline.sequence[place]
            node = self._graph.nodes[number]
            kind = kind_of_name(node.name, is_backward=self._backward[number])
            yield Operation(shown(node.name), node.op, shown(node.device), kind, at, at + 1)

    def _tensors(self) -> Iterator[Tensor]:
        graph, lives = self._graph, self._lives()
        held = held_names(graph)
        for buffer, size_bytes in enumerate(graph.size_bytes):
            if not size_bytes or buffer not in lives:
                continue
            maker = graph.makers[buffer]
            name = held.get(buffer, "") if maker < 0 else self._names[maker]
            yield self._tensor(buffer, name, lives[buffer])
        for at, place in enumerate(self._places):
            number = self._timeline.sequence[place]
            if graph.scratch_bytes[number]:
                name = self._names[number]
                yield Tensor(
                    f"scratch of {shown(name)}",
                    at,
                    graph.scratch_bytes[number],
                    at,
                    at + 1,
                    SCRATCH,
                    self._layers.of(name),
                )

    def _tensor(self, buffer: int, name: str, life: _Life) -> Tensor:
        graph = self._graph
        maker, readers = graph.makers[buffer], self._readers[buffer]
        if maker < 0:
            kind, at = HELD, -1
        else:
            is_backward = self._backward[maker]
            kind = KEPT if graph.lasting[buffer] else kind_of_name(name, is_backward=is_backward)
            at = self._number[maker]
            siblings = graph.made[maker]
            name = f"{name}:{siblings.index(buffer)}" if len(siblings) > 1 else name
        return Tensor(
            shown(name) or "held before the step",
            at,
            self._timeline.memory_bytes(buffer),
            life.birth,
            life.end,
            kind,
            self._layers.of(name),
            tuple(readers[:READERS_SHOWN]),
            len(readers),
        )

    def _lives(self) -> dict[int, _Life]:
        """By buffer when it is in use; memory that another takes over is the other's from then."""
        timeline, graph = self._timeline, self._graph
        last = len(self._places)
        taken = {source: buffer for buffer, source in timeline.reused.items()}
        lives: dict[int, _Life] = {}
        for buffer, maker in enumerate(graph.makers):
            if maker >= 0 and maker not in self._number:
                continue
            birth = 0 if maker < 0 else self._number[maker]
            position = timeline.last_position[buffer]
            # What nobody reads that was there before stays.
            stays = graph.lasting[buffer] or position < 0
            end = last if stays else self._moment[position] + 1
            if buffer in taken:
                end = self._number[graph.makers[taken[buffer]]]
            lives[buffer] = _Life(birth, end)
        return lives


def usage_of(tensors: Iterable[Tensor], moments: int) -> list[int]:
    """By moment the bytes in use, added up from tensors."""
    changes = [0] * (moments + 1)
    for tensor in tensors:
        changes[tensor.birth] += tensor.size_bytes
        changes[tensor.end] -= tensor.size_bytes
    return list(accumulate(changes))[:moments]


def threads_curve(timeline: MemoryTimeline, track: Track, number: int) -> Curve | None:
    """What may be in use where operations run side by side; `None` if that is what is drawn.

    Args:
        timeline: The step, with the most that any execution of it may need.
        track: The same, drawn in its order.
        number: The number of that track.
    """
    places = moments_of(timeline)
    usage_bytes = tuple(timeline.usage_bytes[place] for place in places)
    if all(map(le, usage_bytes, usage_of(track.tensors, track.moments))):
        return None
    title = f"{track.title}, whichever threads come first"
    return Curve(title, tuple(map(float, range(len(places)))), usage_bytes, number)


def moments_of(timeline: MemoryTimeline) -> list[int]:
    """The positions of the sequence at which something is made, read or in use for a while."""
    graph = timeline.buffer_graph
    return [
        position
        for position, node in enumerate(timeline.sequence)
        if graph.made[node] or graph.read[node] or graph.scratch_bytes[node]
    ]


def held_names(graph: BufferGraph) -> dict[int, str]:
    """What buffers are called that are there before the step, as far as that can be told.

    They have no maker; but who reads them does so by way of a variable, constant or argument: where
    a node has one of these, or one for each such buffer, it is clear which is which.
    """
    found: dict[int, str] = {}
    makers = graph.makers
    for number, node in enumerate(graph.nodes):
        held = [buffer for buffer in graph.read[number] if makers[buffer] < 0]
        if not held or all(buffer in found for buffer in held):
            continue
        given = dict.fromkeys(one.node.name for one in node.inputs if one.node.op in GIVES)
        if len(given) == 1:
            found.update((buffer, next(iter(given))) for buffer in held if buffer not in found)
        elif len(given) == len(held):
            for buffer, name in zip(held, given, strict=True):
                found.setdefault(buffer, name)
    return found
