"""Results fit a screen, say what came out, and show in notebooks as tables that trust no name."""

from __future__ import annotations

import enum
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memopt
from memopt.display import LINES, WIDTH, Overview, Table, clip
from memopt.graph.rewriter import Declined, Edit
from memopt.models import MODELS
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.plugin.records import GraphRecord, GraphRecords
from memopt.runtime.comparison import Difference
from memopt.runtime.replay import Buffer, Measurement, TimelineEntry
from memopt.runtime.verification import Timing, Verification

if TYPE_CHECKING:
    from memopt.result import OptimizationResult

HOSTILE = "<script>alert('1')</script>&\x1b[31m\n" + "long/" * 200
SHOWN_OTHERWISE = (BaseException, enum.Enum)

MIB = 1 << 20


class Tags(HTMLParser):
    """What a notebook would make of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.opened: list[str] = []
        self.feed(text)
        assert not self.opened

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self.found.add(tag)
        self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def assert_shows(result: Any, *expected: str) -> None:
    """It fits a screen in both forms, says what is expected, and holds no foreign markup."""
    text = repr(result)
    lines = text.split("\n")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    assert text.isprintable() or text.replace("\n", "").isprintable()
    # Where lines end depends on how wide the terminal is.
    words = " ".join(text.split())
    for part in expected:
        assert part in words
    html = result._repr_html_()
    assert len(html) < 100_000
    assert Tags(html).found <= {"div", "p", "b", "table", "tr", "th", "td", "ul", "li"}


def test_every_public_result_has_both_forms() -> None:
    classes = [value for name in memopt.__all__ if isinstance(value := getattr(memopt, name), type)]
    results = [each for each in classes if not issubclass(each, SHOWN_OTHERWISE)]
    assert len(results) > 15
    assert [each for each in results if not hasattr(each, "_repr_html_")] == []


@pytest.fixture(scope="module")
def result() -> OptimizationResult:
    return memopt.optimize(MODELS["mlp"](batch=8, width=16, layers=3).function, level="ordered")


def test_an_optimization_shows_its_peaks(result: OptimizationResult) -> None:
    runtime = result.report.runtime
    assert runtime is not None
    assert_shows(result, "OptimizationResult: level ordered", "predicted peak", "ordering")
    assert_shows(result.report, "OptimizationReport: level ordered", "before", "after", "ratio")
    assert_shows(runtime, "RuntimeMemory: predicted peak", "held before the step")
    for done in result.report.passes:
        assert_shows(done, f"PassReport: {done.name.split('{')[0]}")
    for graph in result.report.graphs:
        assert_shows(graph, "GraphReport")


def test_an_analysis_shows_the_fullest_device(result: OptimizationResult) -> None:
    analysis = memopt.analyze(result.graph_def)
    assert_shows(analysis, "MemoryAnalysis: simulated step of", "live at the peak")
    assert_shows(analysis.summary, "Summary: ", "executions")
    for device in analysis.devices:
        assert_shows(device, "DeviceAnalysis: ")


def measurement(peak_bytes: int, name: str) -> Measurement:
    buffers = tuple(Buffer(f"{name}{number}", number) for number in range(5_000))
    entries = tuple(
        TimelineEntry(number, "allocate", name, number, number) for number in range(20_000)
    )
    return Measurement(8 * MIB, peak_bytes - 8 * MIB, entries, buffers)


@pytest.mark.parametrize("name", ["layer", HOSTILE])
def test_a_verification_shows_its_verdict_and_no_timeline(name: str) -> None:
    differences = tuple(
        Difference(f"{name}{number}", "output", 1, 3, 10, 1e-7, 1.0) for number in range(3_000)
    )
    timing = Timing(2_000_000, 2_200_000, 1.1, 1.0, 1.2, 5, 10)
    before, after = measurement(40 * MIB, name), measurement(20 * MIB, name)
    equal = Verification((), before, after, timing, "exact", 3)
    assert_shows(equal, "equal, bit for bit, over 3 steps", "40.00 MiB -> 20.00 MiB", "x1.10")
    unequal = Verification(differences, before, after, None, "exact", 3)
    assert_shows(unequal, "Verification: NOT EQUAL over 3 steps, exact mode", "more")
    assert_shows(before, "Measurement: peak 40.00 MiB, 8.00 MiB of it held", "more")
    assert_shows(differences[0], "Difference(")


def test_records_show_all_their_figures_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    record = GraphRecord("f", "function", "passed over", "computes no gradients", nodes=12)
    step = replace(
        record,
        outcome="rewritten",
        reason="rematerialization{cache_plans=true}: 2 edits, " + "and so on, " * 10,
        nodes=11_300,
        peak_before_bytes=1098 * MIB,
        peak_after_bytes=1050 * MIB,
        budget_bytes=960 * MIB,
        measured_peak_bytes=1051 * MIB,
    )
    kept = replace(step, budget_bytes=1060 * MIB)
    head, columns, *lines = repr(GraphRecords([record, record, kept, step])).splitlines()
    assert head == "GraphRecords: 2 passed over, 2 rewritten"
    assert columns.split() == "latest nodes outcome MiB before after measured budget".split()
    assert lines[0].split()[2:] == "rewritten 1098.00 1050.00 1051.00 960.00 OVER".split()
    assert lines[1].split()[-2:] == ["1060.00", "kept"]
    assert lines[4].startswith("  rewritten (2 times): remat")
    assert lines[5] == "  passed over (2 times): computes no gradients"
    assert max(map(len, (columns, *lines))) <= 80
    # What no record has is no column.
    assert repr(GraphRecords([record])).splitlines()[1].split() == ["latest", "nodes", "outcome"]


def test_names_from_strangers_stay_text() -> None:
    """Neither markup in a notebook nor control characters on a terminal."""
    record = GraphRecord("f", "function", "failed", HOSTILE, nodes=3, error=HOSTILE)
    shown = (
        CostGraph.build([Operation(cost=1, output_bytes=(1,))], name=HOSTILE),
        record,
        GraphRecords([record] * 500),
        Edit(HOSTILE, (HOSTILE,) * 50, (), (HOSTILE,), (), (), frozenset()),
        Declined(HOSTILE, HOSTILE),
        memopt.GrapplerItem(result_graph(), feed=(HOSTILE,) * 90, fetch=(HOSTILE,)),
        memopt.Policy(report_dir=HOSTILE),
    )
    for each in shown:
        assert_shows(each)
        assert "<script" not in each._repr_html_()
        assert "\x1b" not in each._repr_html_()


def result_graph() -> Any:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    return GraphDef()


def test_options_show_what_was_chosen_as_it_is_written() -> None:
    assert repr(memopt.Budget.parse("60%")) == "Budget(percent=Decimal('60'))"
    assert repr(memopt.Policy()) == "Policy()"
    assert eval(repr(memopt.Options()), {"Options": memopt.Options}) == memopt.Options()
    assert "all defaults" in memopt.Policy()._repr_html_()


def test_a_plan_and_plans_show_whether_the_budget_is_kept() -> None:
    operations = [
        Operation(cost=10, output_bytes=(100,), inputs=((op - 1, 0),) if op else ())
        for op in range(4)
    ]
    graph = CostGraph.build(operations)
    assert_shows(graph, "CostGraph: 4 operations, 4 outputs of 400 B in total")
    assert_shows(memopt.plan(graph, 200), "within the budget of 200 B", "lower bound", "overhead")
    plans = memopt.sweep(graph, budgets=3)
    assert_shows(plans, f"Plans: {len(plans)} plan", "status")
    assert plans == tuple(plans)


@settings(max_examples=60, deadline=None)
@given(
    st.text(),
    st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300)), max_size=70),
    st.lists(st.text(max_size=300), max_size=30),
)
def test_any_overview_fits(outcome: str, rows: list[tuple[str, str]], notes: list[str]) -> None:
    class Shown:
        overview = Overview(
            "Kind", outcome, (Table.of(("a", "b"), rows, tuple), Table(("", ""), ())), tuple(notes)
        )

        def __repr__(self) -> str:
            return self.overview.text()

        def _repr_html_(self) -> str:
            return self.overview.html()

    assert_shows(Shown(), "Kind:")


def test_what_is_long_loses_its_middle() -> None:
    assert clip("a" * 50 + "b" * 50, 11) == "aaaa...bbbb"
    assert clip("tab\tand\nline", 20) == "tab and line"
    assert clip("\x1b[31m", 20) == "\\x1b[31m"
