"""Costs from TensorFlow itself, from profiles and from tables, and what each leaves to others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from support.bad_inputs import graph_def_of
from support.native_simulation import simulate_native
from tensorflow.core.protobuf import config_pb2

from memopt.cluster import Device, VirtualCluster
from memopt.costs import fixed
from memopt.costs.cost_model import Cost
from memopt.costs.fixed import FixedCosts
from memopt.costs.native import NativeCosts
from memopt.costs.profiled import ProfiledCosts
from memopt.errors import FileError, InvalidGraphError, OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.simulation.cost_table import tabulate_costs
from memopt.simulation.placer import VirtualPlacer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.step_stats_pb2 import DeviceStepStats, NodeExecStats

    from memopt.graph.graph import Graph, Node

CLUSTER = VirtualCluster(
    ["GPU:0=GPU", "GPU:1=GPU,bandwidth=900GB/s,cores=108,architecture=8.0", "CPU:0=CPU"]
)
GPU, GPU1, CPU = CLUSTER
LEFT_TO_FALLBACK = Cost(7, 4, 3, inaccurate=True)

GRAPH = """
x = Placeholder() {dtype=float, shape=[64,32]}
w = Placeholder() {dtype=float, shape=[32,16]}
rows = Placeholder() {dtype=float, shape=[?,32]}
relu = Relu(x) {T=float}
relu_1 = Relu(relu) {T=float}
relu_w = Relu(w) {T=float}
relu_rows = Relu(rows) {T=float}
matmul = MatMul(relu_1, relu_w) {T=float, transpose_a=false, transpose_b=false}
matmul_t = MatMul(relu_1, relu_1) {T=float, transpose_a=false, transpose_b=true}
tanh = Tanh(matmul, ^relu_rows) {T=float}
"""


class Fallback:
    """Says the same of everything, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cost(self, node: Node, _device: Device, _properties: Properties) -> Cost:
        self.asked.append(node.name)
        return LEFT_TO_FALLBACK


def no_properties() -> Properties:
    return Properties.unknown()


# ---------------------------------------------------------------------- NativeCosts


