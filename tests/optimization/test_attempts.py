"""What is tried for a budget, in which order, and how a limited time is shared."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from support.attention import attention_step

from memopt.errors import BudgetError
from memopt.item import GrapplerItem
from memopt.optimization.attempts import attempts
from memopt.optimizer import MemoryOptimizer
from memopt.passes import Fission, Rematerialization

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.costs.cost_model import CostModel
    from memopt.optimization.pipeline import Pipeline
    from memopt.passes import Pass
    from memopt.result import OptimizationResult

P = TypeVar("P", bound="Pass")


def pipeline(planning_seconds: float = 0.0, *, find_lowest: bool = True) -> Pipeline:
    planner = Rematerialization(planning_seconds=planning_seconds, find_lowest=find_lowest)
    return MemoryOptimizer("ordered", budget="50%", rematerialization=planner).pipeline()


def described(one: Pipeline) -> str:
    fission = find(one, Fission)
    if fission is None:
        return "whole"
    assert one.decisive == Fission.name
    return "lowest" if fission.lowest else "split"


def find(one: Pipeline, kind: type[P]) -> P | None:
    return next((each for each in one.once if isinstance(each, kind)), None)


@pytest.mark.parametrize(
    ("is_out_of_reach", "expected"),
    [(False, ["whole", "split", "lowest"]), (True, ["split", "whole", "lowest"])],
)
def test_without_a_limit_of_time_all_are_tried(is_out_of_reach: bool, expected: list[str]) -> None:
    tried = list(attempts(pipeline(), is_out_of_reach=is_out_of_reach))
    assert [described(each) for each in tried] == expected


def test_the_lowest_is_not_looked_for_where_nobody_wants_it() -> None:
    tried = attempts(pipeline(find_lowest=False), is_out_of_reach=False)
    assert [described(each) for each in tried] == ["whole", "split"]


def test_what_is_within_reach_has_all_of_the_time_first() -> None:
    first, second = attempts(pipeline(4.0), is_out_of_reach=False)
    assert [described(each) for each in (first, second)] == ["whole", "split"]
    assert seconds_of(first) == [4.0]
    assert seconds_of(second) == [1.0, 4.0, 1.0]


def test_after_all_of_the_time_nothing_else_is_tried() -> None:
    tried = attempts(pipeline(1e-9), is_out_of_reach=False)
    assert [described(each) for each in tried] == ["whole"]


def test_out_of_reach_what_is_split_has_half_of_the_time_for_each() -> None:
    first, second = attempts(pipeline(4.0), is_out_of_reach=True)
    assert [described(each) for each in (first, second)] == ["whole", "split"]
    assert seconds_of(first) == [4.0]
    assert seconds_of(second) == [2.0, 4.0, 2.0]


def test_beside_what_cannot_be_split_the_others_are_as_far_as_it_helps() -> None:
    first, second = attempts(pipeline(4.0), is_out_of_reach=True, is_less_in_parts=True)
    assert [described(each) for each in (first, second)] == ["lowest", "whole"]
    assert seconds_of(first) == [2.0, 4.0, 2.0]
    # Nothing was done in the first one.
    assert 3.0 <= seconds_of(second)[0] <= 4.0


def test_after_what_is_split_in_vain_most_of_the_time_is_left_in_any_case() -> None:
    _, second = attempts(pipeline(1e-9), is_out_of_reach=True, is_less_in_parts=True)
    assert seconds_of(second) == pytest.approx([0.75e-9])


def test_where_splitting_decides_it_comes_first_with_half_of_the_time() -> None:
    first, second = attempts(pipeline(4.0), is_out_of_reach=True, is_up_to_splitting=True)
    assert [described(each) for each in (first, second)] == ["split", "whole"]
    assert seconds_of(first) == [2.0, 4.0, 2.0]
    assert seconds_of(second) == [2.0]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        # The gradient of the softmax needs more by itself, and can be split.
        ("40%", ["split"]),
        # No plan comes near that: a product of a gradient alone needs more, and cannot be split.
        ("5%", ["lowest", "whole"]),
    ],
)
def test_whether_splitting_decides_is_seen_from_what_needs_more_than_the_budget(
    budget: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = noting_attempts(monkeypatch)
    every_time_is_worth_it(monkeypatch)
    optimizer = MemoryOptimizer(
        "ordered",
        budget=budget,
        rematerialization=Rematerialization(planning_seconds=1.0),
        pass_options=("fission{try_kernels=false}",),
    )
    item = GrapplerItem.from_concrete_function(attention_step().function)
    with suppress(BudgetError):
        optimizer.optimize(None, item)
    assert tried == expected


def test_out_of_reach_what_cannot_be_split_is_planned_all_the_same(
    tiny_item: Callable[[str], GrapplerItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []

    def noted(*results: object) -> bool:
        compared.append(results)
        return False

    monkeypatch.setattr("memopt.optimization.best_attempt.is_better", noted)
    planner = Rematerialization(planning_seconds=2.0)
    optimizer = MemoryOptimizer(
        "ordered",
        budget=1000,
        rematerialization=planner,
        # No operation needs more than that, so none is split.
        pass_options=("fission{memory_limit=1099511627776}",),
    )
    with pytest.raises(BudgetError) as caught:
        optimizer.optimize(None, tiny_item("bert"))
    # What was to be split and was not is not compared with a plan.
    assert not compared
    runtime = caught.value.result.report.runtime
    assert runtime.after.step_peak_bytes < 0.9 * runtime.before.step_peak_bytes


def test_beside_what_cannot_be_split_a_budget_out_of_reach_gives_no_more_than_one_within(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks for less must not get more."""
    every_time_is_worth_it(monkeypatch)
    item = GrapplerItem.from_concrete_function(attention_step().function)

    def lowest(budget: str) -> int:
        optimizer = MemoryOptimizer(
            "ordered",
            budget=budget,
            rematerialization=Rematerialization(planning_seconds=3.0),
            pass_options=("fission{try_kernels=false}",),
        )
        try:
            result = optimizer.optimize(None, item)
        except BudgetError as error:
            result = error.result
        assert result.report.runtime is not None
        return result.report.runtime.after.peak_bytes

    assert lowest("5%") <= lowest("40%")


