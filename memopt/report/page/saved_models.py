"""SavedModels as pages: a chart for each function or signature, and a table of all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt.display import bytes_text, change_text, count_text
from memopt.report.page import predicted
from memopt.report.page.decisions import decisions_of, readable, repeated_of
from memopt.report.page.model import Chart, Fact, Grid, Page, Repeated, shown
from memopt.report.page.optimized import MODEL, change_fact, measured_charts, predicted_chart

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.report.page.model import Decision
    from memopt.saved_model.analysis import SavedModelAnalysis
    from memopt.saved_model.report import FunctionAnalysis, FunctionReport, SavedModelReport
    from memopt.saved_model.verification import SavedModelVerification, SignatureVerification

_MOST_CHARTS = 12
"""A page that has more of them is slow to open, and nobody looks at all."""
_REWRITTEN = "rewritten"
_COLUMNS = ("function", "signatures", "outcome", "predicted peak", "budget", "what was done")


def page_of_saved_model(
    report: SavedModelReport, verification: SavedModelVerification | None = None
) -> Page:
    """The page of a rewritten SavedModel.

    Args:
        report: What was done.
        verification: What running signatures of both showed, if that was done.
    """
    drawn = _Drawn.of(report.functions)
    done, total = len(report.rewritten), len(report.functions)
    page = Page(
        "Rewritten SavedModel",
        f"{shown(report.out)}, {done} of {count_text(total, 'function')} rewritten",
        tuple(_facts(report.functions)),
        drawn.charts,
        drawn.decisions,
        drawn.repeated,
        MODEL,
        grids=(_functions_grid(report.functions),),
        notes=(*drawn.notes, *map(shown, report.notes)),
    )
    if verification is None:
        return page
    run = page_of_saved_model_verification(verification)
    return replace(
        page,
        facts=(*page.facts, *run.facts),
        charts=(*page.charts, *run.charts),
        grids=(*page.grids, *run.grids),
        notes=(*page.notes, *run.notes),
    )


def page_of_saved_model_refusal(functions: Sequence[FunctionReport], why: str) -> Page:
    """The page of a budget that no function keeps: what comes nearest to it, for each of them.

    Args:
        functions: Those that were tried.
        why: The error's message.
    """
    drawn = _Drawn.of(functions)
    return Page(
        "A budget that cannot be kept",
        f"none of {count_text(len(functions), 'function')} keeps it",
        tuple(_facts(functions)),
        drawn.charts,
        drawn.decisions,
        drawn.repeated,
        MODEL,
        grids=(_functions_grid(functions),),
        notes=(readable(why), *drawn.notes),
    )


def page_of_saved_model_verification(verification: SavedModelVerification) -> Page:
    """The page of two SavedModels whose signatures were run."""
    runs = verification.signatures
    grid = Grid(
        "What was run",
        ("signature", "loader", "results", "measured peak", "of it the step's own", "step time"),
        tuple(map(_run_row, runs)),
    )
    differences = [
        f"{shown(one.signature)} ({one.loader}): {difference}"
        for one in runs
        if not one.equal
        for difference in one.verification.differences
    ]
    is_equal = verification.equal
    verdict = Fact(
        "results",
        "equal" if is_equal else "NOT EQUAL",
        f"{count_text(len(runs), 'run')} compared",
        "good" if is_equal else "bad",
    )
    charts = [
        chart
        for one in runs
        for chart in measured_charts(one.verification, f"{one.signature} ({one.loader}), measured")
    ]
    left_out = len(charts) - _MOST_CHARTS
    return Page(
        "Verification of SavedModels",
        f"{'equal, bit for bit' if is_equal else 'NOT EQUAL'}, "
        f"{count_text(len(runs), 'run')} compared",
        (verdict,),
        tuple(charts[:_MOST_CHARTS]),
        grids=(grid,),
        notes=(*_left_out(left_out, "runs"), *map(shown, verification.skipped), *differences),
    )


def page_of_saved_model_analysis(analysis: SavedModelAnalysis) -> Page:
    """The page of a SavedModel's functions: the memory of each as it is."""
    known = [one for one in analysis.functions if one.memory is not None]
    known.sort(key=lambda one: -one.peak_bytes)
    charts = []
    for one in known[:_MOST_CHARTS]:
        assert one.memory is not None
        charts.append(_chart_of_one(one.called_as, one.memory))
    rows = tuple(map(_analysis_row, analysis.functions))
    columns = ("function", "signatures", "kind", "nodes", "held", "predicted peak", "takes", "why")
    return Page(
        "SavedModel",
        f"{shown(analysis.path)}, {count_text(len(analysis.functions), 'function')}",
        tuple(
            Fact(
                f"predicted peak of {shown(one.called_as)}",
                bytes_text(one.peak_bytes),
                f"{bytes_text(one.held_bytes)} of it held before",
            )
            for one in known[:_MOST_CHARTS]
        ),
        tuple(charts),
        grids=(Grid("Functions", columns, rows),),
        notes=(
            *_left_out(len(known) - _MOST_CHARTS, "functions"),
            *map(shown, analysis.notes),
        ),
    )


