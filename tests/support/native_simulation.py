"""TensorFlow's own simulation as an oracle: times, order, peaks and live tensors."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.cluster import Device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.step_stats_pb2 import StepStats

UNLIMITED_BYTES = 1 << 50
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
_EXHAUSTED = re.compile(r"Graph requires (\d+) bytes of memory on device (\S+)")


class NativeLiveTensor(NamedTuple):
    """A tensor that is live at a peak."""

    node: str
    port: int
    size_bytes: int
    allocated_ns: int
    freed_ns: int


class NativePeak(NamedTuple):
    """`GraphMemory`'s peak of one device; -1 bytes for a device that ran nothing."""

    used_bytes: int
    live: frozenset[NativeLiveTensor]


class NativeNode(NamedTuple):
    """What the simulation says of one node."""

    device: str
    start_ns: int
    end_ns: int
    output_bytes: tuple[int, ...]
    output_shapes: tuple[tuple[int, ...] | None, ...]
    output_dtypes: tuple[int, ...]
    persistent_bytes: int


class NativeSimulation(NamedTuple):
    """A whole simulation: nodes by name, and each device's nodes in the order of execution."""

    nodes: dict[str, NativeNode]
    order: dict[str, list[str]]
    step_stats: StepStats


def gpu(index: int = 0, memory_bytes: int = UNLIMITED_BYTES) -> Device:
    return replace(Device.parse(f"GPU:{index}=GPU"), memory_bytes=memory_bytes)


def cpu(index: int = 0, memory_bytes: int = UNLIMITED_BYTES) -> Device:
    return replace(Device.parse(f"CPU:{index}=CPU"), memory_bytes=memory_bytes)


def simulate_native(
    graph_def: GraphDef, devices: Iterable[Device], fetch: Sequence[str]
) -> NativeSimulation:
    """VirtualScheduler with FirstReady; every Placeholder is fed, memory is unlimited."""
    from tensorflow.python.grappler import item

    unlimited = [replace(device, memory_bytes=UNLIMITED_BYTES) for device in devices]
    native_item = item.Item(meta_graph(graph_def, fetch), ignore_colocation=False)
    with _NativeCluster(unlimited, disable_timeline=False) as cluster:
        _, _, stats = cluster.MeasureCosts(native_item)
    nodes: dict[str, NativeNode] = {}
    order: dict[str, list[str]] = {}
    for device_stats in stats.dev_stats:
        names = order.setdefault(device_stats.device, [])
        for node in device_stats.node_stats:
            names.append(node.node_name)
            outputs = [output.tensor_description for output in node.output]
            nodes[node.node_name] = NativeNode(
                device_stats.device,
                node.all_start_nanos,
                node.all_start_nanos + node.op_end_rel_nanos,
                tuple(t.allocation_description.allocated_bytes for t in outputs),
                tuple(_shape(t.shape) for t in outputs),
                tuple(t.dtype for t in outputs),
                node.memory_stats.persistent_memory_size,
            )
    return NativeSimulation(nodes, order, stats)


def native_costs(
    graph_def: GraphDef, devices: Iterable[Device], fetch: Sequence[str]
) -> dict[str, int]:
    """Nanoseconds of one execution of each node that runs; a Merge's is the sum of its visits."""
    simulation = simulate_native(graph_def, devices, fetch)
    return {name: node.end_ns - node.start_ns for name, node in simulation.nodes.items()}


def native_peaks(
    graph_def: GraphDef, devices: Iterable[Device], fetch: Sequence[str]
) -> dict[str, NativePeak]:
    """`GraphMemory`'s peak of each device, persistent tensors included."""
    from tensorflow.python.grappler import item

    unlimited = [replace(device, memory_bytes=UNLIMITED_BYTES) for device in devices]
    native_item = item.Item(meta_graph(graph_def, fetch), ignore_colocation=False)
    with _NativeCluster(unlimited, disable_detailed_stats=True) as cluster:
        usage = cluster.DeterminePeakMemoryUsage(native_item)
    return {
        name: NativePeak(peak[0], frozenset(NativeLiveTensor(*tensor) for tensor in peak[1]))
        for name, peak in usage.items()
    }


def native_temporary_peak(
    graph_def: GraphDef, devices: Iterable[Device], fetch: Sequence[str], device: str = GPU
) -> int:
    """The scheduler's peak of temporary memory on one device.

    TensorFlow reveals it only in the message of RESOURCE_EXHAUSTED, which a limit of 1 byte gives.
    """
    limited = [
        replace(known, memory_bytes=1 if known.name == device else UNLIMITED_BYTES)
        for known in devices
    ]
    message = exhausted_message(graph_def, limited, fetch)
    if message is None:
        return 0
    match = _EXHAUSTED.search(message)
    assert match is not None
    assert match[2] == device
    return int(match[1])


def exhausted_message(
    graph_def: GraphDef, devices: Iterable[Device], fetch: Sequence[str]
) -> str | None:
    """TensorFlow's RESOURCE_EXHAUSTED message for devices of this size; `None` if it fits."""
    import tensorflow as tf
    from tensorflow.python.grappler import item

    native_item = item.Item(meta_graph(graph_def, fetch), ignore_colocation=False)
    with _NativeCluster(list(devices)) as cluster:
        try:
            cluster.DeterminePeakMemoryUsage(native_item)
        except tf.errors.ResourceExhaustedError as error:
            return str(error)
    return None


def meta_graph(graph_def: GraphDef, fetch: Sequence[str]) -> Any:
    """A MetaGraphDef as Grappler's Python binding wants it: fetches as training operations."""
    from tensorflow.core.protobuf import meta_graph_pb2

    message = meta_graph_pb2.MetaGraphDef()
    message.graph_def.CopyFrom(graph_def)
    message.collection_def["train_op"].node_list.value.extend(fetch)
    return message


class _NativeCluster:
    """TensorFlow's virtual cluster, shut down at the end; it allows one at a time."""

    def __init__(self, devices: list[Device], **options: bool) -> None:
        from tensorflow.python.grappler import cluster

        self._cluster = cluster.Cluster(
            devices=[device.to_proto() for device in devices], **options
        )

    def __enter__(self) -> Any:
        return self._cluster

    def __exit__(self, *_: object) -> None:
        self._cluster.Shutdown()


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
