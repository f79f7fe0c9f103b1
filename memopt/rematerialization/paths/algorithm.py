"""Path rematerialization: whole paths are cloned for those who read their ends after the peak.

Microsoft's `path` algorithm (github.com/microsoft/tensorflow-rematerialization), on XLA's
rematerialization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.rematerialization.paths.articulations import find_articulations
from memopt.rematerialization.paths.clones import Clones, precedence_of
from memopt.rematerialization.paths.cuts import Cuts
from memopt.rematerialization.paths.dematerialization import dematerialize
from memopt.rematerialization.paths.facts import Facts
from memopt.rematerialization.paths.rounds import Ends, Round
from memopt.rematerialization.rematerialized import Rematerialized
from memopt.time_limit import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.paths.clones import Settled
    from memopt.sequencing.precedence import Precedence
    from memopt.time_limit import TimeLimit

    Sequencer = Callable[[BufferGraph, Precedence], list[int]]

_SEGMENTS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 19, 24, 30, 40, 60, 100, 180, 320)
"""How many segments are tried."""
_MOST_CHOICES = 4
"""What is undone best shows only at the end: so many results are followed to there."""
_MOST_LEVELS = 4
"""How often what was cut is cut again at its new peak."""
_MOST_ROUNDS = 50
_MOST_SIMULATED = 300_000
"""How many instructions are simulated at most to find segments, and as many for rounds."""


@dataclass(frozen=True)
class Improvements:
    """What is done beyond the published algorithm; all of it unless told otherwise."""

    any_end: bool = True
    """Paths may end with any instruction, and not only with articulations. A search that comes by
    another way first can leave out any of them."""
    through_small: bool = True
    """Paths go on through small results, which are cloned only for another's sake."""
    share: bool = True
    """The clones of a round are shared by all their users, instead of one for each. Without, what a
    path begins with has to live on for it, and that is another path's end."""
    segment: bool = True
    """Before rounds, paths of any depth are tried that stay within segments of what runs before the
    peak, for several numbers of segments: see `Cuts`. Rounds follow only where none keeps the
    limit."""
    keep_order: bool = True
    """The order so far, with clones just before the first that needs them, is another choice beside
    the sequencer's."""
    close_gaps: bool = True
    """Single clones are undone, and not all clones of an instruction together: see
    `dematerialize`."""


ALL = Improvements()
NONE = Improvements(
    any_end=False,
    through_small=False,
    share=False,
    segment=False,
    keep_order=False,
    close_gaps=False,
)


def rematerialize_paths(  # noqa: PLR0913 - options that stand by themselves
    network: Network,
    limit_bytes: int,
    *,
    make_sequence: Sequencer,
    smallest_bytes: int = 1 << 20,
    deepest: int = 10,
    improvements: Improvements = ALL,
    time_limit: TimeLimit = NO_LIMIT,
) -> Rematerialized:
    """Clone paths in rounds until a limit is kept, then undo what the limit leaves room for.

    A round takes the instruction at which memory peaks. Whatever runs before it, is an articulation
    (see `find_articulations`) and has users after it, is cloned for each such user, and so are the
    operands of the clone for the clone, and theirs. Then what nobody reads any more is dropped, the
    sequence is made anew and simulated. Rounds go on while the peak falls and is above the limit;
    the last one counts only if it did fall. At the end clones are undone, see `dematerialize`.

    Never cloned are what cannot run twice, what lasts, what a reader gets in a way that a clone
    could not replace, what somebody must follow who runs before the peak, and small results. If
    nobody is left to read the original, the clone is a move; what was moved twice is left alone.
    A view is cloned with what it shows, and counts nothing in the depth of a path.

    A limit that cannot be kept is no error: then the lowest peak found is what comes out, with as
    few clones as it takes. The peak never is above the one without clones.

    Without improvements it is the published algorithm, but that an undoing that breaks the limit is
    taken back, and that there is an end to cloning: a round stops at four clones for each
    instruction, and rounds stop when 300,000 instructions were simulated. The time of each round is
    near-linear.

    Args:
        network: The sequence with its buffers.
        limit_bytes: What may be in use, what was held before the step included.
        make_sequence: Gives the order after each round.
        smallest_bytes: What makes no more than this is never cloned for its own sake.
        deepest: How many instructions a path has at most that make something.
        improvements: What is done beyond the published algorithm.
        time_limit: When to end with what was found.
    """
    facts = Facts(network)
    start = Clones(facts).settle(list(network.sequence))
    large = [size_bytes > smallest_bytes for size_bytes in facts.size_bytes]
    free = facts.cloneable
    if not improvements.through_small:
        free = [can and it_is for can, it_is in zip(free, large, strict=True)]
    ends = [can and it_is for can, it_is in zip(facts.cloneable, large, strict=True)]
    if not improvements.any_end:
        users = [list(users) for users in start.clones.users]
        articulations = find_articulations(users, network.sequence)
        ends = [it_ends and at for it_ends, at in zip(ends, articulations, strict=True)]
    search = _Search(Ends(free, ends), limit_bytes, make_sequence, improvements, time_limit)
    choices = search.cut(start) if improvements.segment else [start]
    if choices[0].peak_bytes > limit_bytes:
        begins = dict.fromkeys((start, choices[0]))
        choices = [search.run_rounds(begin, deepest) for begin in begins]
    best = start
    for choice in choices:
        goal_bytes = max(limit_bytes, choice.peak_bytes)
        done = dematerialize(
            choice,
            goal_bytes,
            search.rearrange,
            close_gaps=improvements.close_gaps,
            time_limit=time_limit,
        )
        best = min(best, done, key=search.rank)
    instructions, sequence, removed = best.clones.to_instructions(best.sequence)
    copies = len(instructions.origin) - len(facts.runs)
    return Rematerialized(instructions, sequence, removed, best.peak_bytes, copies)


