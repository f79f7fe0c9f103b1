"""Plans on numbers as pages: one plan over its cost graph, or what all budgets cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.display import budget_text, bytes_text, count_text
from memopt.planning.checker import judge, lives
from memopt.report.page.decisions import readable
from memopt.report.page.grouping import FORWARD, HELD, OTHERS, RECOMPUTED, RETURNED, SCRATCH
from memopt.report.page.model import (
    Budgets,
    Chart,
    Fact,
    Grid,
    Line,
    Operation,
    Page,
    Repeated,
    Tensor,
    Track,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.errors import BudgetError
    from memopt.planning.cost_graph import CostGraph
    from memopt.planning.plan import Plan

_READERS_SHOWN = 12


def page_of_plan(plan: Plan, graph: CostGraph | None) -> Page:
    """The page of a plan; the memory over the sequence is shown where its cost graph is there."""
    charts: tuple[Chart, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    if graph is not None:
        index = {label: op for op, label in enumerate(graph.ids)}
        after = _track(graph, "after", [index[label] for label in plan.sequence], plan.swaps)
        before = _track(graph, "before", graph.order.tolist(), ())
        lines = (Line("budget", plan.budget_bytes),)
        charts = (Chart("planned", "steps of the sequence", "", (after, before), (), lines),)
        repeated = _repeated(graph, [index[label] for label in plan.sequence], plan.swaps)
    return Page(
        "Plan" if graph is None or not graph.name else f"Plan of {shown(graph.name)}",
        f"{plan.status}, peak {bytes_text(plan.peak_bytes)}, "
        f"{budget_text(plan.peak_bytes, plan.budget_bytes)}, overhead {plan.overhead:.3%}",
        tuple(_facts(plan)),
        charts,
        repeated=repeated,
        repeated_note="Costs are in the unit of the cost graph, shown as nanoseconds.",
        notes=("A cost graph does not tell gradients from activations: all are shown alike.",),
    )


def page_of_plan_refusal(error: BudgetError, graph: CostGraph | None) -> Page:
    """The page of a budget that no plan was found for: the plan with the lowest peak instead."""
    plan: Plan = error.result
    page = page_of_plan(plan, graph)
    line = Line("budget", error.budget_bytes)
    charts = tuple(replace(chart, lines=(line,)) for chart in page.charts)
    facts = (
        Fact("lowest peak found", bytes_text(plan.peak_bytes), "", "bad"),
        Fact("budget", bytes_text(error.budget_bytes), "NOT kept", "bad"),
        Fact("overhead", f"{plan.overhead:.3%}", "of the plan with the lowest peak"),
        Fact("recomputations", f"{_recomputations(plan):,}", f"{len(plan.swaps):,} swaps in"),
    )
    return replace(
        page,
        title="A budget that cannot be kept",
        summary=f"lowest peak found {bytes_text(plan.peak_bytes)}, "
        f"{budget_text(plan.peak_bytes, error.budget_bytes)}",
        facts=facts,
        charts=charts,
        notes=(readable(str(error)), *page.notes),
    )


def page_of_plans(plans: Sequence[Plan]) -> Page:
    """The page of a sweep: what plans cost at each budget, and what none can go below."""
    rows = tuple(
        (
            bytes_text(plan.budget_bytes),
            bytes_text(plan.peak_bytes),
            f"{plan.overhead:.3%}",
            f"{plan.overhead - plan.gap:.3%}",
            str(_recomputations(plan)),
            plan.status,
        )
        for plan in plans
    )
    columns = ("budget", "peak", "overhead", "at least", "repeated", "status")
    return Page(
        "Plans at every budget",
        f"{count_text(len(plans), 'budget')}, the smallest first",
        budgets=Budgets(
            tuple(plan.budget_bytes for plan in plans),
            tuple(plan.overhead for plan in plans),
            tuple(plan.overhead - plan.gap for plan in plans),
        ),
        grids=(Grid("Plans", columns, rows),),
    )


def _recomputations(plan: Plan) -> int:
    return len(plan.sequence) - len(plan.swaps) - len(set(plan.sequence))


def _facts(plan: Plan) -> Iterator[Fact]:
    is_kept = plan.peak_bytes <= plan.budget_bytes
    yield Fact("peak", bytes_text(plan.peak_bytes), "", "good" if is_kept else "bad")
    yield Fact("budget", bytes_text(plan.budget_bytes))
    yield Fact("overhead", f"{plan.overhead:.3%}", f"at least {plan.overhead - plan.gap:.3%}")
    yield Fact("recomputations", f"{_recomputations(plan):,}", f"{len(plan.swaps):,} swaps in")
    yield Fact("status", plan.status, f"seed {plan.seed}")


def _track(graph: CostGraph, title: str, sequence: Sequence[int], swaps: Sequence[int]) -> Track:
    step_bytes = judge(graph, sequence, swaps).step_bytes
    peak_bytes = max(step_bytes)
    swapped, seen = frozenset(swaps), set[int]()
    operations, kinds = list[Operation](), list[int]()
    for step, op in enumerate(sequence):
        kind = RETURNED if step in swapped else RECOMPUTED if op in seen else FORWARD
        seen.add(op)
        kinds.append(kind)
        operations.append(Operation(f"operation {graph.ids[op]}", "", "", kind, step, step + 1))
    tensors = tuple(_tensors(graph, sequence, swaps, kinds))
    moments, peak_at = len(step_bytes), step_bytes.index(peak_bytes)
    return Track(title, moments, tuple(operations), tensors, peak_bytes, peak_at)


def _tensors(
    graph: CostGraph, sequence: Sequence[int], swaps: Sequence[int], kinds: Sequence[int]
) -> Iterator[Tensor]:
    if graph.held_bytes:
        last = len(sequence) + 1
        yield Tensor("held throughout", -1, graph.held_bytes, 0, last, HELD, OTHERS)
    for step, op in enumerate(sequence):
        scratch_bytes = graph.operations[op].scratch_bytes
        if scratch_bytes:
            name = f"scratch of operation {graph.ids[op]}"
            yield Tensor(name, step, scratch_bytes, step, step + 1, SCRATCH, OTHERS)
    for life in lives(graph, sequence, swaps):
        size_bytes = graph.operations[sequence[life.step]].output_bytes[life.output]
        if size_bytes:
            name = f"{graph.ids[sequence[life.step]]}:{life.output}"
            kind = kinds[life.step]
            yield Tensor(name, life.step, size_bytes, life.step, life.end, kind, OTHERS)


def _repeated(
    graph: CostGraph, sequence: Sequence[int], swaps: Sequence[int]
) -> tuple[Repeated, ...]:
    """Each operation that runs again; a cost graph knows no ops."""
    swapped, seen = frozenset(swaps), set[int]()
    found: dict[str, list[int]] = {}
    for step, op in enumerate(sequence):
        if op in seen:
            what = "brought back" if step in swapped else "recomputed"
            total = found.setdefault(f"operation {graph.ids[op]}, {what}", [0, 0, 0])
            total[0] += 1
            cost = graph.swap_costs[op] if step in swapped else graph.costs[op]
            total[1] += int(cost)
            total[2] += sum(graph.operations[op].output_bytes)
        seen.add(op)
    repeated = [Repeated(what, *total) for what, total in found.items()]
    return tuple(sorted(repeated, key=lambda one: (-one.time_ns, one.op)))
