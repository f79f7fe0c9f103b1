"""An optimization as a page: before and after on one axis, what was decided and what it costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.buffers.working_sets import largest_working_set
from memopt.display import budget_text, bytes_text, change_text, count_text, short_name, time_text
from memopt.report.page import measured, predicted
from memopt.report.page.decisions import decisions_of, repeated_of
from memopt.report.page.model import Chart, Curve, Fact, Line, Page, Track, shown
from memopt.report.page.simulated import charts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.graph.graph import Node
    from memopt.report.page.model import Grid
    from memopt.result import OptimizationReport, RuntimeMemory
    from memopt.runtime.verification import Verification

_NAMES_SHOWN = 3
MODEL = "Times are estimated by the analytical cost model."


def page_of_report(
    report: OptimizationReport,
    verification: Verification | None = None,
    facts: Sequence[Fact] = (),
    grids: Sequence[Grid] = (),
) -> Page:
    """The page of an optimization.

    Args:
        report: What was done.
        verification: What running both showed, if that was done.
        facts: Further figures, which come first.
        grids: Further tables.
    """
    runtime = report.runtime
    charts = (
        _simulated_charts(report) if runtime is None else [predicted_chart(runtime, verification)]
    )
    if verification is not None:
        charts += measured_charts(verification)
    return Page(
        "Optimization",
        _summary(report),
        (*facts, *_facts(report), *measured_facts(verification)),
        tuple(charts),
        tuple(decisions_of(report)),
        repeated_of(report),
        MODEL,
        grids=tuple(grids),
        notes=tuple(_notes(report, verification)),
    )


def page_of_refusal(report: OptimizationReport, why: str) -> Page:
    """The page of a budget that cannot be kept: what comes nearest to it, and why no more does.

    Args:
        report: What was done to come to the lowest peak that was found.
        why: The error's message.
    """
    page = page_of_report(report)
    reasons = tuple(f"{part[0].upper()}{part[1:]}." for part in why.split("; ") if part)
    is_kept = report.runtime is not None and report.runtime.keeps_budget
    title = "Nothing was found that fits" if is_kept else "A budget that cannot be kept"
    return replace(page, title=title, notes=(*reasons, *page.notes))


def page_of_verification(verification: Verification) -> Page:
    """The page of two steps that were run."""
    before, after = verification.original, verification.rewritten
    return Page(
        "Verification",
        f"{verification.verdict} over {count_text(verification.steps, 'step')}, measured peak "
        f"{change_text(before.peak_bytes, after.peak_bytes)}",
        tuple(measured_facts(verification)),
        tuple(measured_charts(verification)),
        notes=tuple(str(difference) for difference in verification.differences),
    )


def _simulated_charts(report: OptimizationReport) -> list[Chart]:
    """What came out on each device, at a level that looks at a simulation."""
    simulated = report.graphs[0].simulated if report.graphs else None
    if simulated is None:
        return []
    limits = {device.name: device.memory_bytes for device in simulated.cluster}
    return list(charts_of(simulated.memory_now(), limits, report.peak_before_bytes))


def _summary(report: OptimizationReport) -> str:
    edits = sum(len(done.edits) for done in report.passes)
    text = f"level {report.level}, {count_text(edits, 'edit')}"
    if report.runtime is None:
        return text
    before, after = report.runtime.before, report.runtime.after
    text += f", predicted peak {change_text(before.peak_bytes, after.peak_bytes)}"
    budget_bytes = report.runtime.budget_bytes
    return f"{text}, {budget_text(after.peak_bytes, budget_bytes)}" if budget_bytes else text


def _facts(report: OptimizationReport) -> Iterator[Fact]:
    runtime = report.runtime
    if runtime is not None:
        before, after = runtime.before, runtime.after
        yield change_fact("predicted peak", before.peak_bytes, after.peak_bytes)
        yield change_fact("of it the step's own", before.step_peak_bytes, after.step_peak_bytes)
        held = bytes_text(after.held_bytes)
        yield Fact("held before the step", held, "variables, constants, inputs")
        if runtime.budget_bytes:
            is_kept = runtime.keeps_budget
            hint = "kept" if is_kept else "NOT kept"
            budget = bytes_text(runtime.budget_bytes)
            yield Fact("budget", budget, hint, "good" if is_kept else "bad")
        for device in runtime.devices:
            label = f"peak of {short_name(device.name)}"
            yield change_fact(label, device.peak_before_bytes, device.peak_after_bytes)
    for device_name, before_bytes in report.peak_before_bytes.items():
        after_bytes = report.peak_after_bytes.get(device_name, 0)
        if before_bytes or after_bytes:
            yield change_fact(
                f"simulated peak of {short_name(device_name)}", before_bytes, after_bytes
            )
    yield Fact("nodes", f"{report.nodes_after:,}", f"{report.nodes_before:,} before")


def change_fact(label: str, before_bytes: int, after_bytes: int) -> Fact:
    """A figure that was another before; it is good if it is lower."""
    ratio = f", x{after_bytes / before_bytes:.2f}" if before_bytes else ""
    verdict = "good" if after_bytes < before_bytes else ""
    hint = f"{bytes_text(before_bytes)} before{ratio}"
    return Fact(label, bytes_text(after_bytes), hint, verdict)


def predicted_chart(runtime: RuntimeMemory, verification: Verification | None = None) -> Chart:
    """Predicted memory after and before on one axis, with what was measured if that is known."""
    layers = predicted.layers_of((runtime.after, runtime.before))
    tracks = (
        predicted.track_of(runtime.after, "after", layers),
        predicted.track_of(runtime.before, "before", layers),
    )
    curves = (*_threads(runtime, tracks), *_curves(tracks, verification))
    return Chart("predicted", predicted.AXIS, "", tracks, curves, tuple(_lines(runtime)))


def _threads(runtime: RuntimeMemory, tracks: Sequence[Track]) -> Iterator[Curve]:
    both = zip((runtime.after, runtime.before), tracks, strict=True)
    for number, (timeline, track) in enumerate(both):
        curve = predicted.threads_curve(timeline, track, number)
        if curve is not None:
            yield curve


def _curves(tracks: Sequence[Track], verification: Verification | None) -> Iterator[Curve]:
    if verification is None:
        return
    both = (verification.rewritten, verification.original)
    for number, (measurement, track) in enumerate(zip(both, tracks, strict=True)):
        if measurement.timeline:
            title = f"{track.title}, measured"
            yield measured.curve_over(measurement, track, number, title)


def _lines(runtime: RuntimeMemory) -> Iterator[Line]:
    if runtime.budget_bytes and not runtime.devices:
        yield Line("budget", runtime.budget_bytes)
    after = runtime.after
    nodes = after.buffer_graph.nodes
    # What a call needs depends on how its function is rewritten.
    running = [number for number in after.sequence if not _calls(nodes[number])]
    floor = largest_working_set(after.buffer_graph, running)
    if floor.node >= 0:
        why = f"what {shown(nodes[floor.node].name)} needs to run, in any order"
        yield Line("floor", floor.size_bytes, why)


def _calls(node: Node) -> bool:
    """Whether a node runs functions."""
    return any(value.HasField("func") or len(value.list.func) for value in node.attributes.values())


def _notes(report: OptimizationReport, verification: Verification | None) -> Iterator[str]:
    if report.runtime is None:
        yield (
            "This level does not look at the memory of TensorFlow's allocator: what is shown, if "
            "anything, is simulated. Level ordered does, and every budget."
        )
    if report.stopped:
        yield f"Iterations: {report.iterations}, ended: {report.stopped}."
    if report.properties.failure:
        yield f"Sizes are not known: {' '.join(report.properties.failure.split())}"
    for each in report.unknown_kernels[:_NAMES_SHOWN]:
        yield str(each)
    if verification is not None:
        yield from (str(difference) for difference in verification.differences)


def measured_facts(verification: Verification | None) -> Iterator[Fact]:
    """The figures of two steps that were run."""
    if verification is None:
        return
    before, after = verification.original, verification.rewritten
    yield Fact(
        "results",
        "equal" if verification.equal else verification.verdict,
        f"{count_text(verification.steps, 'step')}, {verification.mode} mode",
        "good" if verification.within_tolerance else "bad",
    )
    yield change_fact("measured peak", before.peak_bytes, after.peak_bytes)
    timing = verification.timing
    if timing is not None:
        yield Fact(
            "step time",
            f"x{timing.ratio:.2f}",
            f"{time_text(timing.original_step_ns)} to {time_text(timing.rewritten_step_ns)}",
        )


def measured_charts(verification: Verification, name: str = "measured") -> list[Chart]:
    """The memory of two steps that were run, over the time of each; none where none was recorded.

    Args:
        verification: What was measured.
        name: What the chart is called.
    """
    both = (verification.rewritten, verification.original)
    if not any(measurement.timeline for measurement in both):
        return []
    layers = measured.layers_of(both)
    tracks = tuple(
        measured.track_of(measurement, title, layers)
        for measurement, title in zip(both, ("rewritten", "original"), strict=True)
    )
    return [Chart(shown(name), "time since the step began", "ms", tracks)]
