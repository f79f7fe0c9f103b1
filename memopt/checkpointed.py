"""An item whose loops run in segments: another graph, of which all is to be inferred anew."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.prepared import Source, find_parts
from memopt.shapes.function_calls import has_loops_anywhere
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.pipeline import Pipeline
    from memopt.prepared import Simulators


def checkpointed(source: Source, pipeline: Pipeline, simulators: Simulators) -> Source:
    """The source after passes that need nothing simulated; the same where there are no loops.

    Args:
        source: The graph as it is.
        pipeline: The passes, each of which runs once.
        simulators: How its graphs are simulated.
    """
    item, properties, _ = source
    if not has_loops_anywhere(item.graph_def):
        return source
    graph = from_graph_def(item.graph_def)
    reports = {}
    # The functions that are added are not looked at.
    for part in list(find_parts(graph, item, properties, simulators._replace(cluster=None))):
        reports[part.function] = pipeline.run(*part, math.inf).passes
    changed = Source(item, properties, reports)
    if not changed.is_changed:
        return changed
    item = replace(item, graph_def=to_graph_def(graph))
    return Source(item, Properties.of(item), reports)
