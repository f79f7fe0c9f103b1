"""The planner on a network: order, recomputation and swaps together, until a limit is kept."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from memopt.planning.initial_plans import unchanged
from memopt.planning.planner import Planner
from memopt.planning.search_effort import Effort
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.planned.realization import realize
from memopt.rematerialization.planned.reduction import Reduction, room_within
from memopt.time_limit import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memopt.planning.initial_plans import Steps
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.forms import Form
    from memopt.time_limit import TimeLimit

    Pack = Callable[[Rematerialized], tuple[Rematerialized, int]]
    """Puts a plan in an order that the allocator finds room for; and how much is missing else."""

_ATTEMPTS = 5
"""How often a limit is tried, each time with more of what was missing before taken off."""
_NEXT_LOWER = 1024
"""Of the room, what is taken off at least: a few bytes less are still had by what is neglected."""
_SPARED = 128
"""The part of the room that a search leaves free which may be the only one there is time for: what
is neglected takes about as much."""
_LOWER = (0.7, 0.85, 0.93, 0.98)
"""Of the lowest peak so far, what is tried next for the lowest of all: far less first, since a
search that is asked for much comes lower than one that is asked for little."""
_LOWER_ATTEMPTS = 8
"""How often that is tried in all."""
_LOWER_IN_HASTE = (0.35, 0.5, *_LOWER)
"""The same where there may be time for one search only: at once about as low as most steps go. One
that is asked for far less than that ends high above it."""
_ROOM_ATTEMPTS = 10
"""How many plans the allocator is asked for room for."""
_MOST_ROOM = 0.96
"""Of the peak of a plan that finds none, the most that the next one may have."""
_NEAR = 1.02
"""How much higher than one that finds room another peak has to be to be worth a look."""
_FIRST_SHARE = 0.72
"""Of the limit, what plans need about that find room, measured: from 0.6 to 0.85."""
_ENOUGH_ATTEMPTS = 6
"""How many plans are tried where not the cheapest is looked for."""
_LEAST_STEP, _MOST_STEP = 0.96, 0.9
"""Of the peak of a plan that finds no room, the most and the least that the next one may have."""
_MOST_WORK_US = 6e6
"""About what one search takes at most."""
_EDITS_PER_OPERATION = 2_000
_MOST_CONSTRUCTED = 4_000
"""Operations up to which the planner's own walks are among the starts."""


def rematerialize_planned(  # noqa: PLR0913 - options that stand by themselves
    network: Network,
    limit_bytes: int,
    *,
    forms: Mapping[int, Sequence[Form]],
    starts: Iterable[Rematerialized] = (),
    pack: Pack = lambda done: (done, 0),
    enough_weight: int = 0,
    time_limit: TimeLimit = NO_LIMIT,
    seed: int = 0,
) -> Rematerialized:
    """The cheapest sequence within a limit that the planner finds; the nearest to it if none is.

    The planner sees the network without what holds next to nothing (see `Reduction`). What it
    finds is put together and simulated as it is; if that is over the limit, it gets less room.

    Args:
        network: The sequence with its buffers.
        limit_bytes: What may be in use, what was held before the step included; `OUT_OF_REACH` for
            the lowest sequence.
        forms: By node: other forms of its result; those on the host become swaps.
        starts: What other algorithms found.
        pack: Puts a plan in an order that the allocator finds room for, and says what is missing if
            there is none.
        enough_weight: What a plan may cost that the allocator finds room for; 0 if the cheapest is
            looked for, whatever it costs.
        time_limit: When to end with what was found.
        seed: Of all searches.
    """
    planning = _Planning(network, limit_bytes, forms, starts, time_limit, seed)
    if enough_weight:
        return planning.find_enough(pack, enough_weight)
    best, steps = planning.plan()
    if limit_bytes == OUT_OF_REACH:
        return planning.find_lower(best, steps)
    if best.peak_bytes > limit_bytes:
        return best
    return planning.find_room(best, steps, pack)


