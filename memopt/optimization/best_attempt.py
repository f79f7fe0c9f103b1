"""Attempts at one step: the graph as it is, its loops in segments, operations in parts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memopt.optimization.attempts import (
    asking_for,
    attempts,
    in_less_time,
    is_better,
    is_futile,
    is_in_haste,
    is_worth_splitting,
    keeps_budgets,
    one_turn_at_a_time,
    time_for_planning,
    without_lowest,
)
from memopt.optimization.checkpointed import in_segments, loops_keep_too_much, with_functions
from memopt.optimization.overhead import estimate_overhead
from memopt.shapes.function_calls import LOOPS

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.item import GrapplerItem
    from memopt.optimization.pipeline import Pipeline
    from memopt.optimization.prepared import Prepared, Simulators, Source
    from memopt.result import OptimizationResult
    from memopt.time_limit import TimeLimit

MOST_TIME = 1.35
"""How much longer a step may take, as estimated, for a lower peak that is over the budget too."""
_PARTS_OF_WHAT_IS_SAVED = (4, 2)
"""Of what such a peak is lower, the part that further attempts may need more."""
_APPROACHES = 2
"""How often as many turns run again as seem enough, before all of them do."""
_SHARE_OF_APPROACHES = 0.8
"""Of the time for planning, after how much of it none is begun any more."""
_LEAST_MORE = 10
"""The part of what seemed enough that is added at least where it was not."""
_RETURNS = 2
"""How often fewer turns run again than were enough, before what was found so far is taken."""
_LEAST_LESS = 10
"""The part of what was enough that has to be left out at least for another attempt."""
_LEAST_SPARE = 20
"""The part of the budget that has to be left at least for one."""


class Optimizer(Protocol):
    """What makes one attempt."""

    def prepare(
        self, source: Source, simulators: Simulators, like: Prepared | None = None
    ) -> Prepared:
        """A graph, verified and ready to be rewritten once."""

    def run(self, pipeline: Pipeline, prepared: Prepared, deadline_s: float) -> OptimizationResult:
        """What one pipeline makes of it, whether it keeps the budget or not."""


class _Loops(NamedTuple):
    """A step with loops that can run in segments.

    Attributes:
        prepared: The step as it is, and what its budget is.
        raised: The same with loops that run functions.
        least: With loops that keep as little as they can.
    """

    prepared: Prepared
    raised: Source
    least: Source


class _Asked(NamedTuple):
    """How much less loops were asked to keep.

    Attributes:
        too_few_bytes: What was not enough for the budget.
        enough_bytes: What is, or what is to be tried.
        reasons: What is done to loops where that is enough.
    """

    too_few_bytes: int
    enough_bytes: int
    reasons: tuple[str, ...]

    def more(self, more_bytes: int) -> _Asked:
        """What is to be tried where that was not enough."""
        return self._replace(
            too_few_bytes=self.enough_bytes, enough_bytes=self.enough_bytes + more_bytes
        )

    def less(self, spare_bytes: int) -> int:
        """What may be enough, where a step that keeps the budget leaves so much of it."""
        halfway_bytes = (self.too_few_bytes + self.enough_bytes) // 2
        return max(self.enough_bytes - spare_bytes, halfway_bytes)


class _Tried(NamedTuple):
    """An attempt, and what came of it."""

    pipeline: Pipeline
    result: OptimizationResult

    @property
    def is_plan(self) -> bool:
        """Whether it did what it was made for."""
        return not is_futile(self.pipeline, self.result)


class Attempts(NamedTuple):
    """How the budgets of one step are tried to be kept.

    Attributes:
        optimizer: Makes each attempt.
        item: The step.
        pipeline: All passes of the level.
        simulators: How its graphs are simulated, if they are.
        deadline_s: The `time.monotonic()` after which no further attempt is made.
    """

    optimizer: Optimizer
    item: GrapplerItem
    pipeline: Pipeline
    simulators: Simulators
    deadline_s: float

    def best(self, prepared: Prepared) -> OptimizationResult:
        """The step with the lowest peak that is found, or the first one that keeps the budgets.

        Where the graph as it is does not, its loops run in segments; see `CheckpointLoops`. That
        comes first where a single operation, as a loop is one, needs more than the budget, and
        where loops keep more than that together. Where they can, loops that Grappler has taken
        apart are one operation each in all attempts: what follows one waits for all of it. Where
        they cannot, they are so only if the budget is not kept otherwise: what an operation reads
        can be computed again, what enters a loop of Switch and Merge cannot.
        """
        pipeline, best = self.pipeline, None
        approaching = time_for_planning(pipeline).share(_SHARE_OF_APPROACHES)
        is_out_of_reach = prepared.is_out_of_reach
        if not pipeline.first:
            return self._best_of(prepared, pipeline, is_out_of_reach=is_out_of_reach)
        raised = with_functions(prepared.source)
        least = in_segments(prepared, raised, pipeline, self.simulators)
        if not least.edits:
            best = self._best_of(prepared, pipeline, is_out_of_reach=is_out_of_reach)
            if not keeps_budgets(best) and raised is not prepared.source:
                best = _better(self._result(raised, prepared, pipeline, is_first=False), best)
            return least.told_in(best)
        if not is_out_of_reach and not loops_keep_too_much(prepared, raised):
            whole = self.optimizer.prepare(raised, self.simulators, prepared)
            best = self._best_of(whole, without_lowest(pipeline))
            if keeps_budgets(best):
                return best
        loops = _Loops(prepared, raised, least)
        best, asked = self._approached(best, loops, approaching)
        if best is None or not keeps_budgets(best):
            best = _better(self._result(least, prepared, pipeline, is_first=best is None), best)
        if keeps_budgets(best):
            return self._with_fewer_turns(best, loops, asked, approaching)
        if _peaks_in_loop(_after(best)) and prepared.parts[0].context.inter_op_threads > 1:
            # Slower, and lower where a turn has much in use.
            serial = one_turn_at_a_time(pipeline)
            best = _better(self._result(least, prepared, serial, is_first=False), best)
        return best

    def _approached(
        self, best: OptimizationResult | None, loops: _Loops, time_limit: TimeLimit
    ) -> tuple[OptimizationResult | None, _Asked]:
        """The step with as many turns in segments as its budget asks for.

        What is missing to the best so far is what loops have to keep less, or to the step as it is;
        and where that was not enough, more.
        """
        prepared, raised, least = loops
        limits, pipeline = prepared.limits, without_lowest(self.pipeline)
        missing_bytes = prepared.over_bytes
        if best is not None:
            missing_bytes = limits.missing_bytes(_after(best).peak_bytes)
        asked = _Asked(0, missing_bytes, tuple(least.reasons))
        tried = [asked.reasons]
        for number in range(_APPROACHES):
            # One is made in any case: it takes no longer than to let all turns run again, and
            # what comes out takes less time in each step.
            if number and time_limit.is_over:
                break
            source = in_segments(prepared, raised, pipeline, self.simulators, asked.enough_bytes)
            reasons = tuple(source.reasons)
            if reasons in tried:
                break
            result = self._result(source, prepared, pipeline, is_first=best is None)
            best = _better(result, best)
            if keeps_budgets(best):
                return best, asked._replace(reasons=reasons)
            tried.append(reasons)
            still_bytes = limits.missing_bytes(_after(result).peak_bytes)
            more_bytes = max(still_bytes, asked.enough_bytes // _LEAST_MORE)
            asked = asked.more(more_bytes)
        return best, asked

    def _with_fewer_turns(
        self, best: OptimizationResult, loops: _Loops, asked: _Asked, time_limit: TimeLimit
    ) -> OptimizationResult:
        """The step with fewer turns in segments than were enough, if its budget is kept then too.

        What loops keep less is not all that a plan saves: it changes the rest of the step as well.
        """
        prepared, raised, _ = loops
        pipeline = without_lowest(self.pipeline)
        is_enough = {asked.reasons: True}
        while len(is_enough) <= _RETURNS and not time_limit.is_over:
            spare_bytes = prepared.limits.spare_bytes(_after(best).peak_bytes)
            less_bytes = asked.less(spare_bytes)
            if spare_bytes * _LEAST_SPARE < prepared.limits.total_bytes:
                break
            if (asked.enough_bytes - less_bytes) * _LEAST_LESS <= asked.enough_bytes:
                break
            source = in_segments(prepared, raised, pipeline, self.simulators, less_bytes)
            reasons = tuple(source.reasons)
            if reasons not in is_enough:
                result = self._result(source, prepared, pipeline, is_first=False)
                is_enough[reasons] = keeps_budgets(result)
                best = result if is_enough[reasons] else best
            if is_enough[reasons]:
                asked = asked._replace(enough_bytes=less_bytes)
            else:
                asked = asked._replace(too_few_bytes=less_bytes)
        return best

    def _result(
        self, source: Source, prepared: Prepared, pipeline: Pipeline, *, is_first: bool
    ) -> OptimizationResult:
        """What can be made of another source."""
        changed = self.optimizer.prepare(source, self.simulators, prepared)
        return self._best_of(changed, pipeline if is_first else in_less_time(pipeline))

    def _best_of(
        self, prepared: Prepared, pipeline: Pipeline, *, is_out_of_reach: bool = False
    ) -> OptimizationResult:
        """The best of what can be made of a graph."""
        best: _Tried | None = None
        first = prepared
        is_up_to_splitting = prepared.is_up_to_splitting
        is_hopeless = is_out_of_reach and not is_up_to_splitting and is_in_haste(pipeline)
        is_less_in_parts = is_hopeless and prepared.is_less_in_parts
        for attempt in attempts(
            pipeline,
            is_out_of_reach=is_out_of_reach,
            is_up_to_splitting=is_up_to_splitting,
            is_less_in_parts=is_less_in_parts,
        ):
            if best is not None:
                is_one_enough = is_hopeless and not is_less_in_parts
                if is_one_enough and not is_worth_splitting(_after(best.result)):
                    break
                prepared = self.optimizer.prepare(first.source, self.simulators, first)
            tried = _Tried(attempt, self.optimizer.run(attempt, prepared, self.deadline_s))
            if best is None:
                best = tried
            else:
                best = self._better_of(tried, best, first, has_time=not is_less_in_parts)
            if keeps_budgets(best.result) or time.monotonic() > self.deadline_s:
                break
        assert best is not None
        return best.result

    def _better_of(self, tried: _Tried, best: _Tried, first: Prepared, *, has_time: bool) -> _Tried:
        """The better one of an attempt and the best so far, or of one between the two.

        That is looked for where the lower one takes too long, and neither keeps the budgets.

        Args:
            tried: The attempt.
            best: The best so far.
            first: The step as it is.
            has_time: Whether anything between the two is looked for.
        """
        if not best.is_plan:
            return tried
        if not tried.is_plan:
            return best
        is_taken = self._is_better(tried.result, best.result, first)
        best, other = (tried, best) if is_taken else (best, tried)
        if keeps_budgets(best.result) or not is_better(other.result, best.result):
            return best
        if first.limits.devices_bytes or not has_time:
            return best
        return self._between(other, best, first)

    def _between(self, lower: _Tried, best: _Tried, first: Prepared) -> _Tried:
        """The first that does not take too long of what is asked for a little less, or for half.

        Of what the lower one saves, that is: the lowest there is comes at any price.
        """
        lowest_bytes, best_bytes = (_after(each.result).peak_bytes for each in (lower, best))
        for part in _PARTS_OF_WHAT_IS_SAVED:
            if time.monotonic() > self.deadline_s:
                break
            limit_bytes = lowest_bytes + (best_bytes - lowest_bytes) // part
            pipeline = asking_for(lower.pipeline, limit_bytes)
            prepared = self.optimizer.prepare(first.source, self.simulators, first)
            between = _Tried(pipeline, self.optimizer.run(pipeline, prepared, self.deadline_s))
            if between.is_plan and self._is_better(between.result, best.result, first):
                return between
        return best

    def _is_better(
        self, result: OptimizationResult, other: OptimizationResult, first: Prepared
    ) -> bool:
        """Whether a result is to be taken.

        Where a program waits for it and neither keeps the budget, a lower peak is not worth any
        time: who splits operations may compute much of them again in each part.
        """
        is_lower, costs = is_better(result, other), first.parts[0].context.costs
        if keeps_budgets(result) or costs is None or not is_in_haste(self.pipeline):
            return is_lower
        one, two = (1 + estimate_overhead(self.item, each, costs) for each in (result, other))
        return one <= MOST_TIME * two if is_lower else two > MOST_TIME * one


def _better(result: OptimizationResult, best: OptimizationResult | None) -> OptimizationResult:
    """The better one of a result and the best so far."""
    return result if best is None or is_better(result, best) else best


def _after(result: OptimizationResult) -> MemoryTimeline:
    """The step's memory as it is predicted."""
    assert result.report.runtime is not None
    return result.report.runtime.after


def _peaks_in_loop(timeline: MemoryTimeline) -> bool:
    """Whether the most is in use while a loop runs."""
    node = timeline.sequence[timeline.peak_position] if timeline.sequence else None
    return node is not None and timeline.buffer_graph.nodes[node].op in LOOPS
