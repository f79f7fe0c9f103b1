"""ProfiledCosts: times that were measured while the graph, or its like, ran for real."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memopt.costs.cost_model import Cost
from memopt.errors import FileError
from memopt.files.whole_files import read_file
from memopt.graph.attributes import attributes_key
from memopt.graph.graphdef import from_graph_def
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tensorflow.core.framework.step_stats_pb2 import NodeExecStats, StepStats
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import TensorProperties

    Profile: TypeAlias = RunMetadata | StepStats | str | os.PathLike[str]

SIZE_LIMIT_BYTES = (1 << 31) - 1
"""The largest file that is read, which is the largest message that protobuf can hold."""

_DEVICE = re.compile(
    r"(?:/job:[^/]+)?(?:/replica:\d+)?(?:/task:\d+)?"
    r"/(?:device:)?(?P<type>[A-Za-z]\w*):\d+(?:/(?P<part>.+))?"
)
_FED = re.compile(r"_arg_(?P<name>.+)_\d+_\d+")
_LABEL = re.compile(r" = (?P<op>[\w>]+)\(")
_KERNEL_PARTS = frozenset({"stream:all", "memcpy"})
_CALLS = frozenset(
    "While StatelessWhile If StatelessIf Case StatelessCase PartitionedCall "
    "StatefulPartitionedCall".split()
)
_INLINED_PREFIX = "Func/"
_LONGEST_FUSION = 4


class ProfiledCosts:
    """The times of profiles, TensorFlow's step statistics of real runs of an item's graph.

    A node's time on a type of device is the first of these that there is:

    1. The node's own: the median over the profiles of the average in each. For a GPU it is that of
       its kernels, if those were recorded, not of starting them. For a loop, branch or call that
       TensorFlow dissolved, it is what all operations took that came out of it; of nodes that one
       kernel did together, the one that the kernel's op names has all of the time.
    2. The median of those nodes that have the same op, the same attributes (names with "_" and
       tensors aside) and inputs and outputs of the same types and shapes.
    3. Its bytes of inputs and outputs times the median time per byte of the nodes with its op; such
       a cost is marked as inaccurate.
    4. What the fallback says.

    A measured time is not split: all of it counts as arithmetic, and is at least a nanosecond.

    Args:
        profiles: RunMetadata or StepStats messages, or files that hold a RunMetadata.
        item: The graph that ran, by the names in which the profiles speak of its nodes.
        fallback: The costs of what the profiles say nothing of.

    Raises:
        FileError: There is no such file, or it holds no step statistics.
    """

    def __init__(
        self, profiles: Iterable[Profile], item: GrapplerItem, fallback: CostModel
    ) -> None:
        self._fallback = fallback
        self._graph = from_graph_def(item.graph_def)
        self._properties = Properties.of(item)
        self._times_ns = _node_times(self._graph, [_step_stats(profile) for profile in profiles])

    def times_ns(self, device_type: str) -> Mapping[str, int]:
        """The measured nodes of a type of device ("CPU", "GPU"), and their times in nanoseconds."""
        return self._times_ns.get(device_type, {})

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution; see `CostModel`."""
        known = self._times_ns.get(device.type)
        if known is None:
            return self._fallback.cost(node, device, properties)
        measured = self._graph.find(node.name)
        if node.name in known and measured is not None and _is_same(node, measured):
            return _measured(known[node.name])
        alike = self._alike[device.type]
        time_ns = alike.times_ns.get(_signature(node, properties) or ())
        if time_ns is not None:
            return _measured(time_ns)
        size_bytes = _size_bytes(node, properties)
        if node.op in alike.ns_per_byte and size_bytes:
            return _measured(round(alike.ns_per_byte[node.op] * size_bytes), inaccurate=True)
        return self._fallback.cost(node, device, properties)

    @cached_property
    def _alike(self) -> Mapping[str, _Alike]:
        """What the measured nodes of each type of device say of others; needs their shapes."""
        return {
            device_type: _generalize(self._graph, self._properties, times_ns)
            for device_type, times_ns in self._times_ns.items()
        }


