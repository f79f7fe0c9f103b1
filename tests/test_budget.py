"""Budgets: what they mean, that they are kept in real runs, and what happens if they cannot be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

import memopt
from memopt.allocator.training import has_room
from memopt.errors import BudgetError, OptionsError
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.options import Budget, Level
from memopt.passes.rematerialization import Rematerialization
from memopt.report.dot import dot_text
from memopt.report.memory_log import HEADER, memory_log_lines

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.models import TrainingStep
    from memopt.result import OptimizationResult, RuntimeMemory


@pytest.fixture(scope="module")
def step() -> TrainingStep:
    """Large enough for what the layers keep to be more than what an update takes."""
    return MODELS["bert"](batch=8, tokens=32, width=32, layers=2, heads=2, vocabulary=50)


@pytest.fixture(scope="module")
def item(step: TrainingStep) -> GrapplerItem:
    return GrapplerItem.from_concrete_function(step.function)


def runtime_of(result: OptimizationResult) -> RuntimeMemory:
    assert result.report.runtime is not None
    return result.report.runtime


@pytest.fixture(scope="module")
def halved(item: GrapplerItem) -> OptimizationResult:
    return memopt.optimize(item, budget="50%")


# --- what a budget means -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit_bytes"),
    [("60%", 1600), ("100 %", 2000), ("0.1%", 1001), (1234, 1234), ("2KiB", 2048)],
)
def test_a_share_is_of_the_steps_own_and_bytes_are_of_everything(
    text: str | int, limit_bytes: int
) -> None:
    assert Budget.parse(text).limit_bytes(held_bytes=1000, step_peak_bytes=1000) == limit_bytes


@pytest.mark.parametrize("text", ["0%", "101%", "-5%", "%", "", "all", 0, -1])
def test_what_is_no_budget_is_refused(text: str | int) -> None:
    with pytest.raises(
        OptionsError, match="is no budget, such as 6GiB, 60%, device or GPU:0=6GiB,GPU:1=8GiB"
    ):
        Budget.parse(text)


def test_what_a_device_has_is_known_inside_tensorflow_alone(item: GrapplerItem) -> None:
    with pytest.raises(OptionsError, match="is known where a step runs"):
        memopt.optimize(item, budget="device")


@pytest.mark.parametrize("text", ["60%", "12.5%", "1000", "device"])
def test_a_budget_prints_as_it_is_read(text: str) -> None:
    assert str(Budget.parse(text)) == text
    assert Budget.parse(Budget.parse(text)) == Budget.parse(text)


def test_a_budget_asks_for_the_level_that_keeps_it(item: GrapplerItem) -> None:
    with pytest.raises(OptionsError, match="a budget is kept at level ordered, not swapping"):
        memopt.optimize(item, budget="60%", level="swapping_heuristics")
    assert memopt.optimize(item, budget="90%").report.level is Level.ORDERED


# --- kept ----------------------------------------------------------------------------------------


def test_a_budget_is_kept_by_the_real_step(step: TrainingStep, halved: OptimizationResult) -> None:
    runtime = runtime_of(halved)
    verified = memopt.verify(
        step.function, halved.graph_def, inputs=step.inputs, steps=2, timing_rounds=0
    )
    assert verified.equal
    assert verified.rewritten.step_peak_bytes == runtime.after.step_peak_bytes
    assert verified.rewritten.peak_bytes <= runtime.after.peak_bytes <= runtime.budget_bytes
    # Some small constants are counted that the allocator does not have.
    assert verified.rewritten.held_bytes == pytest.approx(runtime.after.held_bytes, rel=0.01)
    assert verified.original.step_peak_bytes == pytest.approx(
        runtime.before.step_peak_bytes, rel=0.05
    )


def test_a_budget_that_the_order_keeps_makes_no_copies(item: GrapplerItem) -> None:
    report = memopt.optimize(item, budget="100%").report
    assert report.nodes_after <= report.nodes_before
    assert not [edit for done in report.named("rematerialization") for edit in done.edits[:-1]]


def test_the_options_reach_the_pass(item: GrapplerItem) -> None:
    report = memopt.optimize(
        item, budget="70%", algorithm="standard", scheduler="postorder", small_node_limit=0
    ).report
    (done,) = (done for done in report.named("rematerialization") if not done.function)
    assert done.name == "rematerialization{algorithm=standard,scheduler=postorder}"


def test_flags_reach_the_pass_unless_the_program_says_something_else(
    item: GrapplerItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMOPT_FLAGS", "--budget=80% --scheduler=dfs --algorithm=standard")
    report = memopt.optimize(item, scheduler="list").report
    assert report.level is Level.ORDERED
    assert report.named("rematerialization")[0].name == (
        "rematerialization{algorithm=standard,scheduler=list}"
    )


def test_the_same_budget_gives_the_same_bytes(
    item: GrapplerItem, halved: OptimizationResult
) -> None:
    again = memopt.optimize(item, budget="50%").graph_def
    assert again.SerializeToString(deterministic=True) == (
        halved.graph_def.SerializeToString(deterministic=True)
    )


def test_a_rewritten_function_computes_again() -> None:
    step = MODELS["mlp"](batch=512, width=32, layers=8)
    rewritten = memopt.rewrite(step.function, budget="60%")
    nodes = {node.name for node in rewritten.graph.as_graph_def().node}
    assert any(name.startswith("Recomputed/") for name in nodes)


# --- not kept ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_item() -> GrapplerItem:
    """A refusal looks for the lowest peak, which takes a while."""
    return GrapplerItem.from_concrete_function(MODELS["mlp"](batch=64, width=64, layers=6).function)


def test_what_cannot_be_kept_is_an_error_that_says_what_could(small_item: GrapplerItem) -> None:
    with pytest.raises(BudgetError) as caught:
        memopt.optimize(small_item, budget=20_000)
    error = caught.value
    assert error.budget_bytes == 20_000
    assert str(error).startswith(
        f"the budget of 20000 bytes cannot be kept: the lowest peak that was found is "
        f"{error.lowest_bytes} bytes, "
    )
    assert re.search(
        r"where the largest results in use are '[^']+' \([0-9]+ bytes\), '", str(error)
    )
    floor = re.search(r"no recomputation gets below ([0-9]+) bytes, which '", str(error))
    assert floor is not None
    assert 0.3 * error.lowest_bytes < int(floor[1]) <= error.lowest_bytes
    found = runtime_of(error.result)
    assert (found.after.peak_bytes, found.budget_bytes) == (error.lowest_bytes, 20_000)
    assert memopt.optimize(small_item, budget=error.lowest_bytes).report.runtime is not None


@pytest.mark.slow
def test_a_refusal_hands_over_a_step_that_runs(step: TrainingStep, item: GrapplerItem) -> None:
    options = ("rematerialization{algorithm=standard}",)
    with pytest.raises(BudgetError) as caught:
        memopt.optimize(item, budget="1%", pass_options=options)
    found = caught.value.result
    verified = memopt.verify(
        step.function, found.graph_def, inputs=step.inputs, steps=2, timing_rounds=0
    )
    assert verified.equal
    assert verified.rewritten.peak_bytes <= caught.value.lowest_bytes


@pytest.mark.slow
def test_a_refusal_without_the_lowest_peak_tells_what_was_tried(small_item: GrapplerItem) -> None:
    """It is there sooner, and on a small step as good, to one percent."""
    before = memopt.optimize(small_item, level="ordered").report.runtime
    assert before is not None
    lowest, tried = (_refused_at(small_item, find_lowest) for find_lowest in (True, False))
    assert 0.99 * lowest <= tried <= before.after.peak_bytes


def _refused_at(item: GrapplerItem, find_lowest: bool) -> int:
    options = (f"rematerialization{{find_lowest={str(find_lowest).lower()}}}",)
    with pytest.raises(BudgetError) as caught:
        memopt.optimize(item, budget="2%", pass_options=options)
    return caught.value.lowest_bytes


def test_a_refusal_tells_which_pass_was_undone(
    small_item: GrapplerItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in a pass is not taken for a budget that cannot be kept."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("integer modulo by zero")

    monkeypatch.setattr(Rematerialization, "run", fail)
    with pytest.raises(BudgetError, match=r"undone: remat.*ZeroDivisionError: integer modulo"):
        memopt.optimize(small_item, budget="50%")


@pytest.mark.parametrize(
    "algorithm",
    ["best", pytest.param("planner", marks=pytest.mark.slow), "segments", "standard"],
)
def test_a_plan_has_room_in_the_allocator(algorithm: str) -> None:
    """Within less than what the plan without that option would need, but for its luck."""
    step = MODELS["mlp"](batch=64, width=64, layers=8)
    small_item = GrapplerItem.from_concrete_function(step.function)
    free = memopt.optimize(small_item, budget="70%", algorithm=algorithm).report.runtime
    assert free is not None
    limit_bytes = int(1.02 * free.after.peak_bytes)
    options = (f"rematerialization{{allocator_limit={limit_bytes},allocator_spare=4096}}",)
    result = memopt.optimize(small_item, budget="70%", algorithm=algorithm, pass_options=options)
    again = memopt.optimize(small_item, budget="70%", algorithm=algorithm, pass_options=options)
    assert result.graph_def == again.graph_def
    assert result.report.runtime is not None
    assert result.report.runtime.keeps_budget
    after = result.report.runtime.after
    is_told = any("allocator has no room" in why for why in _declined(result))
    assert has_room(after, limit_bytes, 4096) != is_told
    if algorithm in ("best", "planner"):
        assert not is_told


def test_a_plan_that_costs_no_more_than_is_enough_is_not_made_cheaper(
    small_item: GrapplerItem,
) -> None:
    """It has more of its room left to what lies between chunks, and is as deterministic."""
    limit_bytes = runtime_of(memopt.optimize(small_item, budget="70%")).after.peak_bytes
    room = f"algorithm=planner,allocator_limit={limit_bytes}"
    options = [f"rematerialization{{{room}{more}}}" for more in ("", ",enough_overhead=0.5")]
    cheapest, enough, again = (
        memopt.optimize(small_item, budget=limit_bytes, pass_options=(option,))
        for option in (options[0], options[1], options[1])
    )
    assert enough.graph_def == again.graph_def
    assert has_room(runtime_of(enough).after, limit_bytes)
    assert runtime_of(enough).after.peak_bytes <= runtime_of(cheapest).after.peak_bytes


def test_room_that_cannot_be_had_is_told(small_item: GrapplerItem) -> None:
    free = memopt.optimize(small_item, budget="70%").report.runtime
    assert free is not None
    held_bytes = free.after.held_bytes
    options = (f"rematerialization{{allocator_limit={held_bytes}}}",)
    result = memopt.optimize(small_item, budget="70%", pass_options=options)
    assert any("for what lies between chunks" in why for why in _declined(result))


def _declined(result: OptimizationResult) -> list[str]:
    return [entry.reason for done in result.report.passes for entry in done.declined]


# --- dumps ---------------------------------------------------------------------------------------


def test_dumps_are_written_beside_the_result(small_item: GrapplerItem, tmp_path: Path) -> None:
    dot, log = tmp_path / "g.dot", tmp_path / "m.log"
    result = memopt.optimize(small_item, budget="90%", dump_dot=str(dot), dump_memlog=str(log))
    runtime = runtime_of(result)
    assert dot.read_text() == dot_text({"before": runtime.before, "after": runtime.after})
    assert log.read_text().splitlines() == list(memory_log_lines(runtime.after))


def test_there_is_nothing_to_dump_without_an_order(item: GrapplerItem, tmp_path: Path) -> None:
    path = tmp_path / "g.dot"
    with pytest.raises(OptionsError, match="a dump is made at level ordered, or with a budget"):
        memopt.optimize(item, dump_dot=str(path))
    assert not path.exists()


def test_the_log_has_the_memory_at_every_operation(halved: OptimizationResult) -> None:
    timeline = runtime_of(halved).after
    header, *lines = memory_log_lines(timeline)
    assert header == HEADER
    rows: list[Any] = [line.split("\t") for line in lines]
    assert [int(row[0]) for row in rows] == list(range(len(timeline.sequence)))
    assert [int(row[1]) for row in rows] == timeline.usage_bytes
    assert int(rows[-1][2]) == timeline.peak_bytes
    size_of = {}
    graph = timeline.buffer_graph
    for node in timeline.sequence:
        size_of[graph.nodes[node].name] = [graph.size_bytes[b] for b in graph.made[node]]
    for row in rows:
        assert row[4] == "-" or int(row[5]) in size_of[row[4]]
    assert any(row[4] != "-" for row in rows)


def test_the_drawing_has_large_tensors_and_marks_copies(halved: OptimizationResult) -> None:
    runtime = runtime_of(halved)
    text = dot_text({"before": runtime.before, "after": runtime.after}, large_bytes=1000)
    before, after = text.split("subgraph cluster_1")
    assert text.startswith("digraph memopt {")
    assert text.count("{") == text.count("}")
    assert "Recomputed/" not in before
    copies = [line for line in after.splitlines() if ": Recomputed/" in line]
    assert copies
    assert all('color="blue"' in line for line in copies)
    assert 'label="before: peak' in before
    assert not dot_text({"none": runtime.before}, large_bytes=1 << 40).count("->")
