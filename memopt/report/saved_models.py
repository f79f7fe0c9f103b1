"""SavedModels, rewritten, run and looked at, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from memopt.display import budget_text, bytes_text, change_text, count_text

if TYPE_CHECKING:
    from memopt.saved_model.analysis import SavedModelAnalysis
    from memopt.saved_model.report import FunctionReport, SavedModelReport
    from memopt.saved_model.verification import SavedModelVerification, SignatureVerification

_DIFFERENCES_SHOWN = 10


def report_lines(report: SavedModelReport) -> list[str]:
    """What was done to each function, or why not; a line each."""
    lines = [_function_line(one) for one in report.functions]
    done = len(report.rewritten)
    total = f"{done} of {count_text(len(report.functions), 'function')} rewritten: {report.out}"
    return [*lines, *report.notes, total]


def analysis_table(analysis: SavedModelAnalysis) -> Table:
    """What each function is and needs."""
    table = Table()
    for column in ("function", "signatures", "kind", "nodes", "held", "predicted peak", ""):
        is_number = column in ("nodes", "held", "predicted peak")
        table.add_column(column, justify="right" if is_number else "left")
    for one in analysis.functions:
        sizes = ("", "")
        if one.peak_bytes:
            sizes = (bytes_text(one.held_bytes), bytes_text(one.peak_bytes))
        what = one.reason or f"takes {', '.join(one.arguments)}"
        keys = ", ".join(one.signatures)
        table.add_row(one.called_as, keys, one.kind, f"{one.nodes:,}", *sizes, what)
    return table


def verification_table(verification: SavedModelVerification) -> Table:
    """What running each signature of both by each loader showed."""
    table = Table()
    for column in ("signature", "loader", "results"):
        table.add_column(column)
    for column in ("peak of the step's own", "everything included", "step time"):
        table.add_column(column, justify="right")
    for one in verification.signatures:
        before, after = one.verification.original, one.verification.rewritten
        timing = one.verification.timing
        table.add_row(
            one.signature,
            one.loader,
            verdict_text(one),
            change_text(before.step_peak_bytes, after.step_peak_bytes),
            change_text(before.peak_bytes, after.peak_bytes),
            "" if timing is None else f"x{timing.ratio:.2f}",
        )
    return table


def verdict(verification: SavedModelVerification) -> list[str]:
    """Whether both compute the same, and what differs; a line each."""
    lines = list(verification.skipped)
    for one in verification.signatures:
        found = one.verification
        if one.equal and not found.equal:
            lines.append(
                f"{one.signature}: in a session Grappler does something else to the original; the "
                "rewritten one has the bits of the original as Python loads it"
            )
            continue
        if found.own_changes:
            lines.append(f"{one.signature} ({one.loader}): the original differs from itself")
        shown = found.differences[:_DIFFERENCES_SHOWN]
        lines += [f"{one.signature} ({one.loader}): {difference}" for difference in shown]
    return [*lines, "equal, bit for bit" if verification.equal else "NOT EQUAL"]


def verdict_text(one: SignatureVerification) -> str:
    """Whether a signature computes the same, in a few words."""
    if one.verification.equal:
        return "equal, bit for bit"
    return "equal to the original in Python" if one.equal else "NOT EQUAL"


def _function_line(one: FunctionReport) -> str:
    keys = f" (signature {', '.join(one.signatures)})" if one.signatures else ""
    line = f"{one.called_as}{keys}: {one.outcome}"
    if one.peak_before_bytes:
        line += f", predicted peak {change_text(one.peak_before_bytes, one.peak_after_bytes)}"
        if one.budget_bytes:
            line += f", {budget_text(one.peak_after_bytes, one.budget_bytes)}"
    return f"{line}: {one.reason}"
