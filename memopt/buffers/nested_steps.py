"""Loops, branches and calls: what runs inside a node, one operation after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.buffers.pool import Pool
    from memopt.graph.traversal import Numbering

    Run = Callable[[Sequence[int], Sequence[int | None]], "Turn"]


class Turn(NamedTuple):
    """A function's body, run once.

    Attributes:
        made: By operation that ran: the buffers that it allocates.
        read: By operation: the buffers that it reads.
        scratch_bytes: By operation: its scratch memory.
        results: The buffers of its results.
    """

    made: list[list[int]]
    read: list[list[int]]
    scratch_bytes: list[int]
    results: list[int]

    @property
    def kept(self) -> list[int]:
        """The buffers that there are after it."""
        return self.results


@dataclass
class Loop:
    """What runs inside a node: all turns of a loop, the branch that is taken, or a call.

    Attributes:
        place: The node.
        made: By operation that ran in it, over all turns, and over those inside these again: the
            buffers that it allocates.
        read: By operation: the buffers that it reads.
        scratch_bytes: By operation: its scratch memory.
        results: What it gives.
        values: What variables have afterwards and did not before.
        turns: The positions among the operations at which turns begin, after their tests.
    """

    place: int
    made: list[list[int]] = field(default_factory=list)
    read: list[list[int]] = field(default_factory=list)
    scratch_bytes: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    @property
    def kept(self) -> list[int]:
        """The buffers that there are after it."""
        return [*self.results, *self.values]

    def run(self, turn: Turn | Loop) -> None:
        """Append a turn, the test before one, or a loop inside it."""
        self.made += turn.made
        self.read += turn.read
        self.scratch_bytes += turn.scratch_bytes

    def overlap(self, more_bytes: int) -> None:
        """Let another turn have so much in use while one runs that is not the last one."""
        for position in range(self.turns[0], self.turns[-1]):
            self.scratch_bytes[position] += more_bytes

    def add(
        self, made: Iterable[int] = (), read: Iterable[int] = (), scratch_bytes: int = 0
    ) -> None:
        """Append one operation."""
        self.made.append(list(made))
        self.read.append(list(read))
        self.scratch_bytes.append(scratch_bytes)


def settle_loops(tensors: PlacedTensors, loops: Collection[Loop]) -> None:
    """Loops become nodes like others."""
    if not loops:
        return
    readers = _Readers(tensors, [loop.place for loop in loops])
    for loop in loops:
        made, scratch_bytes = _settle(loop, tensors.pool, partial(readers.may_follow, loop.place))
        tensors.made[loop.place] = made
        tensors.scratch_bytes[loop.place] = scratch_bytes


class _Readers:
    """Who reads what, and which nodes certainly run before some of them.

    Args:
        tensors: The buffers of a graph.
        places: The nodes of interest.
    """

    def __init__(self, tensors: PlacedTensors, places: Sequence[int]) -> None:
        self._of_buffer: dict[int, list[int]] = {}
        for place, buffers in enumerate(tensors.read):
            for buffer in buffers:
                self._of_buffer.setdefault(buffer, []).append(place)
        self._bits = {place: 1 << number for number, place in enumerate(places)}
        self._leads_to = self._find_ancestors(tensors.numbering)

    def may_follow(self, place: int, buffer: int) -> bool:
        """Whether a node other than one of interest may read a buffer after it."""
        bit = self._bits[place]
        readers = self._of_buffer.get(buffer, ())
        return any(reader != place and not self._leads_to[reader] & bit for reader in readers)

    def _find_ancestors(self, numbering: Numbering) -> list[int]:
        """By node: the nodes of interest that it leads to, as bits."""
        leads_to = [0] * len(numbering.nodes)
        for place in reversed(numbering.order):
            bits = leads_to[place] | self._bits.get(place, 0)
            if not bits:
                continue
            for producer in numbering.producers[place]:
                leads_to[producer] |= bits
        return leads_to


def _settle(loop: Loop, pool: Pool, read_elsewhere: Callable[[int], bool]) -> tuple[list[int], int]:
    """What the loop as one node makes, and its scratch memory in bytes.

    What it makes on the way and does not give is of no size from now on. The scratch memory is what
    brings the node to the peak of the loop; it is negative where the loop frees what it was given
    before it has made all that it gives.

    Args:
        loop: The loop.
        pool: All buffers.
        read_elsewhere: Whether a node that may run after the loop reads a buffer that it is given.
    """
    run = _simulated(loop, pool, read_elsewhere)
    rise = run.timeline.step_peak_bytes
    inside = set(chain.from_iterable(loop.made))
    kept = [buffer for buffer in pool.with_contents(loop.kept) if buffer in inside]
    for buffer in inside.difference(kept):
        pool.size_bytes[buffer] = 0
    updated = set(loop.values)
    for buffer in kept:
        # It may keep the memory of which it is a piece.
        pool.size_bytes[buffer] = run.memory_bytes(buffer, pool.size_bytes[buffer])
        if buffer not in updated or run.source(buffer) in inside:
            # What it took over counts as freed in the loop, and itself as made there.
            pool.reusable[buffer] = [each for each in pool.reusable[buffer] if each in inside]

    def is_there(buffer: int) -> bool:
        """Whether its memory is that of a variable's value before the loop."""
        sources = (source for source in pool.reusable[buffer] if source not in inside)
        return any(not (pool.lasting[s] or read_elsewhere(s)) for s in sources)

    new = (buffer for buffer in kept if buffer not in updated or not is_there(buffer))
    return kept, rise - sum(pool.size_bytes[buffer] for buffer in new)


