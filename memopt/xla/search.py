"""Looks for the form of a step that keeps a budget when XLA has compiled it, by compiling it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from memopt.errors import ExecutionError
from memopt.passes.checkpoint_loops import CheckpointLoops
from memopt.passes.compiled_rematerialization import NONE
from memopt.progress import task
from memopt.rematerialization.algorithms import BEST, PLANNER
from memopt.rematerialization.planned.entry import prepare
from memopt.shapes.function_calls import has_loops_anywhere
from memopt.xla.starting_point import StartingPoint, starting_point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem
    from memopt.passes.base import Pass
    from memopt.passes.compiled_rematerialization import CompiledRematerialization
    from memopt.result import PassReport
    from memopt.xla.compiler import Compiled

_ENOUGH = 0.92
"""The share of a limit that a form has to use for no larger one to be looked for."""
_MOST_IN_VAIN = 4
"""How many plans for less may come out no lower than what there was before."""
_SHARE_ALIKE = 0.6
"""The share of compilations and time after which other kernels are tried, too."""
_WORTH_DELAYING = 0.95
"""Of a peak, what it comes to at most for forms to be made in a way that copies operands late."""
_LEAST_PLANS = 3
"""How many plans are compiled, if there is time at all, before other kernels are tried."""
_MANY_COPIES = 0.1
"""Of a peak, what copies make up at least for that to be tried: some stay however late they are."""
_SMALLEST = 0.02
"""The share of the original's own memory below which no limit is tried."""
_MOST_ABOUT_LOOPS = 3
"""How often is tried how many turns have to run again."""
_LEAST_SEGMENTS = 2
"""A loop over one segment XLA takes apart; see `CheckpointLoops.least_segments`."""
_ABOUT_A_TURN = 16
"""Of what loops are asked to keep less, so large a part is asked for in addition at least."""
_LEAST_LESS = 0.02
"""Of a limit, what the next plan is made for less at least where one was over it; then double."""
_FAR_LOWER = 0.7
"""The share of a limit below which the same plan means that none needs less."""
_NEAR = 1.5
"""Of a limit, what the lowest plan comes to at most for one with little more to be the next."""


class Compiler(Protocol):
    """Says what a step needs once XLA has compiled it."""

    def compile(self, graph_def: GraphDef) -> Compiled:
        """Compile a form of a step."""


@dataclass(frozen=True)
class Form:
    """A form of a step, compiled.

    Attributes:
        compiled: The step and what it needs.
        reports: What passes did; empty for the original.
        planned_bytes: The limit of the step's own memory that the plan was made for; 0 for none.
        alike: Whether copies are in kernels like those of their originals, if there are any.
        least_bytes: What the plan comes to, as estimated, if none was found for that limit; else 0.
        keeps: Whether results are kept that XLA would compute again.
    """

    compiled: Compiled
    reports: tuple[PassReport, ...] = ()
    planned_bytes: int = 0
    alike: bool = True
    least_bytes: int = 0
    keeps: bool = False

    @property
    def time(self) -> float:
        """How often as long as the original's a step takes by its plan, as estimated."""
        edits = (edit for report in self.reports for edit in report.edits)
        return 1 + max((edit.planned.overhead for edit in edits), default=0.0)

    @property
    def step_bytes(self) -> int:
        """What the step adds to what is there before, as the compiler has it."""
        return self.compiled.memory.step_peak_bytes


