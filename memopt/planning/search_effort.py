"""How much is searched, by the size of the graph alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memopt.compilation.jit import IS_COMPILED
from memopt.planning.annealing import Schedule

_EDITS_PER_OPERATION = 50_000
_MOST_EDITS = 15_000_000
_MOST_WORK_US = 25e6
"""About what the search takes at most, on one core, in microseconds."""
_PURE_SHARE = 1 / 100
"""Of the edits, where nothing is compiled."""
_THOROUGH = 3_000
"""Edits for each operation from which on it pays to give up the order that was started from."""
_LOWER = (0.7, 0.85, 0.95, 0.98, 0.99)
_LOWER_IN_CHAINS = (0.9, 0.95, 0.98)
"""Of the lowest peak found; chains take long where much is over the budget."""
_CHANGES_IN_CHAINS = 4
"""Of single computations, for each edit."""
_SOME_CHAINS = 50
"""Of 1,000 edits, those of whole chains in a search that goes one by one else."""
_LEAPS = (2, 4, 8, 8)
"""What parts of the edits for them leaps get: in some graphs a long one finds most, in others one
of several short ones."""
_FORCE = 30.0
"""Times as dear, and as hot. With 8 times, a net of convolutions still stayed over its budget."""
_HEATS = (3.0, _FORCE)
"""Times as hot, if as dear: what is found with less costs less."""
ROUNDS = 2
"""How often searches begin anew, if it pays."""


@dataclass(frozen=True)
class Effort:
    """How much is searched.

    Attributes:
        polish: Around the best sequence, before everything else.
        finish: Likewise, with chains, after everything else.
        begins: Searches that begin anew in a round, far from the best sequence: one schedule or
            more for each, one after the other.
        lower: For lower peaks, one after the other: of the lowest one found so far, the share that
            is aimed at, and how that is searched for.
        explore: In chains and far from an order, for a single search.
        force: The same where that finds nothing within the budget: bytes so dear, and some so hot,
            that even operations are computed again that cost many times the average.
        rework: Around what either found, and around the best that was known before.
        rounds: How many such rounds there are.
        bisections: How often a budget is halved, or not, for the lowest of the plans to begin with.
    """

    polish: Schedule
    finish: Schedule
    begins: tuple[tuple[Schedule, ...], ...]
    lower: tuple[tuple[float, Schedule], ...]
    explore: Schedule
    force: tuple[Schedule, ...]
    rework: tuple[Schedule, ...]
    rounds: int
    bisections: int

    @classmethod
    def of(
        cls,
        operations: int,
        rounds: int = ROUNDS,
        *,
        most_work_us: float = _MOST_WORK_US,
        edits_per_operation: int = _EDITS_PER_OPERATION,
    ) -> Effort:
        """What suits a graph of some size; no clock is asked, so that plans are the same again.

        Args:
            operations: Of the graph.
            rounds: How often searches begin anew, if there is time for that.
            most_work_us: About what one search takes at most.
            edits_per_operation: How many are tried at most.
        """
        # Measured: an edit takes this many microseconds.
        edit_us = 0.5 + 1e-3 * operations + 1.5e-7 * operations**2
        edits = int(min(edits_per_operation * operations, _MOST_EDITS, most_work_us / edit_us))
        if not IS_COMPILED:
            edits = int(edits * _PURE_SHARE)
        if edits >= _THOROUGH * operations:
            return _thorough(edits, rounds)
        return _brief(edits)


def _thorough(edits: int, rounds: int) -> Effort:
    """With enough edits to look for another order."""
    share = edits // (2 + 6 * ROUNDS)
    explore = _in_chains(edits // 2, hot=1.0)
    # An order that needs little, and then what does not fit in it is computed again.
    half = 3 * share // 4
    reorder = Schedule(half, hot=10.0, cold=0.1, recompute_share=0)
    combines = (Schedule(half), replace(explore, edits=half, chain_share=_SOME_CHAINS))
    leaps = tuple((replace(explore, edits=3 * share // part),) for part in _LEAPS)
    return Effort(
        polish=Schedule(share, hot=0.3),
        finish=replace(_in_chains(share, hot=0.3), chain_share=_SOME_CHAINS),
        begins=(*((reorder, combine) for combine in combines), *leaps),
        lower=tuple((peak_share, Schedule(2 * share)) for peak_share in _LOWER),
        explore=explore,
        force=tuple(
            replace(explore, hot=heat * explore.hot, price=_FORCE * explore.price)
            for heat in _HEATS
        ),
        rework=(_in_chains(edits // 8, hot=0.3), _in_chains(edits // 8, hot=0.1)),
        rounds=rounds,
        bisections=6,
    )


def _brief(edits: int) -> Effort:
    """With few edits for each operation: one by one leave much over the budget, chains do not."""
    share = edits // 4
    finish = replace(_in_chains(share, hot=0.1), changes=_CHANGES_IN_CHAINS)
    chains = replace(finish, edits=share // 2)
    return replace(
        _thorough(edits, rounds=0),
        polish=Schedule(3 * share, hot=0.3),
        finish=finish,
        lower=(
            (_LOWER[0], Schedule(share, hot=0.3)),
            *((peak_share, chains) for peak_share in _LOWER_IN_CHAINS),
        ),
        bisections=2,
    )


def _in_chains(edits: int, hot: float) -> Schedule:
    """A part of a search which has to get far with few edits."""
    return Schedule(edits, hot=hot, cold=hot / 300, recompute_share=200, chain_share=400)