def rise_bytes(inside: Turn | Loop, pool: Pool, is_held: Callable[[int], bool]) -> int:
    """The most that operations inside a node have in use on top of what there is before them.

    Linear in what they make and read.

    Args:
        inside: The operations.
        pool: All buffers.
        is_held: Whether a buffer that they are given stays when they have read it.
    """
    return _simulated(inside, pool, is_held).timeline.step_peak_bytes


def passing_bytes(turn: Turn, pool: Pool) -> int:
    """The most that a turn has in use of what it makes and does not give."""
    made = {buffer for buffers in turn.made for buffer in buffers}
    given_bytes = sum(pool.size_bytes[b] for b in pool.with_contents(turn.results) if b in made)
    return max(0, rise_bytes(turn, pool, lambda _: True) - given_bytes)


@dataclass(frozen=True)
class _Run:
    """What operations inside a node have in use.

    Attributes:
        timeline: From the first operation to the last.
        number: The numbers that buffers have in it.
    """

    timeline: MemoryTimeline
    number: dict[int, int]

    def memory_bytes(self, buffer: int, size_bytes: int) -> int:
        """The size of the memory in which a buffer of a size lies."""
        return self.timeline.larger_bytes.get(self.number[buffer], size_bytes)

    def source(self, buffer: int) -> int | None:
        """The buffer whose memory a buffer took over, if it did."""
        source = self.timeline.reused.get(self.number[buffer])
        return None if source is None else self.buffers[source]

    @cached_property
    def buffers(self) -> list[int]:
        """By number in the timeline: the buffer."""
        return list(self.number)


def _simulated(inside: Turn | Loop, pool: Pool, is_held: Callable[[int], bool]) -> _Run:
    number: dict[int, int] = {}
    for buffers in chain(inside.made, inside.read):
        for buffer in buffers:
            number.setdefault(buffer, len(number))
    lasting = [pool.lasting[buffer] or is_held(buffer) for buffer in number]
    for buffer in chain.from_iterable(inside.made):
        lasting[number[buffer]] = pool.lasting[buffer]
    for buffer in pool.with_contents(inside.kept):
        if buffer in number:
            lasting[number[buffer]] = True
    numbered = BufferGraph(
        nodes=(),
        producers=[],
        made=_numbered(inside.made, number),
        read=_numbered(inside.read, number),
        size_bytes=[pool.size_bytes[buffer] for buffer in number],
        scratch_bytes=inside.scratch_bytes,
        lasting=lasting,
        reusable=_numbered((pool.reusable[buffer] for buffer in number), number),
    )
    return _Run(simulate(numbered, range(len(inside.made))), number)


def _numbered(lists: Iterable[Sequence[int]], number: dict[int, int]) -> list[list[int]]:
    return [[number[buffer] for buffer in buffers if buffer in number] for buffers in lists]
