"""Where to cut what runs before a peak, so that each path is recomputed within one segment."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.rematerialization.paths.clones import Settled


class Cuts:
    """What runs before the peak of a sequence, to be cut into segments.

    As in T. Chen et al., "Training deep nets with sublinear memory cost" (2016), what crosses a cut
    is kept, and the rest is recomputed from it, a segment at a time. Here the segments hold the
    same number of bytes that live at the peak, and a cut is where the fewest bytes cross it, not
    further than a third of a segment away. Linear for each number of segments.
    """

    def __init__(self, settled: Settled) -> None:
        graph, timeline = settled.timeline.buffer_graph, settled.timeline
        peak = timeline.peak_position
        self._sequence = settled.sequence[: peak + 1]
        self._peak = peak
        self._graph = graph
        self._made_at: dict[int, int] = {}
        # By buffer: the last of its readers before the peak.
        self._read_at: dict[int, int] = {}
        held = [0] * (peak + 1)
        crossing = [0] * (peak + 2)
        for position, instruction in enumerate(self._sequence):
            for buffer in graph.made[instruction]:
                self._made_at[buffer] = self._read_at[buffer] = position
                if timeline.last_position[buffer] > peak and not graph.lasting[buffer]:
                    held[position] += graph.size_bytes[buffer]
            for buffer in graph.read[instruction]:
                self._read_at[buffer] = position
        for buffer, position in self._made_at.items():
            if not graph.lasting[buffer]:
                crossing[position] += graph.size_bytes[buffer]
                crossing[self._read_at[buffer]] -= graph.size_bytes[buffer]
        self._held = list(accumulate(held))
        self._crossing = list(accumulate(crossing))

    def crossing_buffers(self, segments: int) -> set[int]:
        """The buffers that are made in one of so many segments and read in a later one."""
        cuts = self._place(segments)
        return {
            buffer
            for buffer, made in self._made_at.items()
            if self._crosses(cuts, made, self._read_at.get(buffer, made))
        }

    def _crosses(self, cuts: list[int], made: int, read: int) -> bool:
        at = bisect_left(cuts, made)
        return at < len(cuts) and cuts[at] < read

    def _place(self, segments: int) -> list[int]:
        """The positions after which to cut, ascending."""
        total, cuts = self._held[-1] if self._held else 0, set()
        for number in range(1, segments):
            low = bisect_left(self._held, total * (number - 1 / 3) / segments)
            high = bisect_left(self._held, total * (number + 1 / 3) / segments)
            at = bisect_left(self._held, total * number / segments)
            near = range(low, min(high, self._peak) + 1)
            if near:
                cuts.add(min(near, key=lambda cut: (self._crossing[cut], abs(cut - at))))
        return sorted(cuts)
