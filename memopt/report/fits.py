"""What fits into memory, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from memopt.display import bytes_text

if TYPE_CHECKING:
    from memopt.fitting.result import Fit


def fit_table(fit: Fit) -> Table:
    """The size that was found, what it needs and costs, and what fits without a rewriting."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    measured = fit.measured_peak_bytes
    factor = fit.factor
    looked_for = [str(dimension) for dimension in fit.dimensions if not dimension.size]
    for name, value in (
        (f"largest size of {', '.join(looked_for)}", str(fit.size)),
        ("memory", bytes_text(fit.memory_bytes)),
        ("predicted peak", bytes_text(fit.peak_bytes)),
        ("measured peak", "not run" if measured is None else bytes_text(measured)),
        ("estimated overhead", f"{fit.overhead:.1%} (at most {fit.max_overhead:.1%})"),
        ("largest size unchanged", str(fit.free_size) if fit.free_size else "none fits"),
        ("factor", "" if factor is None else f"x{factor:.1f}"),
    ):
        table.add_row(name, value)
    return table


def fit_remarks(fit: Fit) -> list[str]:
    """What went otherwise than predicted, and what is not known; a line each."""
    lines = [
        f"size {size} was predicted to fit, but its real step ran out of memory"
        for size in fit.failed_sizes
    ]
    unknown = fit.unknown_sizes
    if unknown:
        lines.append(
            f"the sizes of {len(unknown)} tensors are not known and count as little as they can, "
            f"such as {unknown[0]}"
        )
    sizes = {probe.size for probe in fit.probes}
    lines.append(f"{len(sizes)} sizes planned in {fit.seconds:.1f} s")
    return lines
