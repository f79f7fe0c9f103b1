"""NativeCosts: the costs that TensorFlow's own Grappler gives to a graph's nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.costs.cost_model import Cost
from memopt.errors import InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.step_stats_pb2 import NodeExecStats

    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Node
    from memopt.item import GrapplerItem
    from memopt.shapes.properties import Properties

_EXECUTION_COUNT = "_execution_count"


class NativeCosts:
    """What TensorFlow's analytical cost estimator says, asked from TensorFlow itself.

    A cost depends on the node and on the kind of device, not on what else runs. So for each kind of
    device that is asked for, TensorFlow simulates the item's graph once with all of its nodes on
    one such device, whatever devices they are meant for; a cost is then right for a node on any
    device. This happens when a cost is first asked for, and only one such simulation may run in a
    process at a time.

    `execution_ns` is exact. TensorFlow rounds `compute_ns` and `memory_ns` down to whole
    microseconds, so their sum may be less; and it does not tell which costs are guesses.

    A node that is not in the item's graph, has another op or another number of inputs than there,
    or did not run in the simulation is left to the fallback. So are nodes of functions' bodies.

    Args:
        item: The graph.
        fallback: The costs of nodes that TensorFlow's table lacks, such as those that passes add.
    """

    def __init__(self, item: GrapplerItem, fallback: CostModel) -> None:
        self._item = item
        self._fallback = fallback
        self._tables: dict[tuple[object, ...], dict[str, _Entry]] = {}

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution; see `CostModel`.

        Raises:
            InvalidGraphError: TensorFlow cannot simulate the item's graph; the message is its own.
        """
        entry = self._table(device).get(node.name)
        if entry is None or entry.op != node.op or entry.inputs != len(node.inputs):
            return self._fallback.cost(node, device, properties)
        return entry.cost

    def _table(self, device: Device) -> dict[str, _Entry]:
        kind = (
            device.type,
            device.frequency_mhz,
            device.num_cores,
            device.bandwidth_kb_per_s,
            device.architecture,
        )
        if kind not in self._tables:
            self._tables[kind] = _measure(self._item, device)
        return self._tables[kind]


class _Entry(NamedTuple):
    """A node's cost, and what to know the node by."""

    op: str
    inputs: int
    cost: Cost


def _measure(item: GrapplerItem, device: Device) -> dict[str, _Entry]:
    """The costs of an item's nodes on a device, by name."""
    graph_def = item.with_variable_handles()
    for node in graph_def.node:
        node.device = ""
    performances, timeline = _simulate(graph_def, device)
    split = {performance.node: performance for performance in performances}
    executions_ns = _execution_times(timeline)
    entries = {}
    for node in item.graph_def.node:
        if node.name not in executions_ns:
            continue
        count = node.attr[_EXECUTION_COUNT].i if _EXECUTION_COUNT in node.attr else 1
        if count < 1:
            continue
        compute_ns = memory_ns = 0
        if node.name in split:
            compute_ns = split[node.name].compute_time
            memory_ns = split[node.name].memory_time
        entries[node.name] = _Entry(
            node.op,
            sum(not name.startswith("^") for name in node.input),
            Cost(executions_ns[node.name] // count, compute_ns, memory_ns),
        )
    return entries


def _simulate(graph_def: GraphDef, device: Device) -> tuple[Sequence[Any], Sequence[NodeExecStats]]:
    """TensorFlow's OpPerformances, and its timeline in the order of execution."""
    import tensorflow as tf
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import cluster
    from tensorflow.python.grappler import item as native_item

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    # Only what leads to a fetch is simulated.
    fetched = meta_graph.collection_def["train_op"].node_list.value
    fetched.extend(node.name for node in graph_def.node)
    try:
        prepared = native_item.Item(meta_graph)
        # Without a limit: a step that does not fit has costs too.
        machine = cluster.Cluster(
            devices=[replace(device, memory_bytes=0).to_proto()], disable_timeline=False
        )
        try:
            performances, _, stats = machine.MeasureCosts(prepared)
        finally:
            machine.Shutdown()
    except (ValueError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())
        raise InvalidGraphError(f"TensorFlow cannot simulate the graph: {reason}") from error
    timeline = [node for used in stats.dev_stats for node in used.node_stats]
    return performances, timeline


def _execution_times(timeline: Sequence[NodeExecStats]) -> dict[str, int]:
    """The nanoseconds of one execution of each node that ran on the one device.

    A Merge runs once for each of its inputs, and stands as often in the timeline, each time with
    the start of the first run and the end of the last. Its last run starts when the node before it
    ends; where that is no help because it runs again later, the runs are taken to be adjacent.
    """
    left = Counter(stats.node_name for stats in timeline)
    total = dict(left)
    times_ns: dict[str, int] = {}
    free_ns: int | None = 0
    for stats in timeline:
        name = stats.node_name
        end_ns = stats.all_start_nanos + stats.op_end_rel_nanos
        left[name] -= 1
        if left[name]:
            free_ns = None  # When this run ended is not told.
            continue
        if total[name] == 1:
            times_ns[name] = stats.op_end_rel_nanos
        elif free_ns is not None:
            times_ns[name] = end_ns - free_ns
        else:
            times_ns[name] = stats.op_end_rel_nanos // total[name]
        free_ns = end_ns
    return times_ns
