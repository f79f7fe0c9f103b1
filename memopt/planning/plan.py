"""A plan: a sequence of computations and swaps that keeps to a budget, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from memopt.display import (
    DisplayedTuple,
    Overview,
    Paged,
    Table,
    budget_text,
    bytes_text,
    count_text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Status = Literal["optimal", "feasible", "time limit"]


@dataclass(frozen=True, repr=False)
class Plan(Paged):
    """What to run, in which order, what again, what from the host.

    Attributes:
        sequence: The operations' ids in the order of execution; repeats are recomputations.
        swaps: The places in the sequence that bring outputs back from the host instead of
            computing them.
        peak_bytes: The most bytes in use.
        cost: Of the whole sequence, in the unit of the cost graph.
        base_cost: Of everything once.
        budget_bytes: What the peak keeps to.
        lower_bound: No plan within the budget costs less.
        seconds: What planning took.
        seed: Of the search.
        status: "optimal": the cost is the lower bound; "feasible": the search came to its end;
            "time limit": it was stopped, and would give something else on another machine.
    """

    sequence: tuple[int, ...]
    swaps: tuple[int, ...]
    peak_bytes: int
    cost: int
    base_cost: int
    budget_bytes: int
    lower_bound: int
    seconds: float
    seed: int
    status: Status

    @property
    def gap(self) -> float:
        """How far the cost may be from the least possible one, as a share of the base cost."""
        return (self.cost - self.lower_bound) / self.base_cost if self.base_cost else 0.0

    @property
    def overhead(self) -> float:
        """What the plan costs on top of computing everything once, as a share of that."""
        return self.cost / self.base_cost - 1 if self.base_cost else 0.0

    def for_budget_of(self, other: Plan) -> Plan:
        """This plan as one for another plan's budget, which it keeps to as well."""
        return replace(
            self,
            budget_bytes=other.budget_bytes,
            lower_bound=other.lower_bound,
            status="optimal" if self.cost == other.lower_bound else other.status,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "sequence": list(self.sequence),
            "swaps": list(self.swaps),
            "peak_bytes": self.peak_bytes,
            "cost": self.cost,
            "base_cost": self.base_cost,
            "budget_bytes": self.budget_bytes,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "seconds": self.seconds,
            "seed": self.seed,
            "status": self.status,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Plan:
        """The plan that `to_json` described."""
        given = {each.name: plain[each.name] for each in fields(cls)}
        return cls(**given | {name: tuple(given[name]) for name in ("sequence", "swaps")})

    def _overview(self) -> Overview:
        computed = len(self.sequence) - len(self.swaps)
        outcome = (
            f"{self.status}, peak {bytes_text(self.peak_bytes)}, "
            f"{budget_text(self.peak_bytes, self.budget_bytes)}, overhead {self.overhead:.3%}"
        )
        rows = (
            ("cost", f"{self.cost:,}"),
            ("lower bound", f"{self.lower_bound:,} (gap {self.gap:.3%})"),
            ("computations", f"{computed:,}"),
            ("recomputations", f"{computed - len(set(self.sequence)):,}"),
            ("swaps in", f"{len(self.swaps):,}"),
            ("planned in", f"{self.seconds:.1f} s, seed {self.seed}"),
        )
        return Overview("Plan", outcome, (Table(("", ""), rows),))


class Plans(DisplayedTuple[Plan], Paged):
    """Plans of one cost graph for several budgets, the smallest budget first."""

    __slots__ = ()

    def _overview(self) -> Overview:
        outcome = f"{count_text(len(self), 'plan')}, the smallest budget first"
        table = Table.of(("budget", "peak", "overhead", "gap", "status"), self, _plan_row)
        return Overview("Plans", outcome, (table,))


def _plan_row(plan: Plan) -> tuple[str, ...]:
    return (
        bytes_text(plan.budget_bytes),
        bytes_text(plan.peak_bytes),
        f"{plan.overhead:.3%}",
        f"{plan.gap:.3%}",
        plan.status,
    )
