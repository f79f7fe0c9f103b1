"""Profiles of real steps and of their kernels, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from memopt.display import count_text

if TYPE_CHECKING:
    from memopt.kernels.profile import KernelProfile
    from memopt.runtime.profile import Profile


def profile_table(profile: Profile, top: int) -> Table:
    """The kinds of operations that take most of a step, the dearest first."""
    table = Table()
    table.add_column("op")
    for column in ("operations", "ms", "of the step"):
        table.add_column(column, justify="right")
    whole_ns = max(profile.step_ns, 1)
    for each in profile.ops[:top]:
        share = f"{each.time_ns / whole_ns:.1%}"
        table.add_row(each.op, str(each.operations), f"{each.time_ns / 1e6:.3f}", share)
    return table


def kernel_lines(profile: KernelProfile, top: int) -> list[str]:
    """Where the rules and what was measured differ, and what cannot be run alone; a line each."""
    counted = f"{count_text(profile.kernels, 'kernel')}, {profile.new} measured now"
    lines = [f"{counted} ({profile.environment}): {profile.path}"]
    lines += [f"not as the rules say: {each}" for each in profile.differences[:top]]
    lines += _hidden(len(profile.differences) - top, "not as the rules say")
    lines += [
        f"not run alone, {count_text(each.nodes, 'node')} such as {each.node}: {each.kernel}: "
        f"{each.reason}"
        for each in profile.failed[:top]
    ]
    return lines + _hidden(len(profile.failed) - top, "not run alone")


def _hidden(count: int, what: str) -> list[str]:
    return [f"and {count} more {what}"] if count > 0 else []
