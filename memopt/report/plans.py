"""Plans on numbers, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from memopt.display import bytes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.plan import Plan


def plan_lines(plan: Plan) -> list[str]:
    """What a plan needs, what it costs and what is known of that; a line each."""
    computed = len(plan.sequence) - len(plan.swaps)
    repeated = computed - len(set(plan.sequence))
    return [
        f"peak {bytes_text(plan.peak_bytes)}, budget {bytes_text(plan.budget_bytes)}",
        f"cost {plan.cost}: {plan.overhead:+.3%} over computing everything once",
        f"no plan within the budget costs less than {plan.lower_bound}: a gap of {plan.gap:.3%}",
        f"{computed} computations, {repeated} of them repeated, {len(plan.swaps)} swaps in",
        f"{plan.status}, seed {plan.seed}, {plan.seconds:.1f} s",
    ]


def sweep_table(plans: Sequence[Plan]) -> Table:
    """A line for each budget, the smallest first."""
    table = Table()
    for column in ("budget", "of the largest", "peak", "overhead", "at least", "repeated"):
        table.add_column(column, justify="right")
    for plan in plans:
        computed = len(plan.sequence) - len(plan.swaps)
        table.add_row(
            bytes_text(plan.budget_bytes),
            f"{plan.budget_bytes / plans[-1].budget_bytes:.1%}",
            bytes_text(plan.peak_bytes),
            f"{plan.overhead:.3%}",
            f"{plan.overhead - plan.gap:.3%}",
            str(computed - len(set(plan.sequence))),
        )
    return table
