"""MemoryOptimizer: which passes run at which level, and verification around each of them."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from memopt.costs.properties import Properties
from memopt.errors import MemoptError, PassError
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.verify import verify_graph, verify_references
from memopt.io import as_item
from memopt.options import DEFAULT_TARGET_SCOPE, Level
from memopt.passes import Context, Pass, Recomputation
from memopt.result import OptimizationReport, OptimizationResult, PassReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.graph.graph import Graph
    from memopt.io import GraphSource
    from memopt.item import GrapplerItem


@dataclass(frozen=True)
class MemoryOptimizer:
    """Rewrites a graph so that a step needs less memory, with the same results.

    Every graph is verified before the first pass and after each one. A pass that fails, or whose
    result does not verify, is undone and reported; the others go on. Bodies of functions that the
    graph calls are rewritten too, as Grappler does.

    Attributes:
        level: How much is done: a `Level` or its name, in any case.
        target_scope: The name scope of gradient operations, as
            `memory_optimizer_target_node_name_scope` in RewriterConfig; "auto" finds them.
        rule: How operations that are cheap to recompute are told: "list" (Grappler's) or "cost".
        all_ports: Recompute for readers of every output port, not only of the first.
    """

    level: str = Level.RECOMPUTATION_HEURISTICS
    target_scope: str = DEFAULT_TARGET_SCOPE
    rule: str = "list"
    all_ports: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", Level.parse(self.level))
        # Options are checked where they are used: in the passes' own constructors.
        self.passes()

    def passes(self) -> tuple[Pass, ...]:
        """The passes of this level, in order."""
        if self.level == Level.NO_MEM_OPT:
            return ()
        return (
            Recomputation(
                target_scope=self.target_scope or DEFAULT_TARGET_SCOPE,
                hints_only=self.level == Level.MANUAL,
                rule=self.rule,
                all_ports=self.all_ports,
            ),
        )

    def optimize(self, cluster: None, item: GrapplerItem) -> OptimizationResult:
        """Rewrite an item's graph.

        Args:
            cluster: The devices, for levels that simulate them. The levels of this version need
                none: give `None`.
            item: The graph and its use. It is not changed.

        Raises:
            InvalidGraphError: The graph breaks a rule, or a fetch, feed or kept node is missing.
        """
        del cluster
        properties = Properties.of(item)
        with _collector_paused():
            graph = from_graph_def(item.graph_def)
            verify_graph(graph)
            verify_references(graph, item.fetch, "fetch")
            verify_references(graph, item.feed, "feed")
            verify_references(graph, item.keep, "kept node")
            nodes_before = len(graph)
            reports = tuple(
                report
                for name, body, context in _graphs(graph, item, properties)
                for report in self._run_passes(name, body, context)
            )
            graph_def = to_graph_def(graph)
        return OptimizationResult(
            graph_def=graph_def,
            report=OptimizationReport(
                level=Level.parse(self.level),
                passes=reports,
                nodes_before=nodes_before,
                nodes_after=len(graph),
                properties=properties,
            ),
        )

    def _run_passes(self, name: str, graph: Graph, context: Context) -> Iterator[PassReport]:
        rewriter = Rewriter(graph)
        done: list[str] = []
        for pass_ in self.passes():
            yield _run_pass(pass_, rewriter, context, name, done)
            done.append(str(pass_))


def optimize(  # noqa: PLR0913 - the options of the optimizer and of the item, by keyword
    graph: GraphSource,
    *,
    level: str = Level.RECOMPUTATION_HEURISTICS,
    target_scope: str = DEFAULT_TARGET_SCOPE,
    rule: str = "list",
    all_ports: bool = False,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
    keep: Sequence[str] = (),
) -> OptimizationResult:
    """Rewrite a graph so that a step needs less memory, with the same results.

    Args:
        graph: A GraphDef, MetaGraphDef, ConcreteFunction, path of a graph file, or GrapplerItem.
        level: How much is done; see `Level`.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        rule: How operations that are cheap to recompute are told: "list" (Grappler's) or "cost".
        all_ports: Recompute for readers of every output port, not only of the first.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.
        keep: Further nodes that must stay as they are called.

    Raises:
        FileError: The path holds no graph.
        InvalidGraphError: The graph breaks a rule, or a named node is missing.
        OptionsError: An option is not valid.
    """
    optimizer = MemoryOptimizer(level, target_scope, rule, all_ports)
    item = as_item(graph, fetch, feed)
    return optimizer.optimize(None, replace(item, keep=(*item.keep, *keep)))


def _run_pass(
    pass_: Pass, rewriter: Rewriter, context: Context, function: str, done: list[str]
) -> PassReport:
    """Run one pass; undo it if it fails or leaves a graph that does not verify."""
    start = rewriter.checkpoint()
    started = time.perf_counter()
    failure = ""
    try:
        pass_.run(rewriter, context)
        _verify_edits(pass_, rewriter, context, start.edits)
    except MemoptError as error:
        rewriter.revert(start)
        before = f" after {', '.join(done)}" if done else ""
        failure = f"{pass_}{before}: {error}"
    return PassReport(
        name=str(pass_),
        function=function,
        edits=rewriter.edits[start.edits :],
        declined=rewriter.declined[start.declined :],
        seconds=time.perf_counter() - started,
        failure=failure,
    )


def _verify_edits(pass_: Pass, rewriter: Rewriter, context: Context, first: int) -> None:
    """Check what a pass changed, and what it promised to leave alone.

    Raises:
        PassError: An edit is of a kind that the pass does not declare.
        InvalidGraphError: The graph breaks a rule.
    """
    edits = rewriter.edits[first:]
    if not edits:
        return
    graph = rewriter.graph
    touched: dict[str, None] = {}
    for edit in edits:
        undeclared = edit.touches - pass_.touches
        if undeclared:
            kinds = ", ".join(sorted(kind.name.lower() for kind in undeclared))
            raise PassError(f"an edit changed {kinds}, which the pass does not declare")
        touched.update(dict.fromkeys((*edit.added, *edit.changed)))
    present = (graph.find(name) for name in touched)
    verify_graph(graph, [node for node in present if node is not None])
    verify_references(graph, sorted(context.fetched | context.fed | context.kept), "used node")


def _graphs(
    graph: Graph, item: GrapplerItem, properties: Properties
) -> Iterator[tuple[str, Graph, Context]]:
    """The main graph (named "") and the bodies of the functions that it calls."""
    yield (
        "",
        graph,
        Context(
            properties,
            fed=_node_names(item.feed),
            fetched=_node_names(item.fetch),
            kept=_node_names(item.keep),
        ),
    )
    library = graph.library
    if not isinstance(library, Library):
        return
    for name in _called(graph, library):
        body = library.graph(name)
        verify_graph(body)
        yield (
            name,
            body,
            Context(
                properties.function(name),
                fed=frozenset(node.name for node in body if node.op == ARGUMENT),
                fetched=frozenset(node.name for node in body if node.op == RESULT),
                kept=frozenset(library.control_outputs(name)),
            ),
        )


def _called(graph: Graph, library: Library) -> list[str]:
    """The functions that a graph calls, directly or through others, in order of discovery."""
    if not library.names():
        return []
    found: dict[str, None] = {}
    pending = [graph]
    while pending:
        for node in pending.pop():
            for name in op_types.called_functions(node, library):
                if name not in found and library.op_def(name) is not None:
                    found[name] = None
                    pending.append(library.graph(name))
    return list(found)


def _node_names(references: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.partition(":")[0] for name in references)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector from running while many long-lived objects are made.

    It would look at all of them again and again and find nothing; it takes half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