class _Search:
    """Clones that keep a limit, or come near to it."""

    def __init__(
        self,
        ends: Ends,
        limit_bytes: int,
        make_sequence: Sequencer,
        improvements: Improvements,
        time_limit: TimeLimit,
    ) -> None:
        self._time_limit = time_limit
        self._ends = ends
        self._limit_bytes = limit_bytes
        self._make_sequence = make_sequence
        self._share = improvements.share
        self._keep_order = improvements.keep_order

    def rank(self, settled: Settled) -> tuple[int, int]:
        """What is best: the least cost within the limit, or else the lowest peak."""
        return max(settled.peak_bytes, self._limit_bytes), settled.cost

    def run_rounds(self, start: Settled, deepest: int) -> Settled:
        """The last of the rounds that lowered the peak; the start if none did."""
        best, simulated = start, 0
        skipped: set[int] = set()
        moved: set[int] = set()
        for _ in range(_MOST_ROUNDS):
            if best.peak_bytes <= self._limit_bytes or simulated > _MOST_SIMULATED:
                break
            if self._time_limit.is_over:
                break
            clones = Round(best, self._ends, skipped, moved).clone_paths(deepest, share=self._share)
            if clones is None:
                break
            found = self.rearrange(clones, best.sequence)
            simulated += len(found.sequence)
            if found.peak_bytes >= best.peak_bytes:
                break
            best = found
        return best

    def cut(self, start: Settled) -> list[Settled]:
        """What comes of making paths again by segments, the best first; the start if nothing does.

        Where no number of segments keeps the limit, the best is cut at its own peak, and so on.
        """
        found = [start]
        for _ in range(_MOST_LEVELS):
            if found[0].peak_bytes <= self._limit_bytes:
                break
            cut = self._cut_once(found[0])
            if not cut or self.rank(cut[0])[0] >= self.rank(found[0])[0]:
                break
            found = cut
        count = min(_MOST_CHOICES, max(1, _MOST_SIMULATED // (8 * len(start.sequence) + 1)))
        within = [choice for choice in found if choice.peak_bytes <= self._limit_bytes]
        # What has a lower peak leaves more room for what costs most.
        lowest = min(found, key=lambda choice: choice.peak_bytes)
        return list(dict.fromkeys((*(within or found)[: count - 1], lowest, found[0])))[:count]

    def _cut_once(self, start: Settled) -> list[Settled]:
        cuts = Cuts(start)
        choices: list[Settled] = []
        numbers = [n for n in _SEGMENTS if n < max(len(start.sequence) // 64, 16)]
        stride = 1 + len(start.sequence) * len(numbers) // _MOST_SIMULATED
        for number in numbers[stride // 2 :: stride]:
            if self._time_limit.is_over:
                break
            stops = cuts.crossing_buffers(number)
            round_ = Round(start, self._ends, set(), set(), stops)
            clones = round_.clone_paths(len(start.sequence), share=True)
            if clones is not None:
                producers = clones.producers(clones.find_running())
                choices.append(clones.settle(clones.arrange(producers, start.sequence)))
        return sorted(choices, key=self.rank)

    def rearrange(self, clones: Clones, sequence: list[int]) -> Settled:
        """Clones in the order that needs least: the sequencer's, or the old one."""
        running = clones.find_running()
        producers = clones.producers(running)
        kept: Settled | None = None
        if self._keep_order:
            kept = clones.settle(clones.arrange(producers, sequence))
            if kept.peak_bytes <= self._limit_bytes:
                return kept
        runs = [number for number, it_runs in enumerate(running) if it_runs]
        graph = clones.buffer_graph(clones.arrange(producers, runs), producers)
        new = clones.settle(self._make_sequence(graph, precedence_of(running, producers)))
        return new if kept is None or new.peak_bytes < kept.peak_bytes else kept
