"""A memory analysis as tables for a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table

from memopt.display import bytes_text, short_name, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.analysis import DeviceAnalysis, MemoryAnalysis

_OPERATIONS_SHOWN = 8
_SCOPES_SHOWN = 5
_NAMES_SHOWN = 3


def analysis_parts(analysis: MemoryAnalysis, top: int) -> Iterator[Table | str]:
    """The analysis, piece by piece: devices, their peaks, their operations, what is not known.

    Args:
        analysis: The analysis.
        top: How many of the tensors at a peak to show.
    """
    yield _devices_table(analysis)
    for device in analysis.devices:
        if device.live and top:
            yield _live_table(device, top)
            yield _scopes_line(device)
    yield _operations_table(analysis)
    summary = analysis.summary
    yield (
        f"critical path: {time_text(summary.critical_path_ns)} "
        f"on {short_name(summary.critical_device)}"
    )
    if analysis.unknown_sizes:
        shown = ", ".join(analysis.unknown_sizes[:_NAMES_SHOWN])
        more = ", ..." if len(analysis.unknown_sizes) > _NAMES_SHOWN else ""
        yield (
            f"tensors of unknown size, which count as little as they can be: "
            f"{len(analysis.unknown_sizes)}, {shown}{more}"
        )
    guessed = sum(device.inaccurate for device in summary.devices)
    if guessed:
        yield f"the times of {guessed} executions are guessed: an op or a shape is not known"


def _devices_table(analysis: MemoryAnalysis) -> Table:
    table = Table(title="simulated step", title_justify="left")
    table.add_column("device")
    for column in ("memory", "peak", "at", "persistent", "temporary peak", "nodes", "busy"):
        table.add_column(column, justify="right", overflow="fold")
    for device in analysis.devices:
        costs = device.costs
        table.add_row(
            short_name(device.name),
            bytes_text(device.memory_bytes) if device.memory_bytes else "",
            bytes_text(device.peak_bytes),
            time_text(device.peak_at_ns),
            bytes_text(costs.persistent_bytes) if costs else "",
            bytes_text(costs.temporary_peak_bytes) if costs else "",
            str(costs.executions) if costs else "0",
            f"{costs.utilisation:.0%}" if costs else "",
        )
    return table


def _live_table(device: DeviceAnalysis, top: int) -> Table:
    shown = device.live[:top]
    rest = len(device.live) - len(shown)
    title = f"{short_name(device.name)}: live at the peak, {len(device.live)} tensors"
    table = Table(title=title, title_justify="left")
    table.add_column("tensor", overflow="fold")
    table.add_column("size", justify="right")
    for column in ("op", "first use", "last use"):
        table.add_column(column, overflow="fold")
    for use in shown:
        table.add_row(use.tensor, bytes_text(use.size_bytes), use.op, use.first_use, use.last_use)
    if rest:
        others = sum(use.size_bytes for use in device.live[top:])
        table.add_row(f"and {rest} more", bytes_text(others), "", "", "")
    return table


def _scopes_line(device: DeviceAnalysis) -> str:
    sizes: Counter[str] = Counter()
    for use in device.live:
        sizes[use.scope] += use.size_bytes
    shown = [
        f"{scope or 'none'} {bytes_text(size_bytes)}"
        for scope, size_bytes in sizes.most_common(_SCOPES_SHOWN)
    ]
    more = ", ..." if len(sizes) > len(shown) else ""
    return f"{short_name(device.name)}: by scope: {', '.join(shown)}{more}"


def _operations_table(analysis: MemoryAnalysis) -> Table:
    table = Table(title="operations", title_justify="left")
    table.add_column("op")
    for column in ("executions", "time", "compute", "memory"):
        table.add_column(column, justify="right")
    for costs in analysis.summary.operations[:_OPERATIONS_SHOWN]:
        table.add_row(
            costs.op,
            str(costs.executions),
            time_text(costs.execution_ns),
            time_text(costs.compute_ns),
            time_text(costs.memory_ns),
        )
    return table
