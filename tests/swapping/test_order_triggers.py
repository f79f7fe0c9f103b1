"""What a copy waits for by the order of a simulated step, whose times are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from memopt.graph.text import parse_graph
from memopt.swapping.order_triggers import OrderTriggers

GRAPH = """
x = A()
a = A(x)
skipped = A(a)
behind = A(skipped)
late = A(a)
reader = A(late)
apart = A(x)
"""
STARTS_NS = {"x": 0, "a": 10, "behind": 20, "apart": 30, "late": 40, "reader": 50}
"""One node did not run. Each takes 5 ns."""


def found(call: str, node: str, *span_ns: int) -> str | None:
    graph = parse_graph(GRAPH)
    starts_ns = [STARTS_NS.get(node.name, -1) for node in graph]
    timeline: Any = SimpleNamespace(
        nodes=[node for node in graph if node.name in STARTS_NS],
        starts_ns=starts_ns,
        ends_ns=[start_ns + 5 if start_ns >= 0 else -1 for start_ns in starts_ns],
    )
    triggers = OrderTriggers(timeline, lambda _: True)
    if call == "after":
        trigger = triggers.after(graph[node].output(), *span_ns)
    else:
        trigger = triggers.before(graph[node], *span_ns)
    return None if trigger is None else trigger.name


@pytest.mark.parametrize(
    ("call", "node", "span_ns", "expected"),
    [
        # What the tensor's node leads to comes before what starts sooner by itself.
        ("after", "a", (15, 100), "late"),
        ("after", "a", (45, 100), "reader"),
        ("after", "late", (15, 100), "reader"),
        # What did not run leads nowhere.
        ("after", "skipped", (0, 100), "behind"),
        # Nothing near is in the span: the first of all in it.
        ("after", "reader", (15, 100), "behind"),
        ("after", "a", (25, 39), "apart"),
        ("after", "a", (51, 60), None),
        ("before", "reader", (0, 100), "late"),
        ("before", "reader", (0, 20), "a"),
        ("before", "behind", (0, 100), "reader"),
        ("before", "reader", (30, 40), "apart"),
        ("before", "reader", (0, 5), None),
    ],
)
def test_the_nearest_in_the_span_is_found(
    call: str, node: str, span_ns: tuple[int, int], expected: str | None
) -> None:
    assert found(call, node, *span_ns) == expected