@dataclass
class Search:
    """Plans forms of a step, has them compiled, and plans within less where they need more.

    What XLA holds is estimated when a plan is made, and known when it is compiled. So a plan that
    comes out higher by some bytes is made again for a limit that is lower by as many.

    Attributes:
        item: The step.
        compiler: Compiles it.
        options: What the pass is run with; its limit is set here.
        most_compilations: How often the compiler is asked at most, the original included.
        seconds: After how many seconds no other form is looked for.
        gradients: Passes that compute gradients for which XLA has no kernel in other ways.
        loops: How turns of loops run again; `None` where none do.
        forms: What was compiled, in order; the original first.
    """

    item: GrapplerItem
    compiler: Compiler
    options: CompiledRematerialization
    most_compilations: int = 9
    seconds: float = math.inf
    gradients: tuple[Pass, ...] = ()
    loops: CheckpointLoops | None = None
    forms: list[Form] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._starts: dict[CheckpointLoops | None, StartingPoint] = {}
        self.forms.append(Form(self._compile(self.item.graph_def)))

    @property
    def original(self) -> Form:
        """The step as it is."""
        return self.forms[0]

    @property
    def lowest(self) -> Form:
        """The form with the lowest peak; of equals the first."""
        return min(self.forms, key=lambda form: form.step_bytes)

    def keep_results(self) -> Form:
        """The form in which nothing is computed again, and less is computed again by XLA."""
        return self._try(0)

    def delay_operands(self, limit_bytes: int) -> Form:
        """The first form that keeps a limit, or the lowest, of those with operands copied late.

        Nothing is computed again in them, with results kept and without. If the lowest needs much
        less than what there was before, all forms from then on are made in its way. None is made
        where copies are too small a part of the peak for that.
        """
        lowest, best = self.lowest, self.options
        memory = lowest.compiled.memory
        if memory.live and memory.copied_bytes < memory.step_peak_bytes * _MANY_COPIES:
            return lowest
        for keep in dict.fromkeys((self.options.keep, NONE)):
            way = replace(best, late_operands=True, keep=keep)
            self.options = way
            form = self._try(0)
            if form.step_bytes <= limit_bytes:
                return form
            if form.step_bytes < lowest.step_bytes * _WORTH_DELAYING:
                lowest, best = form, way
        self.options = best
        return lowest

    def run_turns_again(self, limit_bytes: int) -> Form:
        """The first form that keeps a limit, or the lowest, of those whose loops run turns again.

        All forms from then on are made from the lowest.
        """
        best, lowest = self.loops, self.lowest
        enough_bytes = lowest.step_bytes - limit_bytes
        for _ in range(_MOST_ABOUT_LOOPS):
            self.loops = CheckpointLoops(enough_bytes=enough_bytes, least_segments=_LEAST_SEGMENTS)
            form = self._try(0)
            if form.step_bytes >= lowest.step_bytes:
                break
            best, lowest = self.loops, form
            missing_bytes = form.step_bytes - limit_bytes
            if missing_bytes <= 0 or self._is_over(1):
                break
            # What little is missing is in lists of which none gets shorter by less than a turn.
            enough_bytes += max(missing_bytes, enough_bytes // _ABOUT_A_TURN)
        self.loops = best
        return lowest

    def within(self, limit_bytes: int) -> Form | None:
        """The form that needs most of those found within a limit of the step's own memory.

        What needs more takes less time. `None`: there is none.
        """
        if self.original.step_bytes <= limit_bytes:
            return self.original
        kept = self.keep_results()
        if kept.step_bytes <= limit_bytes:
            return kept
        late = self.delay_operands(limit_bytes)
        if late.step_bytes <= limit_bytes:
            return late
        if has_loops_anywhere(self.item.graph_def):
            again = self.run_turns_again(limit_bytes)
            if again.step_bytes <= limit_bytes:
                return again
        first_bytes = self._first_limit(limit_bytes)
        share = _SHARE_ALIKE if self.options.alike else 1
        found = self._approach(limit_bytes, first_bytes, share)
        if found is None and self.options.alike:
            # It takes some memory; what is computed in other kernels may have the same bits.
            self.options = replace(self.options, alike=False)
            found = self._approach(limit_bytes, first_bytes)
        return found

    def _approach(self, limit_bytes: int, asked_bytes: int, share: float = 1) -> Form | None:
        """Plan within the limit, and within less until the compiler says that it is kept.

        Args:
            limit_bytes: Of the step's own memory.
            asked_bytes: What the first plan is made for.
            share: Of all compilations and of all time, what may be over at the end.
        """
        least_bytes = int(self.original.step_bytes * _SMALLEST)
        plans = _Interval(least_bytes, limit_bytes * 2)
        in_vain = over = 0
        while not self._has_enough_plans(share) and in_vain < _MOST_IN_VAIN:
            lowest_bytes = self.lowest.step_bytes
            form = self._try(asked_bytes)
            if limit_bytes * _ENOUGH < form.step_bytes <= limit_bytes:
                break
            if form.step_bytes <= limit_bytes:
                plans.low = max(plans.low, asked_bytes)
            else:
                plans.exclude(asked_bytes, form)
                in_vain += bool(form.planned_bytes) and form.step_bytes >= lowest_bytes
            over_bytes = form.step_bytes - limit_bytes
            # Where the largest limit gives the lowest plan as well, all do.
            is_far = plans.is_lowest(form) and form.step_bytes > limit_bytes * _NEAR
            if over_bytes > 0:
                over_bytes = max(over_bytes, int(limit_bytes * _LEAST_LESS) << over)
                over += 1
            asked_bytes = plans.inside(asked_bytes - over_bytes, is_far=is_far)
            if asked_bytes < least_bytes or plans.is_narrow(limit_bytes):
                break
        found = [form for form in self.forms if form.step_bytes <= limit_bytes]
        return max(found, key=lambda form: form.step_bytes, default=None)

    def _first_limit(self, limit_bytes: int) -> int:
        """What a first plan is made for: less, by what the compiler holds more than is estimated.

        That is much the same for all plans of a step. Of more than half, little is known by that.
        """
        if self.options.late_operands:
            return limit_bytes
        more_bytes = self._try(0).step_bytes - self._estimate()
        return limit_bytes - max(0, min(more_bytes, limit_bytes // 2))

    def _estimate(self) -> int:
        """What plans take the step for that nothing is computed again in, in bytes."""
        return self._starts[self.loops].estimated_bytes(self.gradients, self.options)

    def _has_enough_plans(self, share: float) -> bool:
        """Whether no further one is made.

        The first does not tell what another one comes to, which has the same bits more often than
        one with other kernels.
        """
        plans = sum(bool(form.planned_bytes) for form in self.forms)
        return self._is_over(1) or (plans >= _LEAST_PLANS and self._is_over(share))

    def _is_over(self, share: float) -> bool:
        is_late = time.monotonic() - self._started > self.seconds * share
        return is_late or len(self.forms) >= self.most_compilations * share

    def _compile(self, graph_def: GraphDef) -> Compiled:
        """Have a form compiled; XLA itself does not say how far it is."""
        number = len(self.forms) + 1
        with task(f"XLA compiles form {number} of at most {self.most_compilations}"):
            return self.compiler.compile(graph_def)

    def _try(self, limit_bytes: int) -> Form:
        """Plan within a limit of the step's own memory, 0 for none, and have that compiled.

        Of a plan that was compiled already, the form that it was then.
        """
        graph_def, reports = self._rewrite(limit_bytes)
        for known in self.forms:
            if graph_def == known.compiled.graph_def:
                return known
        # What runs again of a loop is in other kernels than before.
        alike = self.options.alike and self.loops is None
        try:
            compiled = self._compile(graph_def)
        except ExecutionError:
            if not self._starts[self.loops].reports:
                raise
            # XLA takes the loops only as they were.
            lean = self._starts.get(None) if self.loops else None
            self._starts[self.loops] = lean or StartingPoint(self.item)
            return self._try(limit_bytes)
        least_bytes, keeps = _least_bytes(reports, limit_bytes), self.options.keep != NONE
        form = Form(compiled, reports, limit_bytes, alike, least_bytes, keeps)
        self.forms.append(form)
        return form

    def _rewrite(self, limit_bytes: int) -> tuple[GraphDef, tuple[PassReport, ...]]:
        if limit_bytes and self.options.algorithm in (BEST, PLANNER):
            # To load the planner, or to compile it once on a machine, is no search.
            before = time.monotonic()
            prepare()
            self._started += time.monotonic() - before
        if self.loops not in self._starts:
            self._starts[self.loops] = starting_point(self.item, self.loops)
        passes = [*self.gradients, replace(self.options, step_limit=limit_bytes)]
        found = self._starts[self.loops].rewritten(passes, self.original.compiled.memory)
        return found.item.graph_def, found.reports


def _least_bytes(reports: Iterable[PassReport], limit_bytes: int) -> int:
    """What a plan comes to that does not keep the limit which it was made for; 0 if it does."""
    edits = [edit for report in reports for edit in report.edits]
    planned_bytes = max((edit.planned.step_bytes for edit in edits), default=0)
    return planned_bytes if planned_bytes > limit_bytes else 0


@dataclass
class _Interval:
    """Limits of plans: up to `low` with room left or not worth a try, from `high` on too large.

    Or too large as well, where no plan needs less: what is computed again has to be held, too, so
    that the least for the planner need not be the least for the compiler.
    """

    low: int
    high: int
    _too_large: dict[int, Form] = field(default_factory=dict)
    _lowest: Form | None = None

    def __post_init__(self) -> None:
        self._most = self.high

    def exclude(self, asked_bytes: int, form: Form) -> None:
        """Note that the form for a limit is too large: larger ones are, but for the floor."""
        same = [asked for asked, known in self._too_large.items() if known is form]
        others = [asked for asked, known in self._too_large.items() if known is not form]
        self._too_large[asked_bytes] = form
        if form.least_bytes or asked_bytes <= max(same, default=0) * _FAR_LOWER:
            self._lowest = form
        if form is not self._lowest:
            self.high = min(self.high, asked_bytes)
            return
        self.low = max(self.low, asked_bytes, form.least_bytes - 1, *same)
        self.high = min((asked for asked in others if asked > self.low), default=self._most)

    def is_lowest(self, form: Form) -> bool:
        """Whether a form is known to be that of the least for the planner."""
        return form is self._lowest

    def inside(self, asked_bytes: int, *, is_far: bool) -> int:
        """A limit; where that is known to be of no use the largest, or one half-way.

        Args:
            asked_bytes: The limit.
            is_far: Whether half-way is not far enough.
        """
        if self.low < asked_bytes < self.high:
            return asked_bytes
        return self.high - 1 if is_far else (self.low + self.high) // 2

    def is_narrow(self, limit_bytes: int) -> bool:
        """Whether there is nothing left to look for."""
        return self.high - self.low <= max(1, limit_bytes * _SMALLEST)