class _Planning:
    def __init__(
        self,
        network: Network,
        limit_bytes: int,
        forms: Mapping[int, Sequence[Form]],
        starts: Iterable[Rematerialized],
        time_limit: TimeLimit,
        seed: int,
    ) -> None:
        self._time_limit = time_limit
        self._limit_bytes = limit_bytes
        self._held_bytes = network.buffer_graph.held_bytes
        self._floor_bytes = network.floor_bytes
        self._forms = forms
        self._reduction = Reduction.of(network, forms, room_within(network, limit_bytes))
        graph = self._reduction.cost_graph
        self._planner = Planner(
            graph,
            seed,
            time_limit_s=time_limit.left_s,
            effort=Effort.of(
                graph.operation_count,
                rounds=1,
                most_work_us=_MOST_WORK_US,
                edits_per_operation=_EDITS_PER_OPERATION,
            ),
            walks=graph.operation_count <= _MOST_CONSTRUCTED,
        )
        found = (self._reduction.steps(start) for start in starts)
        self._starts = [steps for steps in found if steps is not None]

    def plan(self) -> tuple[Rematerialized, Steps]:
        """What keeps the limit, or comes nearest to it, by a search if it can be kept at all."""
        if self._limit_bytes >= self._floor_bytes:
            return self._approach(self._limit_bytes, self._starts, _ATTEMPTS)
        starts = [unchanged(self._reduction.cost_graph.order), *self._starts]
        realized = [(self._realize(steps), steps) for steps in starts]
        return min(realized, key=lambda each: each[0].peak_bytes)

    def find_lower(self, best: Rematerialized, steps: Steps) -> Rematerialized:
        """A lower plan, one from the other, asking for less where less than half of it is had."""
        shares = list(_LOWER if self._time_limit.is_endless else _LOWER_IN_HASTE)
        for _ in range(_LOWER_ATTEMPTS):
            if not shares or self._time_limit.is_over:
                break
            own_bytes = best.peak_bytes - self._held_bytes
            target_bytes = self._held_bytes + int(own_bytes * shares[0])
            found, found_steps = self._approach(target_bytes, [steps], 1)
            if 2 * found.peak_bytes >= best.peak_bytes + target_bytes:
                del shares[0]
            if found.peak_bytes < best.peak_bytes:
                best, steps = found, found_steps
        return best

    def find_room(
        self,
        done: Rematerialized,
        steps: Steps,
        pack: Pack,
    ) -> Rematerialized:
        """A plan that the allocator finds room for: near one that is within the limit, with less.

        How much less differs a lot from plan to plan. Where a plan finds room, what lies between it
        and the last one that did not is tried, since it may be cheaper.
        """
        tried: list[tuple[int, Rematerialized]] = []
        lowest, highest = 0, done.peak_bytes
        for _ in range(_ROOM_ATTEMPTS):
            packed, missing_bytes = pack(done)
            tried.append((missing_bytes, packed))
            if missing_bytes:
                highest = min(highest, done.peak_bytes)
                share = math.sqrt(self._limit_bytes / (self._limit_bytes + missing_bytes))
                target_bytes = int(done.peak_bytes * min(share, _MOST_ROOM))
            else:
                lowest = max(lowest, done.peak_bytes)
            if lowest:
                target_bytes = (lowest + highest) // 2
            if target_bytes <= max(lowest * _NEAR, self._floor_bytes) or self._time_limit.is_over:
                break
            near, is_within = self._planner.search_near(target_bytes, (steps, *self._starts))
            if not is_within:
                near, is_within = self._planner.search(target_bytes, (steps, near))
            done = self._realize(near)
            # Any less may be enough, and what is found for a target is a matter of luck.
            if not is_within and done.peak_bytes >= highest:
                break
        return min(tried, key=lambda each: (each[0], each[1].added_weight))[1]

    def find_enough(
        self,
        pack: Pack,
        enough_weight: int,
    ) -> Rematerialized:
        """A plan that the allocator finds room for, and that costs no more than is enough.

        The less is in use, the sooner room is found, and the more it costs: so what lies between a
        plan that finds none and one that costs too much is tried.
        """
        tried: list[tuple[int, int, Rematerialized]] = []
        low_bytes, high_bytes = self._floor_bytes, self._limit_bytes
        known = list(self._starts)
        target_bytes = max(int(high_bytes * _FIRST_SHARE), self._floor_bytes)
        for _ in range(_ENOUGH_ATTEMPTS):
            steps, done = self._plan_within(target_bytes, known, enough_weight)
            known.append(steps)
            if done.peak_bytes > self._limit_bytes or done.added_weight > enough_weight:
                low_bytes = target_bytes
                tried.append((1, done.added_weight, done))
            else:
                packed, missing_bytes = pack(done)
                if not missing_bytes:
                    return packed
                tried.append((0, missing_bytes, packed))
                high_bytes = min(high_bytes, target_bytes)
            if low_bytes > high_bytes * _LEAST_STEP or self._time_limit.is_over:
                break
            target_bytes = max((low_bytes + high_bytes) // 2, int(high_bytes * _MOST_STEP))
        return min(tried, key=lambda each: each[:2])[2]

    def _plan_within(
        self, target_bytes: int, known: Sequence[Steps], enough_weight: int
    ) -> tuple[Steps, Rematerialized]:
        """A plan near those that are known, or from anew where that costs more than is enough."""
        if known:
            steps, is_within = self._planner.search_near(target_bytes, known)
            done = self._realize(steps)
            if is_within and done.added_weight <= enough_weight:
                return steps, done
        steps, _ = self._planner.search(target_bytes, known)
        return steps, self._realize(steps)

    def _realize(self, steps: Steps) -> Rematerialized:
        return realize(self._reduction, steps, self._forms)

    def _approach(
        self, limit_bytes: int, starts: Sequence[Steps], attempts: int
    ) -> tuple[Rematerialized, Steps]:
        """What keeps a limit once it is put together, or comes nearest to it."""
        found: list[tuple[Rematerialized, Steps]] = []
        own_bytes = limit_bytes - self._held_bytes
        least_bytes = own_bytes // _NEXT_LOWER
        room_bytes = limit_bytes
        if not self._time_limit.is_endless:
            room_bytes = max(limit_bytes - own_bytes // _SPARED, self._floor_bytes)
        steps, is_within = self._planner.search(room_bytes, starts, insists=attempts > 1)
        for attempt in range(attempts):
            done = self._realize(steps)
            found.append((done, steps))
            is_last = len(found) == attempts or self._time_limit.is_over
            if done.peak_bytes <= limit_bytes or not is_within or is_last:
                break
            missing_bytes = max(done.peak_bytes - limit_bytes, least_bytes)
            room_bytes -= missing_bytes << attempt
            near, is_within = self._planner.search_near(room_bytes, [steps])
            if not is_within:
                near, is_within = self._planner.search(
                    room_bytes, (*starts, steps), insists=attempts > 1
                )
            steps = near
        return min(
            found, key=lambda each: (max(each[0].peak_bytes, limit_bytes), each[0].added_weight)
        )