@dataclass(frozen=True)
class _Drawn:
    """What functions that were planned have to show, those that need most first."""

    charts: tuple[Chart, ...]
    decisions: tuple[Decision, ...]
    repeated: tuple[Repeated, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, functions: Sequence[FunctionReport]) -> _Drawn:
        planned = [one for one in functions if one.report is not None]
        planned.sort(key=lambda one: -one.peak_before_bytes)
        charts: list[Chart] = []
        decisions: list[Decision] = []
        repeated: list[Repeated] = []
        for one in planned:
            assert one.report is not None
            number = -1
            if one.report.runtime is not None and len(charts) < _MOST_CHARTS:
                number = len(charts)
                charts.append(_chart(one))
            decisions += _decisions(one, number)
            if one.outcome == _REWRITTEN:
                repeated += repeated_of(one.report)
        with_memory = sum(
            one.report.runtime is not None for one in planned if one.report is not None
        )
        notes = _left_out(with_memory - len(charts), "functions")
        return cls(tuple(charts), tuple(decisions), _added_up(repeated), tuple(notes))


def _chart(one: FunctionReport) -> Chart:
    """The memory of a function before and after; of one that stays as it is, only that."""
    assert one.report is not None
    runtime = one.report.runtime
    assert runtime is not None
    if one.outcome == _REWRITTEN:
        return replace(predicted_chart(runtime), title=shown(one.called_as))
    return _chart_of_one(one.called_as, runtime.before)


def _chart_of_one(name: str, memory: MemoryTimeline) -> Chart:
    layers = predicted.layers_of((memory,))
    track = predicted.track_of(memory, "as it is", layers)
    return Chart(shown(name), predicted.AXIS, "", (track,))


def _decisions(one: FunctionReport, chart: int) -> Iterator[Decision]:
    assert one.report is not None
    undone = "" if one.outcome == _REWRITTEN else ", not taken"
    for decision in decisions_of(one.report):
        by = f"{decision.by}, {shown(one.called_as)}{undone}"
        yield decision._replace(by=by, chart=chart)


def _added_up(repeated: Iterable[Repeated]) -> tuple[Repeated, ...]:
    """What runs again in several functions, by op."""
    totals: dict[str, Repeated] = {}
    for one in repeated:
        known = totals.get(one.op, Repeated(one.op, 0, 0, 0))
        totals[one.op] = Repeated(
            one.op,
            known.number + one.number,
            known.time_ns + one.time_ns,
            known.size_bytes + one.size_bytes,
        )
    return tuple(sorted(totals.values(), key=lambda one: (-one.time_ns, one.op)))


def _facts(functions: Sequence[FunctionReport]) -> Iterator[Fact]:
    done = sum(one.outcome == _REWRITTEN for one in functions)
    yield Fact("rewritten", f"{done:,}", f"of {count_text(len(functions), 'function')}")
    known = [one for one in functions if one.peak_before_bytes]
    if known:
        most = max(known, key=lambda one: one.peak_before_bytes)
        label = f"predicted peak of {shown(most.called_as)}"
        yield change_fact(label, most.peak_before_bytes, most.peak_after_bytes)
    budgeted = [one for one in functions if one.budget_bytes]
    if budgeted:
        kept = sum(one.keeps_budget for one in budgeted)
        verdict = "good" if kept == len(budgeted) else "bad"
        yield Fact("within the budget", f"{kept:,}", f"of {len(budgeted):,} planned", verdict)


def _functions_grid(functions: Sequence[FunctionReport]) -> Grid:
    return Grid("Functions", _COLUMNS, tuple(map(_function_row, functions)))


def _function_row(one: FunctionReport) -> tuple[str, ...]:
    peak = budget = ""
    if one.peak_before_bytes:
        peak = change_text(one.peak_before_bytes, one.peak_after_bytes)
    if one.budget_bytes:
        budget = f"{bytes_text(one.budget_bytes)}, {'kept' if one.keeps_budget else 'NOT kept'}"
    keys = shown(", ".join(one.signatures))
    return shown(one.called_as), keys, one.outcome, peak, budget, readable(one.reason)


def _run_row(one: SignatureVerification) -> tuple[str, ...]:
    found = one.verification
    before, after = found.original, found.rewritten
    verdict = "equal, bit for bit" if found.equal else "NOT EQUAL"
    if one.equal and not found.equal:
        verdict = "equal to the original by Python's loader"
    return (
        shown(one.signature),
        one.loader,
        verdict,
        change_text(before.peak_bytes, after.peak_bytes),
        change_text(before.step_peak_bytes, after.step_peak_bytes),
        "" if found.timing is None else f"x{found.timing.ratio:.2f}",
    )


def _analysis_row(one: FunctionAnalysis) -> tuple[str, ...]:
    sizes = ("", "")
    if one.peak_bytes:
        sizes = (bytes_text(one.held_bytes), bytes_text(one.peak_bytes))
    names = (shown(one.called_as), shown(", ".join(one.signatures)))
    takes = shown(", ".join(one.arguments))
    return *names, one.kind, f"{one.nodes:,}", *sizes, takes, readable(one.reason)


def _left_out(number: int, what: str) -> list[str]:
    if number <= 0:
        return []
    return [f"Charts are of the {_MOST_CHARTS} {what} that need most; {number:,} more have none."]
