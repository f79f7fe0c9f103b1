"""Reports as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.table import Table

from memopt.display import bytes_text, short_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.passes import Pass
    from memopt.result import OptimizationReport, PassReport
    from memopt.runtime.verification import Verification

_REASONS_SHOWN = 5
_DIFFERENCES_SHOWN = 10
_DECISIONS_SHOWN = 5


def optimization_lines(report: OptimizationReport) -> list[str]:
    """What each pass did to each graph: edits, nodes, expected effect and time; a line each."""
    lines = []
    for done in report.passes:
        if not done.edits and (done.function or done.iteration > 1):
            continue
        where = f"function {done.function}" if done.function else "main graph"
        turn = f", iteration {done.iteration}" if report.iterations > 1 and done.iteration else ""
        added = sum(len(edit.added) for edit in done.edits)
        lines.append(
            f"{done.name}, {where}{turn}: {len(done.edits)} edits, {added} nodes added, "
            f"expected effect {_effect_text(report, done)}, {done.seconds:.3f} s"
        )
    return lines


def decision_lines(report: OptimizationReport) -> list[str]:
    """The decisions that matter most, of the edits that consist of several; a line each."""
    found = [one for done in report.passes for edit in done.edits for one in edit.decisions]
    lines = [f"{one.node}: {one.reason}" for one in found[:_DECISIONS_SHOWN]]
    more = len(found) - len(lines)
    return [*lines, f"... and {more} more decisions, in the JSON report"] if more else lines


def iteration_lines(report: OptimizationReport) -> list[str]:
    """How often the passes that look at a simulation ran, why they ended, and each device's peak.

    Nothing for a level without such passes.
    """
    main = report.graphs[0]
    lines = []
    if main.iterations:
        turns = "1 iteration" if main.iterations == 1 else f"{main.iterations} iterations"
        simulations = "1 simulation" if main.simulations == 1 else f"{main.simulations} simulations"
        lines.append(f"{turns}, {simulations}; ended: {main.stopped}")
    elif main.passes and main.stopped:
        lines.append(f"not iterated: {main.stopped}")
    for device, before in report.peak_before_bytes.items():
        after = report.peak_after_bytes[device]
        if before or after:
            change = f" ({(after - before) / before:+.1%})" if before else ""
            lines.append(
                f"simulated peak of {short_name(device)}: "
                f"{bytes_text(before)} -> {bytes_text(after)}{change}"
            )
    return lines


def runtime_lines(report: OptimizationReport) -> list[str]:
    """The real peak that is predicted, before and after; nothing for a level without an order."""
    runtime = report.runtime
    if runtime is None:
        return []
    before, after = runtime.before, runtime.after
    own = before.step_peak_bytes
    change = f" ({(after.step_peak_bytes - own) / own:+.1%})" if own else ""
    line = (
        f"predicted peak of TensorFlow's allocator: {bytes_text(before.peak_bytes)} -> "
        f"{bytes_text(after.peak_bytes)}, {bytes_text(after.held_bytes)} of it held before the "
        f"step; the step's own {bytes_text(own)} -> {bytes_text(after.step_peak_bytes)}{change}"
    )
    if runtime.budget_bytes:
        return [line, f"within the budget of {bytes_text(runtime.budget_bytes)}"]
    return [line]


def _effect_text(report: OptimizationReport, done: PassReport) -> str:
    effects = [report.effect_bytes(edit, done.function) for edit in done.edits]
    known = [effect for effect in effects if effect is not None]
    unknown = len(effects) - len(known)
    text = bytes_text(sum(known), signed=True)
    return f"{text}, and unknown for {unknown} edits" if unknown else text


def remarks(report: OptimizationReport) -> list[str]:
    """What did not happen and why, and which sizes are not known; a line each."""
    lines = [f"undone: {_one_line(done.failure)}" for done in report.passes if done.failure]
    reasons = Counter(declined.reason for done in report.passes for declined in done.declined)
    for reason, count in reasons.most_common(_REASONS_SHOWN):
        lines.append(f"left alone, {count} x: {reason}")
    if report.properties.failure:
        lines.append(f"the sizes are not known: {_one_line(report.properties.failure)}")
    lines += [
        f"{each} (--kernels measured tells)" for each in report.unknown_kernels[:_REASONS_SHOWN]
    ]
    unknown = list(report.properties.unknown_sizes())
    if unknown:
        lines.append(f"the sizes of {len(unknown)} tensors are not known, such as {unknown[0]}")
    return lines


def passes_table(passes: Iterable[type[Pass]]) -> Table:
    """Every pass with its options and what it does."""
    table = Table(show_lines=True)
    for column in ("pass", "options", "what it does"):
        table.add_column(column)
    for pass_ in passes:
        table.add_row(
            pass_.name, "\n".join(pass_.defaults()), (pass_.__doc__ or "").partition("\n")[0]
        )
    return table


def pass_json(pass_: type[Pass]) -> dict[str, Any]:
    """A pass with its options' defaults and what it does, as plain data."""
    return {
        "name": pass_.name,
        "what": (pass_.__doc__ or "").partition("\n")[0],
        "options": {
            name: default
            for name, _, default in (option.partition("=") for option in pass_.defaults())
        },
    }


def verification_table(verification: Verification) -> Table:
    """The measured memory and time of both steps, side by side."""
    before, after = verification.original, verification.rewritten
    table = Table(title=f"measured, {verification.mode} mode", title_justify="left")
    for column in ("", "original", "rewritten", "change"):
        table.add_column(column, justify="left" if not column else "right")
    rows = (
        ("peak, everything included", before.peak_bytes, after.peak_bytes),
        ("held before the step", before.held_bytes, after.held_bytes),
        ("peak of the step's own", before.step_peak_bytes, after.step_peak_bytes),
    )
    for name, original, rewritten in rows:
        change = f"{(rewritten - original) / original:+.1%}" if original else ""
        table.add_row(name, bytes_text(original), bytes_text(rewritten), change)
    timing = verification.timing
    if timing is not None:
        table.add_row(
            "step time",
            f"{timing.original_step_ns / 1e6:.1f} ms",
            f"{timing.rewritten_step_ns / 1e6:.1f} ms",
            f"x{timing.ratio:.2f} ({timing.lowest_ratio:.2f} to {timing.highest_ratio:.2f})",
        )
    return table


def verdict(verification: Verification) -> list[str]:
    """Whether both compute the same, and what differs; a line each."""
    steps = "1 step" if verification.steps == 1 else f"{verification.steps} steps"
    own = _own_lines(verification)
    if verification.equal:
        return [f"equal: every output of {steps} and every variable afterwards, bit for bit", *own]
    if verification.within_tolerance:
        mover = "chance" if own else "Grappler"
        lines = [f"equal within what {mover} alone changes, over {steps}:"]
    else:
        lines = [f"NOT EQUAL over {steps}:"]
    shown = verification.differences[:_DIFFERENCES_SHOWN]
    lines.extend(f"  {difference}" for difference in shown)
    hidden = len(verification.differences) - len(shown)
    return [*lines, *([f"  and {hidden} more"] if hidden else []), *own]


def _own_lines(verification: Verification) -> list[str]:
    """That the original is not equal to itself, and how both were compared then."""
    changes = verification.own_changes
    if not changes:
        return []
    line = f"the original differs from itself from run to run, as in {changes[0]}"
    if verification.deterministic:
        return [f"{line}; both were compared with deterministic kernels"]
    return [f"{line}; it has an operation without a deterministic kernel"]


def _one_line(message: str) -> str:
    """A message without line ends; TensorFlow's own have some."""
    return " ".join(message.split())
