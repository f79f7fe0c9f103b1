"""One pass on one graph, with what its context needs of an item and no simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.context import Context
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import format_graph, parse_graph
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.buffers.kernel_call import Runtime
    from memopt.graph.graph import Graph
    from memopt.graph.rewriter import Declined, Edit
    from memopt.passes.base import Pass
    from support.text_cases import TextCase


class Done(NamedTuple):
    """What a pass did to a graph."""

    graph: Graph
    edits: tuple[Edit, ...]
    declined: tuple[Declined, ...]
    properties: Properties

    @property
    def graph_def(self) -> GraphDef:
        return to_graph_def(self.graph)

    @property
    def text(self) -> str:
        return format_graph(self.graph)

    @property
    def reasons(self) -> str:
        """What was left alone, a line each."""
        return "\n".join(f"{one.node}: {one.reason}" for one in self.declined)

    @property
    def released_bytes(self) -> int:
        """Bytes of the tensors that the edits release."""
        released = dict.fromkeys(name for edit in self.edits for name in edit.releases)
        return sum(self.properties.size_bytes(name) or 0 for name in released)


def run_pass(item: GrapplerItem, *passes: Pass, runtime: Runtime | None = None) -> Done:
    """Run passes one after the other; the graph is verified after each."""
    graph = from_graph_def(item.graph_def)
    rewriter = Rewriter(graph)
    properties = Properties.of(item)
    context = Context(
        properties,
        fed=_nodes(item.feed),
        fetched=_nodes(item.fetch),
        fetched_tensors=frozenset(item.fetched_tensors),
        kept=_nodes(item.keep),
        data_ends=item.data_ends,
        runtime=runtime,
    )
    for pass_ in passes:
        pass_.run(rewriter, context)
        verify_graph(graph)
    touched = {kind for edit in rewriter.edits for kind in edit.touches}
    assert touched <= {kind for pass_ in passes for kind in pass_.touches}
    return Done(graph, rewriter.edits, rewriter.declined, properties)


def run_case(case: TextCase, pass_: Pass) -> Done:
    """Run the pass of a text case on its graph."""
    settings = {key: tuple(sorted(value)) for key, value in case.settings.items()}
    item = GrapplerItem(
        to_graph_def(parse_graph(case.before)),
        feed=settings.get("fed", ()),
        fetch=settings.get("fetched", ()),
        keep=settings.get("kept", ()),
    )
    return run_pass(item, pass_)


def _nodes(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(":")[0] for name in names)
