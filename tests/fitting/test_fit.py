"""Fitting a small step for real: the size, its proof, and what is refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from support.steps import save_open_step

import memopt
from memopt.errors import BudgetError, OptionsError, OutOfMemoryError
from memopt.fitting import fit as fitting
from memopt.fitting import planner as planning
from memopt.fitting.dimensions import find_dimensions
from memopt.fitting.planner import SizePlanner
from memopt.io import as_item
from memopt.models import MODELS
from memopt.report.page.entry import page_html
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from memopt.fitting.result import Fit

MEMORY = "8MiB"
SIZES = 256


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_open_step(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def found(step_file: str) -> Fit:
    return memopt.fit(step_file, MEMORY, max_overhead="40%", run=False, multiple_of=SIZES)


def test_more_fits_than_unchanged_and_nothing_is_over_what_is_allowed(found: Fit) -> None:
    assert found.free_size > 500
    assert found.size > 1.5 * found.free_size
    assert found.factor == found.size / found.free_size
    assert found.peak_bytes <= found.limit_bytes == 8 << 20
    assert 0 < found.overhead <= 0.4
    assert found.measured_peak_bytes is None
    assert found.unknown_sizes == ()
    fitting_sizes = [probe.size for probe in found.probes if probe.result is not None]
    assert max(fitting_sizes) == found.size


def test_the_best_plans_are_made_only_where_quick_ones_do_not_fit(found: Fit) -> None:
    quick = {probe.size: probe for probe in found.probes if probe.is_quick}
    best = [probe.size for probe in found.probes if not probe.is_quick]
    assert quick
    assert best
    assert len(set(best)) == len(best), "no size is planned twice"
    tried = [size for size in best if size != found.size]
    assert all(size not in quick or quick[size].result is None for size in tried)
    largest = max(size for size, probe in quick.items() if probe.result is not None)
    assert min(best) >= largest
    assert found.size >= largest
    assert found.overhead == min(
        probe.overhead for probe in found.probes if probe.size == found.size and probe.result
    )


@pytest.mark.slow
def test_less_time_allows_less(step_file: str, found: Fit) -> None:
    none = memopt.fit(step_file, MEMORY, max_overhead=0, run=False, multiple_of=SIZES)
    assert none.overhead == 0
    assert none.size % SIZES == 0
    assert none.free_size <= none.size < found.size


@pytest.mark.slow
def test_a_function_is_fitted_and_proved_by_a_real_step() -> None:
    """At the size that is found the unchanged step does not run."""
    step = MODELS["mlp"](batch=None, width=128, layers=8)
    lines: list[str] = []
    found = memopt.fit(step.function, "24MiB", multiple_of=512, progress=lines.append)
    assert all(size > found.size for size in found.failed_sizes)
    assert found.measured_peak_bytes is not None
    assert found.measured_peak_bytes == pytest.approx(found.peak_bytes, rel=0.01)
    assert found.measured_peak_bytes <= found.limit_bytes
    assert any(re.match(rf"size {found.size}(, quickly)?: fits", line) for line in lines)
    limited = Settings(memory_limit_bytes=found.memory_bytes)
    unchanged = Program.from_item(found.item)
    with pytest.raises(OutOfMemoryError), step_process(unchanged, limited) as process:
        process.run(1)


@pytest.mark.slow
def test_a_step_that_runs_out_of_memory_all_the_same_goes_down(
    step_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator has less than the plans are made for."""
    monkeypatch.setattr("memopt.fitting.planner.has_room", lambda *_: True)
    monkeypatch.setattr(SizePlanner, "_free_excess", lambda _, size: size / 2000 - 1)
    ran: list[int] = []

    def refuse(self: object, size: int, graph_def: object) -> int:
        del self, graph_def
        ran.append(size)
        if len(ran) < 3:
            raise OutOfMemoryError("OOM when allocating")
        return 123

    monkeypatch.setattr(fitting._Prover, "_peak_bytes", refuse)
    found = memopt.fit(step_file, MEMORY)
    assert found.failed_sizes == tuple(ran[:2])
    assert found.size == ran[2] < ran[1] < ran[0]
    assert found.measured_peak_bytes == 123
    assert found.result is found.probes[-1].result


