"""The search for a form that keeps a budget, with plans of which the compiler's peak is given."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.recurrent import recurrent_step
from tensorflow.core.framework.graph_pb2 import GraphDef

from memopt.errors import ExecutionError
from memopt.item import GrapplerItem
from memopt.passes import CompiledRematerialization
from memopt.passes.compiled_rematerialization import ALL, NONE
from memopt.xla.buffer_assignment import CompiledMemory, LiveValue
from memopt.xla.search import Form, Search

if TYPE_CHECKING:
    from collections.abc import Callable

ORIGINAL, FLOOR = 1000, 100
"""What the step needs, and the lowest limit that the planner can keep."""


def compiled(step_bytes: int, copied_bytes: int = 0) -> Any:
    live = (LiveValue("dot.1", "MatMul", step_bytes), LiveValue("copy.1", "", copied_bytes))
    return SimpleNamespace(memory=CompiledMemory(step_bytes, 0, 0, live), graph_def=None)


class Plans(Search):
    """Looks among plans that need what is told, without making any."""

    def __init__(
        self,
        peak_of: Callable[[int], int],
        alike_bytes: int | None = None,
        copied_bytes: int = ORIGINAL // 2,
        estimated_bytes: int = ORIGINAL,
    ) -> None:
        compiler = SimpleNamespace(compile=lambda _: compiled(ORIGINAL, copied_bytes))
        item = cast("Any", SimpleNamespace(graph_def=GraphDef()))
        super().__init__(item, compiler, CompiledRematerialization(alike=bool(alike_bytes)))
        self.peak_of = peak_of
        self.alike_bytes = alike_bytes or 0
        self.estimated_bytes = estimated_bytes

    def _estimate(self) -> int:
        return self.estimated_bytes

    def _try(self, limit_bytes: int) -> Form:
        if not limit_bytes:
            return self.original
        planned = max(limit_bytes, FLOOR)
        for form in self.forms:
            if (form.planned_bytes, form.alike) == (planned, self.options.alike):
                return form
        peak_bytes = self.peak_of(planned) + self.alike_bytes * self.options.alike
        self.forms.append(Form(compiled(peak_bytes), (), planned, self.options.alike))
        return self.forms[-1]


@pytest.mark.parametrize("limit", [900, 500, 300, 160])
def test_plans_are_made_for_less_by_what_they_need_more(limit: int) -> None:
    search = Plans(lambda planned: planned + 50)
    form = search.within(limit)
    assert form is not None
    assert 0.92 * limit < form.step_bytes <= limit
    assert len(search.forms) <= 4


@pytest.mark.parametrize(("limit", "asked"), [(500, 350), (280, 140), (900, 750)])
def test_a_first_plan_is_made_for_less_by_what_the_estimate_misses(limit: int, asked: int) -> None:
    """But for no less than half."""
    search = Plans(lambda planned: planned + 150, estimated_bytes=ORIGINAL - 150)
    assert search._first_limit(limit) == asked
    assert search.within(limit) is not None
    assert search.forms[1].planned_bytes == asked
    assert Plans(lambda planned: planned, estimated_bytes=1500)._first_limit(limit) == limit


def test_the_lowest_plan_need_not_be_the_lowest_peak() -> None:
    """Where nothing less can be planned, and that is too large, the best is something higher."""
    search = Plans(lambda planned: 450 + abs(planned - 300))
    form = search.within(500)
    assert form is not None
    assert form.step_bytes <= 500
    assert form.planned_bytes > FLOOR


def test_steps_get_longer_where_plans_are_a_little_over_again_and_again() -> None:
    """What is missing is not what plans for less by as much get lower by."""
    search = Plans(lambda planned: 503 if planned > 430 else planned)
    form = search.within(500)
    assert form is not None
    assert form.step_bytes <= 430
    assert [each.step_bytes for each in search.forms[1:5]] == [503, 503, 503, 430]


def test_more_is_asked_for_where_the_lowest_plan_needs_too_much_at_once() -> None:
    """Nothing lower can be planned than what the limit asks for."""
    search = Plans(lambda planned: planned - 55 if planned > FLOOR else 200)
    form = search.within(FLOOR - 10)
    assert form is not None
    assert form.planned_bytes > FLOOR


def test_operands_are_delayed_in_one_way_if_that_keeps_the_limit() -> None:
    ways: list[str] = []

    class Late(Plans):
        def _try(self, limit_bytes: int) -> Form:
            assert not limit_bytes
            ways.append(self.options.keep)
            return Form(compiled(400 - 100 * len(ways)))

    search = Late(lambda planned: planned)
    assert search.delay_operands(350).step_bytes == 300
    assert ways == [ALL]
    assert search.delay_operands(150).step_bytes == 100
    assert ways == [ALL, ALL, NONE]
    assert search.options.late_operands
    assert search.options.keep == NONE


def test_operands_are_not_delayed_for_next_to_nothing() -> None:
    class Late(Plans):
        def _try(self, limit_bytes: int) -> Form:
            assert not limit_bytes
            return Form(compiled(ORIGINAL - 10))

    search = Late(lambda planned: planned)
    assert search.delay_operands(500) is search.original
    assert not search.options.late_operands


def test_operands_are_not_delayed_where_the_peak_has_few_copies() -> None:
    """There is nothing to compile for that."""

    class Early(Plans):
        def _try(self, limit_bytes: int) -> Form:
            raise AssertionError(limit_bytes)

    search = Early(lambda planned: planned, copied_bytes=ORIGINAL // 50)
    assert search.delay_operands(500) is search.original


def test_a_slow_compiler_is_asked_for_three_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one tells what the next are made for; other kernels are tried after them."""

    def late(peak_of: Callable[[int], int], now_s: float) -> Plans:
        search = Plans(peak_of, alike_bytes=10)
        search._started, search.seconds = 0.0, 10.0
        monkeypatch.setattr("memopt.xla.search.time.monotonic", lambda: now_s)
        return search

    found = late(lambda planned: 50 + planned * 3 // 2, 8.0).within(500)
    assert found is not None
    assert found.alike
    search = late(lambda planned: 501 + planned // 10, 8.0)
    assert search.within(500) is None
    assert [each.alike for each in search.forms if each.planned_bytes][:4] == [True] * 3 + [False]
    search = late(lambda planned: 50 + planned * 3 // 2, 10.5)
    assert search.within(500) is None
    assert search.forms == [search.original]


def test_loading_the_planner_is_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half a minute once on a machine."""
    search = Plans(lambda planned: planned)
    search.seconds = 10.0
    now_s = [time.monotonic()]
    start: Any = SimpleNamespace(item=SimpleNamespace(graph_def=GraphDef()), reports=())
    start.rewritten = lambda *_: start
    monkeypatch.setattr("memopt.xla.search.time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("memopt.xla.search.starting_point", lambda *_: start)
    monkeypatch.setattr("memopt.xla.search.prepare", lambda: now_s.append(now_s.pop() + 30))
    search._rewrite(500)
    assert not search._is_over(1)
    now_s[0] += 11
    assert search._is_over(1)


def test_other_kernels_get_their_share_of_the_search() -> None:
    """Where like ones need too much whatever is planned."""
    search = Plans(lambda planned: 450 + planned // 10, alike_bytes=60)
    form = search.within(500)
    assert form is not None
    assert form.step_bytes <= 500
    assert not form.alike
    assert sum(each.alike for each in search.forms) <= 0.7 * search.most_compilations


def test_nothing_is_found_where_nothing_is_small_enough() -> None:
    search = Plans(lambda planned: planned + 400)
    assert search.within(450) is None
    assert search.lowest.planned_bytes == FLOOR
    assert len(search.forms) <= search.most_compilations


def test_a_search_for_far_less_than_there_is_ends_soon() -> None:
    """Where the largest limit has the lowest plan, all limits have."""
    asked: list[int] = []

    class Watched(Plans):
        def _try(self, limit_bytes: int) -> Form:
            asked.append(limit_bytes)
            return super()._try(limit_bytes)

    search = Watched(lambda planned: planned + 400)
    assert search.within(FLOOR // 2) is None
    assert search.lowest.planned_bytes == FLOOR
    assert len([limit for limit in asked if limit]) == 3


class Least(Plans):
    """Plans that say where they do not keep the limit that they were made for."""

    def _try(self, limit_bytes: int) -> Form:
        form = super()._try(limit_bytes)
        return replace(form, least_bytes=FLOOR) if 0 < limit_bytes < FLOOR else form


def test_one_plan_tells_that_no_limit_has_another() -> None:
    search = Least(lambda planned: planned + 400, alike_bytes=10)
    assert search.within(FLOOR // 3) is None
    planned = [form for form in search.forms if form.planned_bytes]
    assert [form.alike for form in planned] == [True, False]


def test_a_plan_that_comes_to_more_than_it_was_made_for_is_not_made_again() -> None:
    """Larger limits may have a lower peak all the same."""
    asked: list[int] = []

    class Watched(Least):
        def _try(self, limit_bytes: int) -> Form:
            asked.append(limit_bytes)
            return super()._try(limit_bytes)

    search = Watched(lambda planned: 90 if planned > FLOOR * 3 // 2 else 400)
    form = search.within(FLOOR - 1)
    assert form is not None
    assert form.step_bytes == 90
    assert [limit for limit in asked if limit][:1] == [FLOOR - 1]
    assert all(limit >= FLOOR for limit in asked if limit and limit != FLOOR - 1)


def test_loops_that_xla_takes_only_as_they_are_stay() -> None:
    """Other forms of the step are looked for all the same."""
    step = recurrent_step(16, width=16)
    item = GrapplerItem.from_concrete_function(step.function)
    as_it_is = {each.signature.name for each in item.graph_def.library.function}

    def compile_form(graph_def: GraphDef) -> Any:
        if any(each.signature.name not in as_it_is for each in graph_def.library.function):
            raise ExecutionError("XLA does not compile it")
        return SimpleNamespace(
            memory=CompiledMemory(ORIGINAL, 0, 0),
            graph_def=graph_def,
        )

    compiler = cast("Any", SimpleNamespace(compile=compile_form))
    search = Search(item, compiler, CompiledRematerialization())
    assert search.keep_results().compiled.graph_def.library == item.graph_def.library
    assert search.within(ORIGINAL // 2) is None
    assert search.forms