@pytest.mark.parametrize("model", ["mlp", "lstm", "convnet_v1"])
def test_native_costs_are_those_of_a_simulation_wherever_nodes_are(
    model: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    """The oracle simulates all nodes at once, spread over three devices."""
    item = spread(tiny_item(model))
    graph_def = item.with_variable_handles()
    simulation = simulate_native(graph_def, CLUSTER, [node.name for node in graph_def.node])
    graph, placer, fallback = from_graph_def(item.graph_def), VirtualPlacer(CLUSTER), Fallback()
    costs = NativeCosts(item, fallback)
    for node in graph:
        device = CLUSTER[placer.place(node.device)]
        ran = simulation.nodes[node.name]
        assert ran.device == device.name
        cost = costs.cost(node, device, no_properties())
        assert cost.execution_ns == ran.end_ns - ran.start_ns, node.name
        assert cost.compute_ns + cost.memory_ns <= cost.execution_ns
        assert not cost.inaccurate
    assert fallback.asked == []
    assert len({node.device for node in graph}) == 4


def spread(item: GrapplerItem) -> GrapplerItem:
    """The item with its nodes on all devices in turn."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(item.graph_def)
    for number, node in enumerate(graph_def.node):
        node.device = ("", "/gpu:1", "/cpu:0", "/gpu:0")[number % 4]
    return replace(item, graph_def=graph_def)


def test_a_merge_costs_what_one_of_its_runs_takes() -> None:
    """TensorFlow's timeline gives a Merge all of its runs at once, and what ran in between."""
    graph_def = control_flow()
    graph = from_graph_def(graph_def)
    costs = NativeCosts(GrapplerItem(graph_def), Fallback())
    found = {node.name: costs.cost(node, GPU, no_properties()).execution_ns for node in graph}
    merges = [node.name for node in graph if node.op == "Merge"]
    assert len(merges) == 3
    assert [found[name] for name in merges] == [1, 1, 1]
    simulation = simulate_native(graph_def, [GPU], [node.name for node in graph])
    for name in merges:
        ran = simulation.nodes[name]
        assert ran.end_ns - ran.start_ns >= 2
    # Nothing runs between the two runs of this one, and its cost is not one nanosecond.
    ran = simulation.nodes["RefMerge"]
    assert 2 * found["RefMerge"] == ran.end_ns - ran.start_ns > 10


def control_flow() -> GraphDef:
    """A branch, a loop and a merge of references, of the kind of TensorFlow 1."""
    graph = tf.Graph()
    with graph.as_default():
        x = tf.random.uniform([64, 64], seed=1)
        v2 = tf.compat.v1.control_flow_v2_enabled()
        tf.compat.v1.disable_control_flow_v2()
        try:
            y = tf.compat.v1.cond(x[0, 0] > 0.5, lambda: tf.matmul(x, x), lambda: tf.tanh(x))
            tf.compat.v1.while_loop(
                lambda i, _: i < 3,
                lambda i, a: (i + 1, tf.matmul(a, x)),
                [tf.constant(0), y],
            )
        finally:
            if v2:
                tf.compat.v1.enable_control_flow_v2()
        variable = tf.raw_ops.VariableV2(shape=[64, 64], dtype=tf.float32)
        switch = tf.raw_ops.RefSwitch(data=variable, pred=x[0, 0] > 0.1)
        tf.raw_ops.RefMerge(inputs=[switch.output_false, switch.output_true], name="RefMerge")
    return graph.as_graph_def()


def test_an_execution_count_does_not_count() -> None:
    graph_def = graph_def_of(GRAPH)
    counted = graph_def_of(GRAPH)
    for node in counted.node:
        if node.name == "matmul":
            node.attr["_execution_count"].i = 3
    once, thrice = (
        NativeCosts(GrapplerItem(message), Fallback()).cost(
            from_graph_def(message)["matmul"], CPU, no_properties()
        )
        for message in (graph_def, counted)
    )
    assert once == thrice
    assert once.execution_ns > 1000


def test_native_costs_leave_new_and_changed_nodes_to_the_fallback() -> None:
    fallback = Fallback()
    costs = NativeCosts(GrapplerItem(graph_def_of(GRAPH)), fallback)
    changed = parse_graph(
        GRAPH.replace("relu = Relu(x)", "relu = Tanh(x)").replace("relu_1", "new")
        + "tanh_1 = AddN(matmul, tanh) {N=2, T=float}\nrelu_1 = Relu(new) {T=float}"
    )
    found = {node.name: costs.cost(node, GPU, no_properties()) for node in changed}
    assert fallback.asked == ["relu", "new", "tanh_1"]
    assert all(
        (cost == LEFT_TO_FALLBACK) == (name in fallback.asked) for name, cost in found.items()
    )


def test_tensorflow_simulates_once_for_each_kind_of_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tensorflow.python.grappler import cluster

    runs = []
    measure = cluster.Cluster.MeasureCosts

    def counted(self: Any, item: Any) -> Any:
        runs.append(self)
        return measure(self, item)

    monkeypatch.setattr(cluster.Cluster, "MeasureCosts", counted)
    graph_def = graph_def_of(GRAPH)
    costs = NativeCosts(GrapplerItem(graph_def), Fallback())
    assert runs == []
    for node in from_graph_def(graph_def):
        for device in (GPU, replace(GPU, name="GPU:5", memory_bytes=1), GPU1, CPU):
            costs.cost(node, device, no_properties())
    assert len(runs) == 3


def test_a_graph_that_tensorflow_cannot_simulate_is_refused() -> None:
    item = GrapplerItem(graph_def_of("x = Relu(y) {T=float}\ny = Relu(x) {T=float}"))
    node = from_graph_def(item.graph_def)["x"]
    costs = NativeCosts(item, Fallback())
    with pytest.raises(InvalidGraphError, match=r"^TensorFlow cannot simulate the graph: "):
        costs.cost(node, GPU, no_properties())


# -------------------------------------------------------------------- ProfiledCosts

LOCAL_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
LOCAL_GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


class ProfileBuilder:
    """A RunMetadata, entry by entry."""

    def __init__(self) -> None:
        self.message = config_pb2.RunMetadata()
        self._devices: dict[str, DeviceStepStats] = {}

    def add(self, device: str, name: str, op: str, *times_ns: int) -> ProfileBuilder:
        """Runs of a node, as the executor records them."""
        for time_ns in times_ns:
            self._entry(device, name, time_ns).timeline_label = f"[cpu 1B] {name} = {op}(a, b)"
        return self

    def add_kernels(self, stream: str, name: str, *times_ns: int) -> ProfileBuilder:
        """Kernels on a stream, whose entries carry the kernel's name as label."""
        for time_ns in times_ns:
            self._entry(stream, name, time_ns).timeline_label = "volta_sgemm = x(128) regs:8"
        return self

    def _entry(self, device: str, name: str, time_ns: int) -> NodeExecStats:
        if device not in self._devices:
            self._devices[device] = self.message.step_stats.dev_stats.add(device=device)
        return self._devices[device].node_stats.add(
            node_name=name, op_start_rel_nanos=50, op_end_rel_nanos=50 + time_ns
        )


def profiled(*profiles: ProfileBuilder, text: str = GRAPH) -> tuple[ProfiledCosts, Fallback]:
    fallback = Fallback()
    item = GrapplerItem(graph_def_of(text))
    return ProfiledCosts([profile.message for profile in profiles], item, fallback), fallback


def measured(time_ns: int, *, inaccurate: bool = False) -> Cost:
    return Cost(time_ns, time_ns, 0, inaccurate)


@pytest.fixture
def graph() -> Graph:
    return parse_graph(GRAPH)


@pytest.fixture
def properties() -> Properties:
    return Properties.of(GrapplerItem(graph_def_of(GRAPH)))


def test_a_measured_time_is_the_median_of_averages(graph: Graph, properties: Properties) -> None:
    costs, _ = profiled(
        ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 100, 300),
        ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 5000),
        ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 10, 20, 30),
    )
    assert costs.cost(graph["relu"], CPU, properties) == measured(200)
    assert costs.times_ns("CPU") == {"relu": 200}


