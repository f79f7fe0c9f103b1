"""The plan for a limit: the cheapest of those within it, or the lowest one that there is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.progress import task
from memopt.rematerialization.algorithms import (
    ALGORITHMS,
    BEST,
    PATH,
    PLANNER,
    SEGMENTS,
    STANDARD,
)
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.planned.entry import plan_from, planner, prepare
from memopt.time_limit import TimeIsUpError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.progress import Task
    from memopt.rematerialization.limits import Algorithm, Limits, Plan
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

_STARTS = (STANDARD, PATH, SEGMENTS)
"""What the planner starts from if the best of all is asked for."""
_QUICK_STARTS = (STANDARD, PATH)
"""The same where the lowest plan is looked for."""
_SHARE_OF_STARTS = 0.05
"""Of the time for planning, what they have together: the planner, which has the rest, makes more of
it."""
_TIME_FOR_TWO_S = 5.0
"""Seconds that have to be left for the planner to begin twice, with starts and without."""
_SEED_FROM_ANEW = 1
"""With which it begins the second time."""
_WORTH_IT = 0.99
"""The share of a peak that another must not exceed to be worth its copies."""
_NEARLY = 0.005
"""Of what the lowest plan needs itself, what one that costs less may need more."""
_CHEAPER = 0.98
"""The share of another plan's added time that a plan has to stay below to be worth the search."""
_ROOM_ATTEMPTS = 2
"""How often a plan is made within less than the limit, since the allocator finds no room for it."""
_LEAST_SHARE = 25
"""The part of a limit that is taken off it at least for that."""


def make_plan(
    algorithm: str, network: Network, limits: Limits, near: Sequence[Rematerialized] = ()
) -> Plan:
    """The cheapest plan within the limit, or the lowest one there is.

    What is lowest does not depend on the limit: given as the limit, it is kept, and so is what lies
    above it. Where that is not to be found, or the time is up before, it is the lowest of what was
    tried for the limit.

    Args:
        algorithm: One of `ALGORITHMS`, or "best": standard, path and segments, and the planner,
            which starts from what they found and, with time for it, once more from nothing (for the
            lowest plan, from standard and path). If the
            allocator has to find room, that is looked for with the planner's plan first, and with
            the others' only if there is none.
        network: The sequence with its buffers.
        limits: What to keep to.
        near: Plans for limits nearby: the planner, if it is asked, starts from these first, and
            from nothing only if that keeps no limit.
    """
    nothing = limits.nothing(network)
    if nothing.keeps(limits.limit_bytes):
        return nothing
    if algorithm in (PLANNER, BEST):
        # To load the planner, or to compile it once on a machine, is no planning.
        limits = replace(limits, time_limit=limits.time_limit.after_all(prepare))
    plans = [nothing]
    held_bytes = network.buffer_graph.held_bytes
    # What one operation alone goes over, no plan keeps: then there is only the lowest to be found.
    if limits.limit_bytes >= (network.floor_bytes if limits.find_lowest else held_bytes):
        if near and algorithm in (PLANNER, BEST):
            nearby = limits.measure(plan_from(network, limits, near))
            if nearby.keeps(limits.limit_bytes):
                return nearby
        plans = _make_plans(algorithm, network, limits, nothing)
        within = _cheapest_within(plans, limits)
        if within is not None:
            return within
    # Where nothing is held, what is out of reach has been tried just now.
    is_worth_it = limits.find_lowest and not limits.time_limit.is_over
    if is_worth_it and max(limits.limit_bytes, held_bytes) > OUT_OF_REACH:
        least = replace(limits, limit_bytes=OUT_OF_REACH)
        lower = _make_lowest(algorithm, network, least, nothing)
        # What was stopped half-way need not be the lowest.
        plans = [*plans, *lower] if limits.time_limit.is_over else lower
    lowest = min(plans, key=lambda plan: (plan.peak_bytes, plan.added_ns))
    if algorithm not in (PLANNER, BEST):
        return lowest
    return _cheapest_near(lowest, plans, network, limits)


def _cheapest_near(lowest: Plan, plans: Sequence[Plan], network: Network, limits: Limits) -> Plan:
    """The cheapest plan that needs next to nothing more than the lowest one.

    What was to be as low as can be often costs more than that takes. It is looked for while there
    is time.
    """
    if lowest.done is None or limits.time_limit.is_over:
        return lowest
    if lowest.peak_bytes > limits.limit_bytes and limits.allocator is not None:
        return lowest
    spare_bytes = int(_NEARLY * (lowest.peak_bytes - network.buffer_graph.held_bytes))
    kept = replace(limits, limit_bytes=max(limits.limit_bytes, lowest.peak_bytes + spare_bytes))
    cheaper = plan_from(network, kept, [lowest.done])
    found = [kept.measure(lowest.done), kept.measure(cheaper)]
    if limits.allocator is None:
        # With an allocator some were made by their sum alone, and nobody knows that they find room.
        found += plans
    return _cheapest_within(found, kept) or lowest


def _cheapest_within(plans: Sequence[Plan], limits: Limits) -> Plan | None:
    """Of the plans within the limit, the cheapest of those that find room."""
    within = [plan for plan in plans if plan.peak_bytes <= limits.limit_bytes]
    if not within:
        return None
    return min(within, key=lambda plan: (plan.missing_bytes, plan.added_ns, plan.peak_bytes))


