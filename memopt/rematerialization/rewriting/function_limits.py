"""The limits of function bodies, from graphs as they are: see `called_budgets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.functiondef import Library
from memopt.rematerialization.rewriting.function_budgets import (
    MAIN,
    Caller,
    all_budgets,
    find_calls,
)
from memopt.sequencing.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.context import Context
    from memopt.graph.graph import Graph

    Part = tuple[Graph, Context]


def find_body_limits(parts: Mapping[str, Part], limit_bytes: int) -> dict[str, int]:
    """What may be in use while each body runs, what its caller gives it included.

    Args:
        parts: The main graph by the name "", and the bodies that it calls by theirs.
        limit_bytes: What may be in use while the main graph runs, everything included.

    Returns:
        By function: bytes, at least 1. Functions that are not called are not there.
    """
    callers: dict[str, Caller] = {}
    held_bytes: dict[str, int] = {}
    peaks_bytes: dict[str, int] = {}
    for name, (graph, context) in parts.items():
        if not len(graph) or not isinstance(graph.library, Library):
            continue
        timeline = Step.in_context(graph, context).run_freely()
        buffers = timeline.buffer_graph
        callers[name] = Caller(buffers, timeline.sequence, find_calls(buffers.nodes, graph.library))
        held_bytes[name] = timeline.held_bytes
        peaks_bytes[name] = timeline.step_peak_bytes
    if MAIN not in callers:
        return {}
    budgets = all_budgets(callers, limit_bytes - held_bytes[MAIN], peaks_bytes)
    return {name: max(left + held_bytes.get(name, 0), 1) for name, left in budgets.items()}