def test_names_are_read_as_tensorflow_writes_them(graph: Graph, properties: Properties) -> None:
    costs, _ = profiled(
        ProfileBuilder()
        .add(LOCAL_CPU, "_SOURCE", "NoOp", 1)
        .add(LOCAL_CPU, "_arg_x_0_1", "_Arg", 11)
        .add(LOCAL_CPU, "matmul", "_MklMatMul", 22)
        .add("/job:worker/replica:0/task:3/cpu:0", "relu_w", "Relu", 33)
        .add(LOCAL_CPU, "tanh:Tanh", "", 44)
        .add("/host:CPU", "relu", "Relu", 55)
    )
    assert costs.times_ns("CPU") == {"x": 11, "relu_w": 33, "matmul": 22, "tanh": 44}
    assert costs.cost(graph["matmul"], CPU, properties) == measured(22)


def test_another_node_of_the_same_name_is_not_measured() -> None:
    """Functions that run by themselves record the names in their bodies."""
    costs, _ = profiled(
        ProfileBuilder()
        .add(LOCAL_CPU, "relu", "Relu", 10)
        .add(LOCAL_CPU, "relu", "Sub", 90)
        .add(LOCAL_CPU, "matmul", "Placeholder", 90)
    )
    assert costs.times_ns("CPU") == {"relu": 10}


def test_the_time_of_kernels_counts_and_not_of_their_start(
    graph: Graph, properties: Properties
) -> None:
    costs, _ = profiled(
        ProfileBuilder()
        .add(LOCAL_GPU, "matmul", "MatMul", 5, 5)
        .add_kernels("/device:GPU:0/stream:all", "matmul:MatMul", 100, 20, 100, 20)
        .add_kernels("/device:GPU:0/stream:14", "matmul:MatMul", 100, 20, 100, 20)
        .add_kernels("/device:GPU:0/sync", "matmul:MatMul", 900)
        .add_kernels("/gpu:0/memcpy", "matmul:MatMul#id=3,n=a:b#", 7, 7)
        .add_kernels("/device:GPU:0/stream:all", "relu:Relu", 40, 2)
        .add(LOCAL_GPU, "tanh", "Tanh", 6)
    )
    assert costs.times_ns("GPU") == {"relu": 42, "matmul": 127, "tanh": 6}
    assert costs.cost(graph["matmul"], GPU, properties) == measured(127)


def test_times_hold_for_their_type_of_device_only(graph: Graph, properties: Properties) -> None:
    costs, fallback = profiled(ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 100))
    assert costs.cost(graph["relu"], GPU, properties) == LEFT_TO_FALLBACK
    assert fallback.asked == ["relu"]


def test_a_fused_kernel_counts_for_the_operation_in_its_name(
    graph: Graph, properties: Properties
) -> None:
    costs, _ = profiled(
        ProfileBuilder()
        .add(LOCAL_CPU, "tanh", "_FusedMatMul", 500)
        .add(LOCAL_CPU, "relu_1", "_FusedBatchNormEx", 900)
    )
    assert costs.times_ns("CPU") == {"matmul": 500}
    assert costs.cost(graph["matmul"], CPU, properties) == measured(500)


