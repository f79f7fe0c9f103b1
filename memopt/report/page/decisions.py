"""What an optimization decided about which node and why, and what runs again because of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.cluster import ANY_CPU
from memopt.costs.kernel_costs import KernelCosts
from memopt.display import bytes_text
from memopt.graph.copy_names import is_copy
from memopt.report.page.model import Decision, Repeated, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.graph.rewriter import Edit
    from memopt.result import OptimizationReport, PassReport

_MOST_NODES = 200
"""An edit of more nodes, such as an order of all of them, is not told of each of them."""
_REASON_LENGTH = 600
_BYTES = re.compile(r"\b([0-9]{5,15}) bytes\b")
_ORDER = "operations run in the order"


def decisions_of(report: OptimizationReport) -> Iterator[Decision]:
    """Every decision, in the order in which they were taken: edits, what was left alone, undone."""
    for done in report.passes:
        by = done.name.partition("{")[0]
        if done.function:
            by = f"{by}, function {shown(done.function)}"
        if done.failure:
            yield Decision("undone", "", readable(done.failure), by)
        for edit in done.edits:
            yield from _of_edit(report, done, edit, by)
        for declined in done.declined:
            node = shown(declined.node)
            yield Decision("left alone", node, readable(declined.reason), by, (node,))


def _of_edit(
    report: OptimizationReport, done: PassReport, edit: Edit, by: str
) -> Iterator[Decision]:
    names = [shown(name) for name in (*edit.added, *edit.removed, *edit.changed)]
    yield Decision(
        _what(edit),
        names[0] if names else "",
        readable(edit.reason),
        by,
        tuple(names) if len(names) <= _MOST_NODES else (),
        len(names),
        report.effect_bytes(edit, done.function) if edit.releases or edit.holds else None,
    )
    for one in edit.decisions:
        node = shown(one.node)
        what = "swapped" if one.reason.startswith("brought back") else "recomputed"
        yield Decision(what, node, readable(one.reason), by, (node,))


def _what(edit: Edit) -> str:
    if _ORDER in edit.reason:
        return "ordered"
    if any(is_copy(name) for name in edit.added):
        return "recomputed"
    if any(name.startswith("swap_in_") for name in edit.added):
        return "swapped"
    return "edited"


def readable(text: str) -> str:
    """A sentence on one line, numbers of bytes as the rest of the page has them."""
    line = _BYTES.sub(lambda found: bytes_text(int(found[1])), " ".join(text.split()))
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 3]}..."


def repeated_of(report: OptimizationReport) -> tuple[Repeated, ...]:
    """What runs again, by op, that which takes longest first; nothing at a level without an order.

    Times are those of the analytical model: what the optimizer went by may have been another.
    """
    if report.runtime is None:
        return ()
    timeline, properties = report.runtime.after, report.properties
    graph, costs = timeline.buffer_graph, KernelCosts()
    found: dict[str, list[int]] = {}
    for number in timeline.sequence:
        node = graph.nodes[number]
        if not is_copy(node.name):
            continue
        total = found.setdefault(node.op, [0, 0, 0])
        total[0] += 1
        total[1] += costs.cost(node, ANY_CPU, properties).execution_ns
        total[2] += sum(graph.size_bytes[buffer] for buffer in graph.made[number])
    repeated = [Repeated(op, *total) for op, total in found.items()]
    return tuple(sorted(repeated, key=lambda one: (-one.time_ns, one.op)))
