"""What forms of a step are made from: the step, with loops that keep less where it has any."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from memopt.context import Context
from memopt.errors import PassError
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.optimization.pipeline import Pipeline
from memopt.passes.inline_calls import InlineCalls
from memopt.passes.lean_loops import LeanLoops
from memopt.shapes.function_calls import CALLS, has_loops_anywhere
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.graph.graph import Graph
    from memopt.item import GrapplerItem
    from memopt.passes.base import Pass
    from memopt.passes.checkpoint_loops import CheckpointLoops
    from memopt.passes.compiled_rematerialization import CompiledRematerialization
    from memopt.result import PassReport
    from memopt.xla.buffer_assignment import CompiledMemory


class StartingPoint(NamedTuple):
    """A step that forms are made from.

    Attributes:
        item: The step.
        reports: What was done to it; empty if nothing was.
    """

    item: GrapplerItem
    reports: tuple[PassReport, ...] = ()

    def rewritten(
        self, passes: Sequence[Pass], memory: CompiledMemory | None = None
    ) -> StartingPoint:
        """What passes make of it, with bodies in the place of calls; itself if that is nothing.

        Args:
            passes: The passes.
            memory: What the compiler said of the step as it is, for passes that ask.

        Raises:
            PassError: A pass fails.
        """
        graph, _, reports = self._run(passes, memory)
        # Bodies in the place of calls are for the other passes alone.
        if not any(report.edits for report in reports if report.name != InlineCalls.name):
            return self._replace(reports=(*self.reports, *reports))
        item = replace(self.item, graph_def=to_graph_def(graph))
        return StartingPoint(item, (*self.reports, *reports))

    def estimated_bytes(self, passes: Sequence[Pass], plans: CompiledRematerialization) -> int:
        """What plans take the step's own memory for, after passes.

        Raises:
            PassError: A pass fails.
        """
        graph, context, _ = self._run(passes)
        return plans.estimated_bytes(graph, context)

    def _run(
        self, passes: Sequence[Pass], memory: CompiledMemory | None = None
    ) -> tuple[Graph, Context, tuple[PassReport, ...]]:
        """What passes make of it, what they knew, and what they did."""
        item = self.item
        graph = from_graph_def(item.graph_def)
        # What a pass adds to what is known is for this form alone.
        context = Context.of_item(item, Properties.of(item))
        if memory is not None:
            context = replace(context, stored=memory.stored, library_sums=memory.library_sums)
        inline = (InlineCalls(),) if _may_inline(graph, item) else ()
        reports = Pipeline((*inline, *passes), ()).run("", graph, context, math.inf).passes
        failures = [report.failure for report in reports if report.failure]
        if failures:
            raise PassError(failures[0])
        return graph, context, reports


def starting_point(item: GrapplerItem, loops: CheckpointLoops | None) -> StartingPoint:
    """A step with loops that keep no copies of what is there anyway.

    Args:
        item: The step.
        loops: Whether turns run again as well, and how many.

    Raises:
        PassError: A pass fails.
    """
    start = StartingPoint(item)
    if not has_loops_anywhere(item.graph_def):
        return start
    # Each changes functions, of which everything has to be inferred anew.
    for one in (LeanLoops(), loops):
        start = start if one is None else start.rewritten([one])
    return start


def _may_inline(graph: Graph, item: GrapplerItem) -> bool:
    """What a call gives is handed to the caller under its name only if it stays a call."""
    fetched = (name.partition(":")[0] for name in item.fetched_tensors)
    return not any(name in graph and graph[name].op in CALLS for name in fetched)