def test_what_came_out_of_a_call_counts_for_the_call() -> None:
    text = """
x = Placeholder() {dtype=float, shape=[4]}
outer/call = PartitionedCall(x) {f=<func { name: "body" }>}
outer/call/mine = Relu(outer/call) {T=float}
outer/plain = Relu(outer/call/mine) {T=float}
"""
    costs, _ = profiled(
        ProfileBuilder()
        .add(LOCAL_CPU, "outer/call/body/_1/mul", "Mul", 10, 10)
        .add(LOCAL_CPU, "Func/outer/call/body/_1/input/_4", "Identity", 3)
        .add(LOCAL_CPU, "outer/call/mine", "Relu", 100)
        .add(LOCAL_CPU, "outer/plain/deeper", "Mul", 1000)
        .add(LOCAL_CPU, "elsewhere/mul", "Mul", 1000),
        text=text,
    )
    assert costs.times_ns("CPU") == {"outer/call": 23, "outer/call/mine": 100}


def test_a_node_like_measured_ones_takes_their_median_time(
    graph: Graph, properties: Properties
) -> None:
    costs, fallback = profiled(
        ProfileBuilder()
        .add(LOCAL_CPU, "relu", "Relu", 100)
        .add(LOCAL_CPU, "relu_w", "Relu", 9)
        .add(LOCAL_CPU, "matmul", "MatMul", 1000)
    )
    assert costs.cost(graph["relu_1"], CPU, properties) == measured(100)
    # Another attribute and other shapes: 1000 ns for 14336 bytes make 2286 ns for 32768 bytes.
    assert costs.cost(graph["matmul_t"], CPU, properties) == measured(2286, inaccurate=True)
    assert fallback.asked == []
    # No measured node has this op, and of the last one a dimension is not known.
    for name in ("tanh", "relu_rows"):
        assert costs.cost(graph[name], CPU, properties) == LEFT_TO_FALLBACK
    assert costs.cost(graph["relu_1"], CPU, no_properties()) == LEFT_TO_FALLBACK


def test_copies_that_a_pass_adds_are_like_their_originals(properties: Properties) -> None:
    costs, fallback = profiled(ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 100))
    added = parse_graph(GRAPH + 'copy = Relu(x) {T=float, _class="relu"}\n')
    properties.add("copy", properties.outputs("relu"))
    assert costs.cost(added["copy"], CPU, properties) == measured(100)
    assert fallback.asked == []


def test_a_node_that_became_another_has_no_measured_time(properties: Properties) -> None:
    costs, fallback = profiled(ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 100))
    changed = parse_graph(GRAPH.replace("relu = Relu(x)", "relu = Tanh(x)"))
    assert costs.cost(changed["relu"], CPU, properties) == LEFT_TO_FALLBACK
    assert fallback.asked == ["relu"]


def test_a_time_is_at_least_a_nanosecond_and_may_be_in_microseconds(
    graph: Graph, properties: Properties
) -> None:
    profile = ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 0).add(LOCAL_CPU, "tanh", "Tanh", 1)
    coarse = profile.message.step_stats.dev_stats[0].node_stats[1]
    coarse.ClearField("op_start_rel_nanos")
    coarse.ClearField("op_end_rel_nanos")
    coarse.op_start_rel_micros, coarse.op_end_rel_micros = 2, 5
    costs, _ = profiled(profile)
    assert costs.cost(graph["relu"], CPU, properties) == measured(1)
    assert costs.cost(graph["tanh"], CPU, properties) == measured(3000)