class _Alike(NamedTuple):
    """Times of nodes that are like measured ones: by signature, and per byte by op."""

    times_ns: Mapping[tuple[object, ...], int]
    ns_per_byte: Mapping[str, float]


class _Record(NamedTuple):
    """One entry of step statistics.

    Attributes:
        device_type: Type of the device in capitals.
        node: The node's name.
        op: The op that ran; "" if it is not told.
        time_ns: From start to end of the computation.
        is_kernel: Whether this is work of a GPU's stream, not of the thread that started it.
    """

    device_type: str
    node: str
    op: str
    time_ns: int
    is_kernel: bool


def _measured(time_ns: int, *, inaccurate: bool = False) -> Cost:
    time_ns = max(time_ns, 1)
    return Cost(time_ns, time_ns, 0, inaccurate)


def _is_same(node: Node, measured: Node) -> bool:
    return node.op == measured.op and len(node.inputs) == len(measured.inputs)


def _step_stats(profile: Profile) -> StepStats:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import config_pb2

    if not isinstance(profile, (str, os.PathLike)):
        stats: StepStats = getattr(profile, "step_stats", profile)
        return stats
    path = os.fspath(profile)
    content = read_file(path, SIZE_LIMIT_BYTES)
    try:
        stats = config_pb2.RunMetadata.FromString(content).step_stats
    except DecodeError as error:
        raise FileError(f"{path}: is no RunMetadata") from error
    if not any(device.node_stats for device in stats.dev_stats):
        raise FileError(f"{path}: holds no step statistics; was the step run with FULL_TRACE?")
    return stats


def _node_times(graph: Graph, profiles: Iterable[StepStats]) -> dict[str, dict[str, int]]:
    """Nanoseconds of the graph's nodes, by type of device and name, in the graph's order."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    for stats in profiles:
        for key, time_ns in _average_times(graph, stats).items():
            samples[key].append(time_ns)
    times_ns: dict[str, dict[str, int]] = {}
    for device_type in sorted({device_type for device_type, _ in samples}):
        times_ns[device_type] = {
            node.name: max(round(median(samples[device_type, node.name])), 1)
            for node in graph
            if (device_type, node.name) in samples
        }
    return times_ns


def _average_times(graph: Graph, stats: StepStats) -> dict[tuple[str, str], float]:
    """Nanoseconds of one execution in one step, by type of device and node."""
    runs: dict[tuple[str, str], list[int]] = defaultdict(list)
    kernels_ns: dict[tuple[str, str], int] = defaultdict(int)
    dissolved_ns: dict[tuple[str, str], int] = defaultdict(int)
    for record in _records(stats):
        name, is_body = _find(graph, record)
        if not name:
            continue
        key = (record.device_type, name)
        if is_body:
            dissolved_ns[key] += record.time_ns
        elif record.is_kernel:
            kernels_ns[key] += record.time_ns
        else:
            runs[key].append(record.time_ns)
    times_ns = dict[tuple[str, str], float](dissolved_ns)
    times_ns |= {key: sum(found) / len(found) for key, found in runs.items()}
    # What starts the kernels is recorded too, so it tells how often; else it is taken to be once.
    for key, total_ns in kernels_ns.items():
        times_ns[key] = total_ns / (len(runs.get(key, ())) or 1)
    return times_ns


def _records(stats: StepStats) -> Iterator[_Record]:
    """The entries that count: those of whole devices, and of a GPU's streams taken together.

    The entries of single streams repeat these.
    """
    for device in stats.dev_stats:
        match = _DEVICE.fullmatch(device.device)
        if match is None or (match["part"] and match["part"] not in _KERNEL_PARTS):
            continue
        is_kernel = bool(match["part"])
        for node in device.node_stats:
            name, op = _name_and_op(node, is_kernel=is_kernel)
            yield _Record(match["type"].upper(), name, op, _duration_ns(node), is_kernel)


def _name_and_op(node: NodeExecStats, *, is_kernel: bool) -> tuple[str, str]:
    """Which node an entry is of, and the op if it tells: as `name:Op` or `name = Op(inputs)`."""
    name, _, op = node.node_name.partition("#")[0].partition(":")
    fed = _FED.fullmatch(name)
    if fed is not None:
        return fed["name"], ""
    label = None if is_kernel else _LABEL.search(node.timeline_label)
    return name, op or (label["op"] if label else "")


def _find(graph: Graph, record: _Record) -> tuple[str, bool]:
    """The name of the node that ran, and whether it ran as part of its body; "" for no node."""
    node = graph.find(record.node)
    if node is None:
        call = _call_around(graph, record.node)
        return (call.name, True) if call else ("", False)
    for _ in range(_LONGEST_FUSION):
        if _is_op(record.op, node.op):
            return node.name, False
        # One kernel in place of several nodes has the name of the last.
        if not (record.op.startswith("_") and node.inputs):
            break
        node = node.inputs[0].node
    return "", False


def _is_op(ran: str, op: str) -> bool:
    """Whether a kernel's op is the node's or a device's form of it, such as `_MklMatMul`.

    A captured variable's Placeholder stands for a handle.
    """
    if ran.startswith("_"):
        return op in ran
    return ran in ("", op) or (ran, op) == ("VarHandleOp", "Placeholder")


def _call_around(graph: Graph, name: str) -> Node | None:
    """The call whose function's body a node without a place in the graph came from."""
    name = name.removeprefix(_INLINED_PREFIX)
    while "/" in name:
        name = name.rpartition("/")[0]
        node = graph.find(name)
        if node is not None and _is_call(graph, node):
            return node
    return None


