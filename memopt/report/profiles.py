"""Profiles of real steps, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
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