def test_profiles_are_messages_or_files(tmp_path: Path) -> None:
    metadata = ProfileBuilder().add(LOCAL_CPU, "relu", "Relu", 100).message
    path = tmp_path / "profile.pb"
    path.write_bytes(metadata.SerializeToString())
    item = GrapplerItem(graph_def_of(GRAPH))
    for profile in (metadata, metadata.step_stats, path, str(path)):
        assert ProfiledCosts([profile], item, Fallback()).times_ns("CPU") == {"relu": 100}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: "),
        (b"", "holds no step statistics; was the step run with FULL_TRACE?"),
        (b"no profile at all", "is no RunMetadata"),
        (config_pb2.RunMetadata().SerializeToString(), "holds no step statistics"),
    ],
    ids=["missing", "empty", "text", "no statistics"],
)
def test_a_file_without_a_profile_is_named(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "profile.pb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        ProfiledCosts([path], GrapplerItem(graph_def_of(GRAPH)), Fallback())
    assert str(caught.value).startswith(f"{path}: {reason}")


# ----------------------------------------------------------------------- FixedCosts


def test_a_nodes_own_time_comes_before_its_ops_and_the_fallbacks(graph: Graph) -> None:
    fallback = Fallback()
    costs = FixedCosts(fallback, nodes={"relu": 5}, ops={"Relu": 8, "MatMul": 0})
    found = {node.name: costs.cost(node, CPU, no_properties()) for node in graph}
    assert found["relu"] == measured(5)
    assert found["relu_1"] == found["relu_w"] == measured(8)
    assert found["matmul"] == Cost(0, 0, 0)
    assert found["tanh"] == LEFT_TO_FALLBACK
    assert fallback.asked == ["x", "w", "rows", "tanh"]


def test_a_table_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    costs = FixedCosts(Fallback(), nodes={"b": 2**62, "a": 0}, ops={"Relu": 8})
    costs.save(path)
    first = path.read_bytes()
    assert json.loads(first) == {"nodes": {"a": 0, "b": 2**62}, "ops": {"Relu": 8}}
    loaded = FixedCosts.load(path, Fallback())
    assert (loaded.nodes, loaded.ops) == (costs.nodes, costs.ops)
    loaded.save(str(path))
    assert path.read_bytes() == first


def test_a_table_need_not_have_both_sections(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text('{"ops": {"Relu": 3}}')
    loaded = FixedCosts.load(path, Fallback())
    assert (loaded.nodes, loaded.ops) == ({}, {"Relu": 3})


def test_another_models_costs_become_a_table(graph: Graph) -> None:
    """Each node's where it is placed, so that a file can be edited and used in its place."""
    native = NativeCosts(GrapplerItem(graph_def_of(GRAPH)), Fallback())
    placed = parse_graph(GRAPH.replace("transpose_b=false}", "transpose_b=false} @/gpu:1"))
    table = tabulate_costs(placed, CLUSTER, native, no_properties())
    assert list(table.nodes) == [node.name for node in placed]
    for name, device in (("matmul", GPU1), ("matmul_t", GPU)):
        expected = native.cost(graph[name], device, no_properties()).execution_ns
        assert table.cost(graph[name], CPU, no_properties()) == measured(expected)
    assert native.cost(graph["matmul"], GPU, no_properties()).execution_ns != table.nodes["matmul"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is no table of costs in JSON: "),
        ("{", "is no table of costs in JSON: "),
        ("[" * 100_000, "is no table of costs in JSON: "),
        ('{"nodes": {"a": ' + "9" * 5000 + "}}", "is no table of costs in JSON: "),
        ('{"nodes": {"a": 1, "a": 2}}', "is no table of costs in JSON: 'a' is there twice"),
        ("\udc80".encode("utf-8", "surrogateescape"), "is no table of costs in JSON: "),
        ("[]", 'is no object such as {"nodes": {}, "ops": {}}'),
        ('{"node": {}}', 'has \'node\'; a table has "nodes" and "ops"'),
        ('{"ops": [1]}', "'ops' is no object of names and nanoseconds"),
        ('{"ops": {"Relu": 1.5}}', "ops: 'Relu' is 1.5, no whole number of nanoseconds"),
        ('{"nodes": {"a": true}}', "nodes: 'a' is True, no whole number of nanoseconds"),
        ('{"nodes": {"a": "1"}}', "nodes: 'a' is '1', no whole number of nanoseconds"),
        ('{"nodes": {"a": NaN}}', "nodes: 'a' is nan, no whole number of nanoseconds"),
        ('{"nodes": {"a": -1}}', "nodes: 'a' is -1, no possible number of nanoseconds"),
        ('{"nodes": {"a": 9223372036854775808}}', "nodes: 'a' is 9223372036854775808, no possible"),
    ],
)
def test_a_file_without_a_table_is_named_with_the_key(
    tmp_path: Path, content: str | bytes, reason: str
) -> None:
    path = tmp_path / "costs.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(FileError) as caught:
        FixedCosts.load(path, Fallback())
    assert str(caught.value).startswith(f"{path}: {reason}")


def test_a_table_that_is_too_large_or_missing_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileError, match=r"none\.json: cannot be read: "):
        FixedCosts.load(tmp_path / "none.json", Fallback())
    with pytest.raises(FileError, match="cannot be read: "):
        FixedCosts.load(tmp_path, Fallback())
    path = tmp_path / "costs.json"
    path.write_text('{"ops": {"Relu": 3}}')
    monkeypatch.setattr(fixed, "SIZE_LIMIT_BYTES", 10)
    with pytest.raises(FileError, match=r"costs\.json: has 20 bytes; at most 10 are read"):
        FixedCosts.load(path, Fallback())


def test_a_table_with_a_bad_time_is_refused() -> None:
    with pytest.raises(OptionsError, match=r"^ops: 'Relu' is -3, no possible number"):
        FixedCosts(Fallback(), ops={"Relu": -3})


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "costs.json"
    with pytest.raises(FileError, match=r"costs\.json: cannot be written"):
        FixedCosts(Fallback()).save(path)