def _is_call(graph: Graph, node: Node) -> bool:
    library = graph.library
    return node.op in _CALLS or (library is not None and library.op_def(node.op) is not None)


def _duration_ns(node: NodeExecStats) -> int:
    """The time of the computation itself, without what the executor does around it."""
    time_ns = int(node.op_end_rel_nanos - node.op_start_rel_nanos)
    if not node.op_end_rel_nanos:  # Older releases have microseconds only.
        time_ns = int(node.op_end_rel_micros - node.op_start_rel_micros) * 1000
    return max(time_ns, 0)


def _generalize(graph: Graph, properties: Properties, times_ns: Mapping[str, int]) -> _Alike:
    by_signature: dict[tuple[object, ...], list[int]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    for name, time_ns in times_ns.items():
        node = graph[name]
        signature = _signature(node, properties)
        if signature is not None:
            by_signature[signature].append(time_ns)
        size_bytes = _size_bytes(node, properties)
        if size_bytes:
            rates[node.op].append(time_ns / size_bytes)
    return _Alike(
        {signature: round(median(found)) for signature, found in by_signature.items()},
        {op: median(found) for op, found in rates.items()},
    )


def _signature(node: Node, properties: Properties) -> tuple[object, ...] | None:
    """What a node's time depends on; `None` if a shape is not known."""
    tensors = _tensors(node, properties)
    if tensors is None or any(t.shape is None or -1 in t.shape for t in tensors):
        return None
    attributes = attributes_key(
        (name, value)
        for name, value in node.attributes.items()
        if not name.startswith("_") and not value.HasField("tensor")
    )
    return node.op, len(node.inputs), attributes, tuple((t.dtype, t.shape) for t in tensors)


def _size_bytes(node: Node, properties: Properties) -> int | None:
    """The bytes that a node reads and writes; `None` if not known."""
    sizes = [tensor.size_bytes for tensor in _tensors(node, properties) or ()]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _tensors(node: Node, properties: Properties) -> list[TensorProperties] | None:
    """What is known of a node's inputs and outputs; `None` if nothing is of one of them."""
    read = [_tensor(tensor, properties) for tensor in node.inputs]
    tensors = [tensor for tensor in read if tensor is not None]
    if len(tensors) < len(read):
        return None
    return [*tensors, *properties.outputs(node.name)]


def _tensor(tensor: Tensor, properties: Properties) -> TensorProperties | None:
    outputs = properties.outputs(tensor.node.name)
    return outputs[tensor.port] if tensor.port < len(outputs) else None
