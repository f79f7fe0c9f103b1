"""The AddN scheduling pass on its own, in Grappler's loop, on a described machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.cluster import VirtualCluster
from memopt.context import Context
from memopt.costs.estimator.grappler_costs import GrapplerCosts
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device
    from memopt.graph.graph import Graph
    from memopt.graph.rewriter import Declined, Edit
    from memopt.passes.addn_scheduling import AddnScheduling

    Array = npt.NDArray[Any]

MOST_ITERATIONS = 25


class Scheduled(NamedTuple):
    """What the pass did to a graph."""

    graph: Graph
    edits: tuple[Edit, ...]
    declined: tuple[Declined, ...]
    iterations: int
    context: Context

    @property
    def graph_def(self) -> GraphDef:
        return to_graph_def(self.graph)


def schedule(
    pass_: AddnScheduling,
    item: GrapplerItem,
    devices: Iterable[Device],
    iterations: int = MOST_ITERATIONS,
) -> Scheduled:
    """Run the pass as Grappler's loop does, at most so many times."""
    graph = from_graph_def(item.graph_def)
    verify_graph(graph)
    context = context_of(graph, item, devices)
    rewriter = Rewriter(graph)
    assert context.simulated is not None
    done, goes_on = 0, True
    while goes_on and done < iterations:
        done += 1
        start = rewriter.checkpoint()
        pass_.run(rewriter, context)
        edits, declined = rewriter.edits[start.edits :], rewriter.declined[start.declined :]
        goes_on = pass_.wants_more(edits, declined)
        if goes_on:
            context.simulated.forget()
    verify_graph(graph)
    return Scheduled(graph, rewriter.edits, rewriter.declined, done, context)


def context_of(graph: Graph, item: GrapplerItem, devices: Iterable[Device]) -> Context:
    """What the pass may know: Grappler's own shapes and costs."""
    properties = Properties.as_in_grappler(item)
    request = Request.of(item)
    scheduler = VirtualScheduler(VirtualCluster(devices), GrapplerCosts(), properties)
    return Context(
        properties,
        fed=request.fed,
        fetched=frozenset(request.fetched),
        kept=frozenset(item.keep),
        simulated=SimulatedMemory(graph, scheduler, request),
    )


def item_of(graph_def: GraphDef, *fetch: str) -> GrapplerItem:
    """The item of a graph whose Placeholders are fed, as TensorFlow's Python binding has it."""
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    return GrapplerItem(graph_def, feed=feed, fetch=fetch)


def schedule_body(
    pass_: AddnScheduling, graph_def: GraphDef, function: str, devices: Iterable[Device]
) -> Scheduled:
    """Run the pass once over the body of a function; `graph_def` of the result has all of it."""
    main = from_graph_def(graph_def)
    assert isinstance(main.library, Library)
    body = main.library.graph(function)
    properties = Properties.of(GrapplerItem(graph_def)).function(function)
    results = tuple(node.name for node in body if node.op == RESULT)
    scheduler = VirtualScheduler(VirtualCluster(devices), GrapplerCosts(), properties)
    context = Context(
        properties,
        fed=frozenset(node.name for node in body if node.op == ARGUMENT),
        fetched=frozenset(results),
        simulated=SimulatedMemory(body, scheduler, Request(results, frozenset())),
    )
    rewriter = Rewriter(body)
    pass_.run(rewriter, context)
    verify_graph(body)
    return Scheduled(main, rewriter.edits, rewriter.declined, 1, context)


def run_sums(
    graph_def: GraphDef,
    fetch: Sequence[str],
    values: Mapping[str, Array],
    *,
    threads: int = 1,
    steps: int = 1,
) -> list[list[Array]]:
    """Run a graph in a session of its own, without any optimizer; what is fetched in each step.

    Args:
        graph_def: The graph.
        fetch: Tensors.
        values: What Placeholders are fed, and variables of both kinds hold, by node name.
        threads: How many operations may run at once.
        steps: How many steps.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto, OptimizerOptions

    config = ConfigProto(inter_op_parallelism_threads=threads, allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = OptimizerOptions.L0
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        feed = {}
        assignments = []
        for name, value in values.items():
            operation = graph.get_operation_by_name(name)
            (output,) = operation.outputs
            if operation.type == "Placeholder":
                feed[output] = value
            elif operation.type == "VarHandleOp":
                assignments.append(tf.raw_ops.AssignVariableOp(resource=output, value=value))
            else:
                assignments.append(tf.raw_ops.Assign(ref=output, value=value).op)
        with tf.compat.v1.Session(config=config) as session:
            session.run(assignments)
            return [session.run(list(fetch), feed) for _ in range(steps)]