@pytest.mark.parametrize(("share", "is_split"), [(0.5, False), (100.0, True)])
def test_out_of_reach_nothing_is_split_where_most_is_kept(
    share: float,
    is_split: bool,
    tiny_item: Callable[[str], GrapplerItem],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = noting_attempts(monkeypatch)
    monkeypatch.setattr("memopt.optimization.attempts._NEAR_THE_FLOOR", share)
    planner = Rematerialization(planning_seconds=1.0)
    with pytest.raises(BudgetError):
        MemoryOptimizer("ordered", budget=1000, rematerialization=planner).optimize(
            None, tiny_item("mlp")
        )
    assert tried == ["whole", "split"][: 1 + is_split]


@pytest.mark.parametrize(
    ("seconds", "share", "is_split"),
    [
        (5.0, 0.0, True),
        (5.0, 3.0, False),
        pytest.param(0.0, 3.0, True, marks=pytest.mark.slow),
    ],
)
def test_who_waits_for_a_plan_gets_no_slow_one_for_a_peak_that_is_over_the_budget_too(
    seconds: float, share: float, is_split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations in parts may be computed again in each. Without haste the lowest counts."""

    def estimated(_: GrapplerItem, result: OptimizationResult, __: CostModel) -> float:
        return share if is_in_parts(result) else 0.0

    monkeypatch.setattr("memopt.optimization.best_attempt.estimate_overhead", estimated)
    optimizer = MemoryOptimizer(
        "ordered",
        budget=300_000,
        rematerialization=Rematerialization(planning_seconds=seconds),
        # What it needs in parts is less than as a whole, and more than the budget.
        pass_options=("fission{try_kernels=false,memory_limit=500000}",),
    )
    item = GrapplerItem.from_concrete_function(attention_step().function)
    with pytest.raises(BudgetError) as caught:
        optimizer.optimize(None, item)
    assert is_in_parts(caught.value.result) is is_split


def test_who_waits_for_a_plan_gets_one_in_parts_that_is_asked_for_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the lowest one takes too long: half-way to what nothing is split in."""
    whole, split = set[int](), list[int]()

    def estimated(_: GrapplerItem, result: OptimizationResult, __: CostModel) -> float:
        """The first in parts takes too long, another one does not."""
        assert result.report.runtime is not None
        peak_bytes = result.report.runtime.after.peak_bytes
        if not is_in_parts(result):
            whole.add(peak_bytes)
            return 0.0
        split.append(peak_bytes)
        return 3.0 if peak_bytes == split[0] else 0.0

    monkeypatch.setattr("memopt.optimization.best_attempt.estimate_overhead", estimated)
    optimizer = MemoryOptimizer(
        "ordered",
        budget=300_000,
        rematerialization=Rematerialization(planning_seconds=5.0),
        pass_options=("fission{try_kernels=false}",),
    )
    item = GrapplerItem.from_concrete_function(attention_step().function)
    with pytest.raises(BudgetError) as caught:
        optimizer.optimize(None, item)
    result = caught.value.result
    assert is_in_parts(result)
    assert split[0] < result.report.runtime.after.peak_bytes < min(whole)


def test_out_of_reach_nothing_between_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan keeps the budget, and two have been waited for."""
    tried = noting_attempts(monkeypatch)
    monkeypatch.setattr(
        "memopt.optimization.best_attempt.estimate_overhead",
        lambda _, result, __: 3.0 if is_in_parts(result) else 0.0,
    )
    optimizer = MemoryOptimizer(
        "ordered",
        budget="5%",
        rematerialization=Rematerialization(planning_seconds=1.0),
        pass_options=("fission{try_kernels=false}",),
    )
    item = GrapplerItem.from_concrete_function(attention_step().function)
    with pytest.raises(BudgetError) as caught:
        optimizer.optimize(None, item)
    assert tried == ["lowest", "whole"]
    assert not is_in_parts(caught.value.result)


def every_time_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no lower peak be left for the time that it takes."""
    monkeypatch.setattr("memopt.optimization.best_attempt.estimate_overhead", lambda *_: 0.0)


def noting_attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is tried from now on."""
    tried: list[str] = []

    def noted(self: MemoryOptimizer, pipeline: Pipeline, *rest: Any) -> OptimizationResult:
        tried.append(described(pipeline))
        return run(self, pipeline, *rest)

    run = MemoryOptimizer.run
    monkeypatch.setattr(MemoryOptimizer, "run", noted)
    return tried


def is_in_parts(result: OptimizationResult) -> bool:
    return any(done.name.startswith("fission") and done.edits for done in result.report.passes)


def seconds_of(one: Pipeline) -> list[float]:
    """For planning and trials of the splitting, and for the plan."""
    found = []
    if (fission := find(one, Fission)) is not None:
        found += [fission.planning_seconds, fission.trial_seconds]
    planner = find(one, Rematerialization)
    assert planner is not None
    return [*found, planner.planning_seconds]
