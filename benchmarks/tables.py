"""A table of steps that were run before and after rewrites."""

from __future__ import annotations

from typing import Any

from machine import describe_machine
from rich.console import Console
from rich.table import Table


def print_measured(rows: list[dict[str, Any]]) -> None:
    """The figures for people: peaks of the step on top of what it holds, in MiB.

    Args:
        rows: With the keys step, rewrite, added, original_bytes, rewritten_bytes, time_ratio and
            verdict.
    """
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("step", "rewrite"):
        table.add_column(column)
    for column in ("nodes added", "before", "after", "change", "time", "equal"):
        table.add_column(column, justify="right")
    for row in rows:
        before, after = row["original_bytes"], row["rewritten_bytes"]
        table.add_row(
            row["step"],
            row["rewrite"],
            str(row["added"]),
            f"{before / 2**20:.1f}",
            f"{after / 2**20:.1f}",
            f"{(after - before) / before:+.0%}",
            f"x{row['time_ratio']:.2f}",
            row["verdict"],
        )
    Console(width=110).print(table)
