"""Of sequences that need about as little memory, the one that keeps several threads busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import simulate
from memopt.sequencing.enforcement import find_chains, find_pairs
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.threads import Gates, run_on_threads
from memopt.sequencing.windowed_enforcement import (
    find_chains_windows,
    find_waits,
    have_windows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline

_ENOUGH = 1.03
"""Of the time that the step takes if nobody orders it; nothing quicker is looked for."""
_QUICKER = 0.99
"""Of the time of a sequence; what is not predicted to take less is not worth more memory."""


class Quick(NamedTuple):
    """A sequence, and what may be in use while operations run side by side in its windows."""

    timeline: MemoryTimeline
    limit_bytes: int


@dataclass(frozen=True)
class Quickening:
    """What is known of a step whose operations run side by side on one device.

    Attributes:
        precedence: What must come before what.
        times_ns: By node how long it runs, at least 1.
        threads: How many operations can run at once.
        settle: What becomes of a sequence before it runs.
    """

    precedence: Precedence
    times_ns: Sequence[int]
    threads: int
    settle: Callable[[Sequence[int]], list[int]]

    def quickest(self, found: Sequence[MemoryTimeline], limits_bytes: Sequence[int]) -> Quick:
        """The sequence that takes least time in its windows, of those given and what they become.

        Each is tried as it is, and with what threads would run sooner pulled forward. Times are
        estimates, so what is hardly quicker is not taken.

        Args:
            found: Sequences with their memory.
            limits_bytes: What may be in use, ascending: more only where with less no sequence is
                about as quick as the step if nobody orders it. At least one of the sequences
                keeps to the first.
        """
        lowest = min(found, key=lambda timeline: timeline.peak_bytes)
        best = Quick(lowest, limits_bytes[0])
        graph = lowest.buffer_graph
        if not have_windows(find_chains(graph, lowest.sequence)):
            return best
        free = run_on_threads(graph, self.precedence, self.times_ns, self.threads)
        enough_ns, best_ns = _ENOUGH * max(free.end_ns), self.time_ns(best)
        tried = [lowest]
        for limit_bytes in limits_bytes:
            within = (each for each in found if each.peak_bytes <= limit_bytes)
            new = [each for each in within if not any(each is one for one in tried)]
            tried += new
            for timeline in (*new, None):
                if best_ns <= enough_ns:
                    return self._tightened(best, best_ns)
                # Last of all what was quickest until then, with what is wanted pulled forward.
                given = timeline or self._loosened(best.timeline, free.sequence, limit_bytes)
                quick = Quick(given, limit_bytes)
                time_ns = self.time_ns(quick)
                if time_ns < _QUICKER * best_ns:
                    best, best_ns = quick, time_ns
        return self._tightened(best, best_ns)

    def _tightened(self, quick: Quick, time_ns: int) -> Quick:
        """The same within no more than the sequence itself needs, if that is as quick."""
        if quick.limit_bytes <= quick.timeline.peak_bytes:
            return quick
        tight = Quick(quick.timeline, quick.timeline.peak_bytes)
        return tight if _QUICKER * self.time_ns(tight) <= time_ns else quick

    def _loosened(
        self, timeline: MemoryTimeline, wanted: Sequence[int], limit_bytes: int
    ) -> MemoryTimeline:
        """A sequence with what threads would run sooner pulled forward, if the limit is kept."""
        # Late, because of numpy: what needs no windows starts sooner.
        from memopt.sequencing.loosening import loosen

        loosened = self.settle(loosen(timeline, self.precedence, wanted, limit_bytes))
        looser = simulate(timeline.buffer_graph, loosened)
        return looser if looser.peak_bytes <= limit_bytes else timeline

    def time_ns(self, quick: Quick) -> int:
        """How long the step takes in the windows of a sequence; an estimate."""
        # Late, because of numpy: what needs no windows starts sooner.
        from memopt.sequencing.windows import Room

        timeline, limit_bytes = quick
        graph = timeline.buffer_graph
        chains, pairs = find_chains(graph, timeline.sequence), find_pairs(graph)
        room = Room(limit_bytes, self.threads)
        more = [find_waits(timeline, self.precedence, chain.nodes, pairs) for chain in chains]
        windows = find_chains_windows(timeline, chains, more, pairs, room)
        producers = [list(before) for before in graph.producers]
        for window in windows:
            for node, others in window.more.items():
                producers[node] += others
        run = run_on_threads(
            graph,
            Precedence(producers, timeline.sequence),
            self.times_ns,
            self.threads,
            [Gates(window.chain, window.waits) for window in windows],
        )
        return max(run.end_ns)
