"""Report pages and traces of SavedModels: what is shown is what the results hold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.commands import run

from memopt.errors import BudgetError
from memopt.report.page.entry import page_of
from memopt.report.perfetto import trace_json
from memopt.runtime.replay import Measurement, TimelineEntry
from memopt.runtime.verification import Verification
from memopt.saved_model.analysis import analyze_saved_model
from memopt.saved_model.report import SavedModelReport
from memopt.saved_model.verification import SavedModelVerification, SignatureVerification

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.saved_model.report import FunctionReport

HOSTILE = "</script><img src=x onerror=alert(1)>"


def trained(report: SavedModelReport) -> FunctionReport:
    (one,) = report.rewritten
    return one


def ran(signature: str, *, equal: bool) -> SignatureVerification:
    events = (TimelineEntry(1000, "allocate", "a", 10, 110, ""),)
    measured = Measurement(100, 10, events)
    differences = () if equal else ("loss in step 0 differs",)
    verification = Verification(differences, measured, measured, None, "as-is", 1)  # type: ignore[arg-type]  # texts stand for differences
    return SignatureVerification(signature, "python", verification)


def test_a_page_shows_the_functions_and_their_memory(report: SavedModelReport) -> None:
    page = page_of(report)
    one = trained(report)
    (chart,) = page.charts
    assert chart.title == "train"
    assert [track.title for track in chart.tracks] == ["after", "before"]
    peaks = [track.peak_bytes for track in chart.tracks]
    assert peaks == [one.peak_after_bytes, one.peak_before_bytes]
    assert {line.title for line in chart.lines} == {"budget", "floor"}
    (grid,) = page.grids
    outcomes = {row[0]: (row[2], row[4].rpartition(", ")[2]) for row in grid.rows}
    assert outcomes == {"train": ("rewritten", "kept"), "predict": ("left alone", "")}
    assert page.decisions
    assert {decision.chart for decision in page.decisions} == {0}
    assert all(", train" in decision.by for decision in page.decisions)
    assert {fact.label: fact.value for fact in page.facts}["within the budget"] == "1"
    assert "<h1>Rewritten SavedModel</h1>" in report.to_html()


def test_functions_do_not_share_decisions(report: SavedModelReport) -> None:
    one = trained(report)
    both = replace(report, functions=(one, replace(one, called_as="other", outcome="unchanged")))
    page = page_of(both)
    assert [chart.title for chart in page.charts] == ["train", "other"]
    # What was planned and not taken is not in the step.
    assert [track.title for track in page.charts[1].tracks] == ["as it is"]
    of = {decision.chart: decision.by for decision in page.decisions}
    assert of[0].endswith(", train")
    assert of[1].endswith(", other, not taken")
    assert page.repeated == page_of(report).repeated


def test_many_functions_have_a_chart_as_long_as_a_page_opens(report: SavedModelReport) -> None:
    one = trained(report)
    many = tuple(replace(one, called_as=f"train_{number}") for number in range(20))
    page = page_of(replace(report, functions=many))
    assert len(page.charts) == 12
    assert len(page.grids[0].rows) == 20
    assert any("8 more have none" in note for note in page.notes)
    assert {decision.chart for decision in page.decisions} == {-1, *range(12)}


def test_a_budget_that_no_function_keeps_shows_what_comes_nearest(
    report: SavedModelReport,
) -> None:
    error = BudgetError("no function keeps the budget; train: 7 bytes", 7, 9)
    error.functions = (replace(trained(report), budget_bytes=7),)
    page = page_of(error)
    assert page.title == "A budget that cannot be kept"
    assert page.notes[0].startswith("no function keeps the budget")
    assert [chart.title for chart in page.charts] == ["train"]
    facts = {fact.label: (fact.value, fact.verdict) for fact in page.facts}
    assert facts["within the budget"] == ("0", "bad")


def test_an_analysis_shows_every_function_as_it_is(network: Path) -> None:
    analysis = analyze_saved_model(network)
    page = page_of(analysis)
    assert [chart.title for chart in page.charts] == ["train", "predict"]
    for chart, one in zip(page.charts, reversed(analysis.functions), strict=True):
        (track,) = chart.tracks
        assert (chart.title, track.peak_bytes) == (one.called_as, one.peak_bytes)
    assert "<h1>SavedModel</h1>" in analysis.to_html()
    assert "memory" not in json.dumps(analysis.to_json())


@pytest.mark.parametrize("equal", [True, False])
def test_runs_are_charts_and_rows(report: SavedModelReport, *, equal: bool) -> None:
    found = SavedModelVerification((ran("train", equal=equal), ran("predict", equal=True)))
    page = page_of(found)
    assert [chart.title for chart in page.charts] == [
        "train (python), measured",
        "predict (python), measured",
    ]
    (grid,) = page.grids
    assert [row[2] for row in grid.rows][1] == "equal, bit for bit"
    (verdict,) = page.facts
    assert verdict.verdict == ("good" if equal else "bad")
    assert bool(page.notes) is not equal
    both = page_of(report, found)
    assert [chart.title for chart in both.charts] == ["train", *(c.title for c in page.charts)]
    assert len(both.grids) == 2


def test_a_trace_has_each_function_before_and_after(report: SavedModelReport) -> None:
    events = json.loads(trace_json(page_of(report)))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["train, after", "train, before"]


def test_names_are_text(report: SavedModelReport) -> None:
    one = replace(trained(report), called_as=HOSTILE, signatures=(HOSTILE,), reason=HOSTILE)
    hostile = SavedModelReport(HOSTILE, HOSTILE, (one,), (HOSTILE,))
    assert "<img" not in hostile.to_html()


def test_the_command_writes_page_and_trace(network: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    assert run("analyze", network, "--report", page, "--trace", trace).status == 0
    assert "<h1>SavedModel</h1>" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]


def test_the_command_writes_the_page_of_a_refusal(network: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    wanted = ("--budget", "1%", "--algorithm", "standard", "--scheduler", "list")
    ended = run("optimize", network, "-o", tmp_path / "out", *wanted, "--report", page)
    assert ended.status == 1
    assert ended.errors.endswith(f"(all of it: {page})\n")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert "<h1>A budget that cannot be kept</h1>" in page.read_text()