@pytest.mark.slow
def test_what_never_runs_is_out_of_memory(step_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OutOfMemoryError("OOM when allocating")

    monkeypatch.setattr(fitting._Prover, "_peak_bytes", refuse)
    with pytest.raises(OutOfMemoryError, match=r"at the sizes .*: OOM when allocating"):
        memopt.fit(step_file, MEMORY, multiple_of=1024)


def test_what_does_not_fit_at_all_tells_what_it_needs(step_file: str) -> None:
    with pytest.raises(BudgetError, match="not even size 65536 fits") as caught:
        memopt.fit(step_file, MEMORY, multiple_of=65536)
    assert caught.value.budget_bytes == 8 << 20
    assert caught.value.lowest_bytes > 8 << 20
    page = page_html(caught.value)
    assert "<h1>A budget that cannot be kept</h1>" in page
    assert "Not even size 65536 fits" in page


@pytest.mark.parametrize(("size", "planned"), [(2080, 2048), (2560, 2480)])
def test_a_plan_that_is_there_is_run_before_others_are_made(
    step_file: str, monkeypatch: pytest.MonkeyPatch, size: int, planned: int
) -> None:
    """Where it is for a size hardly smaller: 2048 is more than 1/32 below 2560."""
    item = as_item(step_file)
    planner = SizePlanner(item, find_dimensions(item), 8 << 20, 0.4, "grappler", lambda _: None)
    first = planner.probe(2048)
    assert planner.probe(size).result is not None
    assert planner.planned_below(2048) == 0
    ran: list[tuple[int, Any]] = []

    def refuse(self: object, size: int, graph_def: Any) -> int:
        del self
        ran.append((size, graph_def))
        if len(ran) < 2:
            raise OutOfMemoryError("OOM when allocating")
        return 123

    monkeypatch.setattr(fitting._Prover, "_peak_bytes", refuse)
    prover = fitting._Prover(planner, Settings(), 0, {}, {})
    proof = prover.run_down(size, 16)
    assert (proof.size, proof.failed_sizes) == (planned, (size,))
    assert first.result is not None
    assert (ran[1][1] is first.result.graph_def) == (planned == 2048)


def test_where_room_was_predicted_in_vain_more_is_left(step_file: str) -> None:
    """What fits is planned again; what does not is not."""
    item = as_item(step_file)
    planner = SizePlanner(item, find_dimensions(item), 8 << 20, 0.4, "grappler", lambda _: None)
    before, beyond = planner.probe(2048), planner.probe(1 << 16)
    assert before.result is not None
    planner.leave_more()
    after = planner.probe(2048)
    assert after is not before
    assert planner.probe(1 << 16) is beyond
    assert planner.probes == [before, beyond, after]


def test_large_steps_are_planned_by_the_planner_alone_until_it_finds_nothing(
    step_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    plan = SizePlanner._plan

    def note(planner: SizePlanner, size: int, item: Any, how: Any) -> Any:
        asked.append(how.algorithm)
        return plan(planner, size, item, how)

    monkeypatch.setattr(SizePlanner, "_plan", note)
    monkeypatch.setattr(planning, "_MOST_BEST", 0)
    item = as_item(step_file)
    planner = SizePlanner(item, find_dimensions(item), 8 << 20, 0.4, "grappler", lambda _: None)
    assert planner.probe(2048).result is not None
    assert set(asked) == {"planner"}
    asked.clear()
    assert planner.probe_all(1 << 16).result is None
    assert asked == ["planner", "best", "segments"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "much"}, "no number of bytes"),
        ({"memory": "100KB"}, "less than 1MiB"),
        ({"memory": MEMORY, "max_overhead": "-1%"}, "no share of time"),
        ({"memory": MEMORY, "max_overhead": "nan"}, "no share of time"),
        ({"memory": MEMORY, "multiple_of": 0}, "multiples of 0"),
    ],
)
def test_bad_options(step_file: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        memopt.fit(step_file, **options)  # type: ignore[arg-type]  # wrong on purpose
