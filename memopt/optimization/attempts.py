"""What is tried for a budget, one pipeline after the other, until one keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.buffers.working_sets import largest_working_set
from memopt.passes import Fission, Rematerialization, SerialLoops
from memopt.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.optimization.pipeline import Pipeline
    from memopt.passes import Pass
    from memopt.result import OptimizationResult

_SHARE_OF_FURTHER = 0.5
"""Of the time for planning, what each attempt gets that may not be the only one."""
_SHARE_OF_WHOLE = 0.75
"""Of that time, what the attempt has at least that splits nothing, after one that does."""
_NEAR_THE_FLOOR = 2.0
"""Up to how many times what its largest operation needs a step may need for that to be worth
splitting: of what needs more, the greater part is what is kept."""


def attempts(
    pipeline: Pipeline,
    *,
    is_out_of_reach: bool,
    is_up_to_splitting: bool = False,
    is_less_in_parts: bool = False,
) -> Iterator[Pipeline]:
    """The pipelines to try, one after the other, until one keeps the budget.

    One splits nothing; one splits the operations that need more than the budget leaves; one those
    that keep the lowest peak from being lower, unless the time for planning is limited. What splits
    nothing comes first, but not where a single operation needs more than the budget and there is
    all the time that it takes, or all such operations can be split. A limited time is for all of
    them together, and half of it once more where nothing keeps the budget, or all of it where
    nothing can without splitting; the trials of kernels have as much of their own.

    Args:
        pipeline: All passes of the level.
        is_out_of_reach: Whether an operation by itself needs more than the budget.
        is_up_to_splitting: Whether some do, and each of these can be split.
        is_less_in_parts: Whether some can be split and some cannot, which need less: then the
            former are, as far as it helps.
    """
    fissions = [one for one in pipeline.once if isinstance(one, Fission)]
    whole = replace(pipeline, once=tuple(one for one in pipeline.once if one not in fissions))
    if not fissions or fissions[0].most_parts == 1:
        yield whole
        return
    split = replace(pipeline, decisive=Fission.name)
    seconds = max(_planning_seconds(one) for one in pipeline.once)
    if seconds and is_up_to_splitting:
        yield from (_sharing(each, seconds * _SHARE_OF_FURTHER, seconds) for each in (split, whole))
        return
    if seconds and is_less_in_parts:
        yield from _nearest(seconds, whole, _with_passes(split, _lowest))
        return
    if seconds:
        yield from _within(seconds, whole, split, is_out_of_reach=is_out_of_reach)
        return
    is_split_first = is_out_of_reach or is_up_to_splitting
    first, second = (split, whole) if is_split_first else (whole, split)
    yield first
    yield second
    if all(one.find_lowest for one in pipeline.once if isinstance(one, Rematerialization)):
        yield _with_passes(split, _lowest)


def in_less_time(pipeline: Pipeline) -> Pipeline:
    """The same for a further search, if the time for planning is limited."""

    def shortened(one: Pass) -> Pass:
        if not isinstance(one, Rematerialization):
            return one
        return replace(one, planning_seconds=one.planning_seconds * _SHARE_OF_FURTHER)

    return _with_passes(pipeline, shortened)


def without_lowest(pipeline: Pipeline) -> Pipeline:
    """The same where another attempt follows: what does not keep the budget need not be lowest."""

    def hurried(one: Pass) -> Pass:
        return replace(one, find_lowest=False) if isinstance(one, Rematerialization) else one

    return _with_passes(pipeline, hurried)


def asking_for(pipeline: Pipeline, limit_bytes: int) -> Pipeline:
    """The same for another limit than the budget: so much in use at any moment on all devices.

    Passes that have a limit of their own keep it.
    """

    def asking(one: Pass) -> Pass:
        if isinstance(one, Fission | Rematerialization) and not one.memory_limit:
            return replace(one, memory_limit=limit_bytes)
        return one

    return _with_passes(pipeline, asking)


def one_turn_at_a_time(pipeline: Pipeline) -> Pipeline:
    """The same with loops in which no turn begins before another one has ended."""
    return _with_passes(
        pipeline, lambda one: replace(one, at_once=1) if isinstance(one, SerialLoops) else one
    )


def is_better(result: OptimizationResult, other: OptimizationResult) -> bool:
    """Whether a result keeps the budget, or needs less where neither does."""
    one, two = result.report.runtime, other.report.runtime
    assert one is not None
    assert two is not None
    return one.keeps_budget or one.after.peak_bytes < two.after.peak_bytes


def is_in_haste(pipeline: Pipeline) -> bool:
    """Whether the time for planning is limited, as where a program waits for its first step."""
    return any(_planning_seconds(one) for one in pipeline.once)


def time_for_planning(pipeline: Pipeline) -> TimeLimit:
    """When the time for planning ends that begins now."""
    return TimeLimit.after(max(map(_planning_seconds, pipeline.once), default=0.0))


def is_futile(pipeline: Pipeline, result: OptimizationResult) -> bool:
    """Whether an attempt changed nothing of what it was made for: then its result is no plan.

    What such a step needs depends on what runs first in it, and cannot be compared with a plan.
    """
    return bool(pipeline.decisive) and not any(
        done.edits
        for graph in result.report.graphs
        for done in graph.passes
        if done.name.partition("{")[0] == pipeline.decisive
    )


def is_worth_splitting(after: MemoryTimeline) -> bool:
    """Whether, over the budget, its largest operation is the greater part of what a step needs."""
    largest_bytes = largest_working_set(after.buffer_graph, after.sequence).size_bytes
    own_bytes = after.peak_bytes - after.held_bytes
    return own_bytes <= _NEAR_THE_FLOOR * (largest_bytes - after.held_bytes)


def keeps_budgets(result: OptimizationResult) -> bool:
    """Whether nothing is left to try."""
    runtime = result.report.runtime
    return runtime is None or runtime.keeps_budget


def _within(
    seconds: float, whole: Pipeline, split: Pipeline, *, is_out_of_reach: bool
) -> Iterator[Pipeline]:
    time_limit = TimeLimit.after(seconds)
    share_s = seconds * _SHARE_OF_FURTHER
    if is_out_of_reach:
        # Whoever asks for less than there can be gets the nearest plan soon.
        yield whole
        yield _sharing(split, share_s, trial_s=seconds)
        return
    yield whole
    if time_limit.left_s >= share_s:
        # What is left is for both, splitting and planning.
        yield _sharing(split, share_s / 2, trial_s=seconds)


def _nearest(seconds: float, whole: Pipeline, split: Pipeline) -> Iterator[Pipeline]:
    """First what is split: where that is in vain, which is soon seen, the rest is for the other."""
    time_limit = TimeLimit.after(seconds)
    yield _sharing(split, seconds * _SHARE_OF_FURTHER, trial_s=seconds)
    yield _sharing(whole, max(seconds * _SHARE_OF_WHOLE, time_limit.left_s), trial_s=seconds)


def _sharing(pipeline: Pipeline, share_s: float, trial_s: float) -> Pipeline:
    """The same with so many seconds for splitting and for planning each, and for all trials."""

    def shared(one: Pass) -> Pass:
        if isinstance(one, Rematerialization):
            return replace(one, planning_seconds=share_s)
        if isinstance(one, Fission):
            return replace(one, planning_seconds=share_s, trial_seconds=trial_s)
        return one

    return _with_passes(pipeline, shared)


def _planning_seconds(one: Pass) -> float:
    return one.planning_seconds if isinstance(one, Rematerialization) else 0.0


def _lowest(one: Pass) -> Pass:
    return replace(one, lowest=True) if isinstance(one, Fission) else one


def _with_passes(pipeline: Pipeline, change: Callable[[Pass], Pass]) -> Pipeline:
    return replace(pipeline, once=tuple(change(one) for one in pipeline.once))
