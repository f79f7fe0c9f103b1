"""An item whose loops run in segments: another graph, of which all is to be inferred anew."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.loops.kept_at_once import kept_at_once_bytes
from memopt.loops.raising import raise_loops
from memopt.optimization.pipeline import Pipeline
from memopt.optimization.prepared import Source, find_parts
from memopt.passes import CheckpointLoops
from memopt.shapes.function_calls import has_loops_anywhere
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.optimization.prepared import Prepared, Simulators
    from memopt.passes import Pass


def in_segments(
    prepared: Prepared,
    raised: Source,
    pipeline: Pipeline,
    simulators: Simulators,
    enough_bytes: int = 0,
) -> Source:
    """The step with loops in segments; nothing is simulated for that.

    Args:
        prepared: The graph as it is.
        raised: The same with loops that run functions.
        pipeline: All passes of the level.
        simulators: How graphs are simulated.
        enough_bytes: How much less loops have to keep; 0: as little as they can.

    Returns:
        A source without edits where no loop can run in segments.
    """
    source, (item, properties, _) = prepared.source, raised
    if not pipeline.first or not has_loops_anywhere(item.graph_def):
        return source
    passes = Pipeline(tuple(_with_enough(one, enough_bytes) for one in pipeline.first), ())
    graph = from_graph_def(item.graph_def)
    # The functions that are added are not looked at.
    parts = list(find_parts(graph, item, properties, simulators._replace(cluster=None)))
    reports = {part.function: passes.run(*part, math.inf).passes for part in parts}
    changed = raised._replace(reports=reports)
    if not changed.edits:
        return source._replace(reports=reports)
    item = replace(item, graph_def=to_graph_def(graph))
    return Source(item, Properties.of(item), reports)


def _with_enough(one: Pass, enough_bytes: int) -> Pass:
    if not isinstance(one, CheckpointLoops) or not enough_bytes:
        return one
    return replace(one, enough_bytes=one.enough_bytes or enough_bytes)


def loops_keep_too_much(prepared: Prepared, raised: Source) -> bool:
    """Whether what loops keep for others is over the budget, whatever else is done.

    Args:
        prepared: The graph as it is, and what its budget is.
        raised: The same with loops that run functions.
    """
    item, properties, _ = raised
    if prepared.before is None or not prepared.over_bytes:
        return False
    if not has_loops_anywhere(item.graph_def):
        return False
    named = Context.of_item(item, properties).named
    kept_bytes = kept_at_once_bytes(from_graph_def(item.graph_def), named, properties)
    return prepared.before.buffer_graph.held_bytes + kept_bytes > prepared.limits.total_bytes


def with_functions(source: Source) -> Source:
    """The source with loops that run functions, where it has others; see `raise_loops`."""
    item, properties, _ = source

    def shape_of(tensor: str) -> tuple[int, ...] | None:
        known = properties.certain.tensor(tensor)
        return None if known is None else known.shape

    graph_def = raise_loops(item.graph_def, shape_of, Context.of_item(item, properties).fed)
    if graph_def is item.graph_def:
        return source
    item = replace(item, graph_def=graph_def)
    return Source(item, Properties.of(item))