def _make_lowest(algorithm: str, network: Network, limits: Limits, nothing: Plan) -> list[Plan]:
    """Plans where the lowest of all is looked for.

    The planner comes as low from where quick algorithms end as from where slow ones do: it goes on
    from its own plans, asking for less each time.
    """
    if algorithm != BEST or limits.allocator is not None:
        return _make_plans(algorithm, network, limits, nothing)
    left_s = limits.time_limit.left_s
    with task("planning", len(_QUICK_STARTS) + 1, left_s, is_even=False) as under_way:
        return _plan_from_starts(_QUICK_STARTS, network, limits, nothing, under_way)


def _plan_from_starts(
    names: Sequence[str], network: Network, limits: Limits, nothing: Plan, under_way: Task
) -> list[Plan]:
    """The plans of algorithms, which have a part of the time, and last what the planner makes."""
    plans = []
    time_limit = limits.time_limit.share(_SHARE_OF_STARTS)
    for number, name in enumerate(names):
        under_way.update(number, name)
        share = time_limit.share(1 / (len(names) - number))
        by_sum = replace(limits, allocator=None, time_limit=share)
        plans.append(_first_within(ALGORITHMS[name], network, by_sum, nothing))
    starts = [plan.done for plan in plans if plan.done is not None]
    under_way.update(len(names), PLANNER)
    return [*plans, limits.measure(plan_from(network, limits, starts))]


def _make_plans(algorithm: str, network: Network, limits: Limits, nothing: Plan) -> list[Plan]:
    # The planner tries for room itself.
    if algorithm == PLANNER:
        return [nothing, *map(limits.measure, planner(network, limits))]
    if algorithm != BEST:
        return [_with_room(ALGORITHMS[algorithm], network, limits, nothing)]
    left_s = limits.time_limit.left_s
    with task("planning", len(_STARTS) + 2, left_s, is_even=False) as under_way:
        plans = _plan_from_starts(_STARTS, network, limits, nothing, under_way)
        planned = plans[-1]
        if limits.allocator is None and limits.time_limit.left_s >= _TIME_FOR_TWO_S:
            under_way.update(len(_STARTS) + 1, "planner, from anew")
            # Starts that were worked out to the end can lead it to where nothing cheap is near.
            # Where none of them is of use, the same random numbers would lead it to the same plan.
            plans.append(limits.measure(plan_from(network, limits, (), _SEED_FROM_ANEW)))
        if limits.allocator is None:
            plans += _further_plans(network, limits, plans, under_way)
    if limits.allocator is None or all(plan.peak_bytes > limits.limit_bytes for plan in plans):
        return plans
    if planned.keeps(limits.limit_bytes):
        return [planned]
    # To look for room takes much longer than to plan, and the planner finds it more often.
    return [planned, *(_with_room(ALGORITHMS[name], network, limits, nothing) for name in _STARTS)]


def _further_plans(
    network: Network, limits: Limits, plans: Sequence[Plan], under_way: Task
) -> list[Plan]:
    """With a limited time: plans from the best one, with other seeds, while they get better."""
    found: list[Plan] = []
    if limits.time_limit.is_endless:
        return found
    best = _cheapest_within(plans, limits)
    seeds = itertools.count(1 + _SEED_FROM_ANEW)
    while best is not None and best.done is not None and not limits.time_limit.is_over:
        seed = next(seeds)
        under_way.say(f"planner, seed {seed}")
        further = limits.measure(plan_from(network, limits, [best.done], seed))
        found.append(further)
        is_better = further.keeps(limits.limit_bytes) and (
            further.added_ns < _CHEAPER * best.added_ns
        )
        best = further if is_better else None
    return found


def _with_room(algorithm: Algorithm, network: Network, limits: Limits, nothing: Plan) -> Plan:
    """The plan of an algorithm; within less, where the allocator finds no room for it."""
    best = plan = _first_within(algorithm, network, limits, nothing)
    for _ in range(_ROOM_ATTEMPTS):
        if not plan.missing_bytes:
            break
        less_bytes = max(plan.missing_bytes // 2, limits.limit_bytes // _LEAST_SHARE)
        limits = replace(limits, limit_bytes=max(limits.limit_bytes - less_bytes, OUT_OF_REACH))
        plan = _first_within(algorithm, network, limits, nothing)
        if plan.peak_bytes > limits.limit_bytes:
            break
        best = min(best, plan, key=lambda each: each.missing_bytes)
    return best


def _until_time_is_up(
    algorithm: Algorithm, network: Network, limits: Limits
) -> Iterator[Rematerialized]:
    try:
        yield from algorithm(network, limits)
    except TimeIsUpError:
        return


def _first_within(algorithm: Algorithm, network: Network, limits: Limits, nothing: Plan) -> Plan:
    """The first plan of an algorithm that keeps to the limits, or the nearest to that."""
    best = nothing
    for done in _until_time_is_up(algorithm, network, limits):
        plan = limits.plan(done)
        if plan.keeps(limits.limit_bytes):
            return plan
        # Hundreds of copies for next to nothing are no better.
        if plan.peak_bytes < best.peak_bytes * _WORTH_IT:
            best = plan
    return best
