"""The summary of a simulated step and its RunMetadata: sums that a person can add up."""

from __future__ import annotations

import pytest
from support.native_simulation import CPU, GPU, cpu, gpu
from support.small_steps import DT_UINT8, short, simulate

from memopt.costs.cost_model import Cost
from memopt.simulation.run_metadata import run_metadata
from memopt.simulation.summary import OperationCosts, summarize
from memopt.simulation.virtual_scheduler import VARIABLE_OPS, SchedulerOptions

STEP = """
w = Const() @/device:GPU:0
a = Mul(w) @/device:GPU:0
b = Mul(a) {_execution_count=3} @/device:GPU:0
c = Add(b, a) @/device:CPU:0
"""
TIMES = {
    "w": Cost(1, 0, 1),
    "a": Cost(100, 70, 40),
    "b": Cost(20, 15, 5, inaccurate=True),
    "c": Cost(50, 50, 0),
}
SIZES = {"w": 1000, "a": 100, "b": 30, "c": 8}
BOTH = (gpu(), cpu())
# On the GPU w, a and b run until 161. Of a, a copy leaves at 101 and of b at 161, a nanosecond each
# for the send and for the receive; then c runs from 163.
END_NS = 213


def test_costs_are_summed_by_op() -> None:
    summary = summarize(simulate(STEP, fetch="c", sizes=SIZES, times=TIMES, devices=BOTH))
    assert summary.operations == (
        OperationCosts("Mul", 2, 100 + 3 * 20, 70 + 3 * 15, 40 + 3 * 5, 1),
        OperationCosts("Add", 1, 50, 50, 0, 0),
        OperationCosts("_Recv", 2, 2, 0, 2, 0),
        OperationCosts("_Send", 2, 2, 0, 2, 0),
        OperationCosts("Const", 1, 1, 0, 1, 0),
    )


def test_costs_are_summed_by_device() -> None:
    summary = summarize(simulate(STEP, fetch="c", sizes=SIZES, times=TIMES, devices=BOTH))
    on_cpu, on_gpu, channel = summary.devices
    assert (on_cpu.name, on_gpu.name) == (CPU, GPU)
    assert short(channel.name) == "Channel_from_GPU_0_to_CPU_0"

    assert [costs.op for costs in on_gpu.operations] == ["Mul", "Const"]
    assert on_gpu.executions == 3
    assert on_gpu.end_ns == on_gpu.busy_ns == 1 + 100 + 3 * 20
    assert on_gpu.utilisation == 1
    assert on_gpu.inaccurate == 1
    assert on_gpu.persistent_bytes == 1000
    assert on_gpu.temporary_peak_bytes == 100 + 30

    assert [costs.op for costs in on_cpu.operations] == ["Add", "_Recv"]
    assert on_cpu.executions == 3
    assert on_cpu.end_ns == END_NS
    assert on_cpu.busy_ns == 50 + 2
    assert on_cpu.utilisation == pytest.approx(52 / END_NS)
    assert on_cpu.inaccurate == 0
    assert on_cpu.persistent_bytes == 0
    # The copies of a and b; what c makes is read by nobody.
    assert on_cpu.temporary_peak_bytes == 100 + 30

    assert channel.executions == 2
    assert channel.end_ns == 162
    assert channel.busy_ns == 2


def test_the_critical_path_ends_with_the_last_device() -> None:
    summary = summarize(simulate(STEP, fetch="c", sizes=SIZES, times=TIMES, devices=BOTH))
    assert (summary.critical_path_ns, summary.critical_device) == (END_NS, CPU)


def test_of_devices_that_end_together_the_last_by_name_is_critical() -> None:
    """As in TensorFlow, which compares with `<=`."""
    step = "a = A() @/device:GPU:0\nb = A() @/device:CPU:0"
    summary = summarize(simulate(step, fetch=("a", "b"), devices=BOTH))
    assert (summary.critical_path_ns, summary.critical_device) == (10, GPU)


def test_ops_of_the_same_time_are_in_order_of_name() -> None:
    step = "a = Z()\nb = Y(a)\nc = X(b)"
    summary = summarize(simulate(step, fetch="c", times={"c": 30}))
    assert [costs.op for costs in summary.operations] == ["X", "Y", "Z"]


def test_a_merge_counts_once_for_each_of_its_inputs() -> None:
    step = "p = A()\ns = Switch(p, p)\ny = B(s:1)\nn = B(s)\nm = Merge(n, y)"
    summary = summarize(simulate(step, fetch="m"))
    (merge,) = (costs for costs in summary.operations if costs.op == "Merge")
    assert (merge.executions, merge.execution_ns) == (2, 20)
    (device,) = summary.devices
    assert device.executions == 6
    assert device.busy_ns == device.end_ns == 60


def test_what_is_persistent_is_as_the_options_say() -> None:
    options = SchedulerOptions(persistent_ops=VARIABLE_OPS)
    simulation = simulate(STEP, fetch="c", sizes=SIZES, times=TIMES, devices=BOTH, options=options)
    _, on_gpu, _ = summarize(simulation).devices
    assert on_gpu.persistent_bytes == 0
    # The constant goes when a has run, before b comes.
    assert on_gpu.temporary_peak_bytes == 1000 + 100


def test_where_no_time_passes_nothing_is_used() -> None:
    (device,) = summarize(simulate("a = A()", fetch="a", times={"a": 0})).devices
    assert device.end_ns == 0
    assert device.utilisation == 0


def test_where_nothing_is_fetched_nothing_is_critical() -> None:
    summary = summarize(simulate("a = A()", fetch=()))
    assert (summary.devices, summary.operations) == ((), ())
    assert (summary.critical_path_ns, summary.critical_device) == (0, "")


# --- as TensorFlow's tools read it ---------------------------------------------------------------

NAMED = """
w = Const() {dtype=uint8} @/device:GPU:0
a = Relu(w) {T=uint8} @/device:GPU:0
b = Relu(a, ^w) {T=uint8} @/device:CPU:0
"""


def test_run_metadata_says_what_ran_where_and_when() -> None:
    simulation = simulate(
        NAMED,
        fetch="b",
        sizes={"w": 1000, "a": 100, "b": 30},
        times={"w": 1, "a": 2500, "b": 7000},
        devices=BOTH,
    )
    metadata = run_metadata(simulation)

    on_cpu, on_gpu, channel = metadata.step_stats.dev_stats
    assert (on_cpu.device, on_gpu.device) == (CPU, GPU)
    assert [short(stats.node_name) for stats in on_cpu.node_stats] == ["Recv_a_0_on_CPU_0", "b"]
    assert [stats.timeline_label for stats in channel.node_stats] == ["_Send"]
    constant, relu = on_gpu.node_stats
    assert (relu.node_name, relu.timeline_label) == ("a", "Relu")
    assert (relu.all_start_nanos, relu.all_end_rel_nanos) == (1, 2500)
    assert (relu.all_start_micros, relu.all_end_rel_micros) == (0, 2)
    (output,) = relu.output
    assert output.tensor_description.dtype == DT_UINT8
    assert [dim.size for dim in output.tensor_description.shape.dim] == [100]
    assert output.tensor_description.allocation_description.allocated_bytes == 100
    assert constant.memory_stats.persistent_memory_size == 1000
    assert relu.memory_stats.persistent_memory_size == 0


def test_run_metadata_holds_the_graph_of_each_device() -> None:
    metadata = run_metadata(simulate(NAMED, fetch="b", devices=BOTH))
    on_cpu, on_gpu, channel = metadata.partition_graphs
    assert [(node.name, list(node.input)) for node in on_gpu.node] == [("w", []), ("a", ["w"])]
    assert [node.op for node in on_cpu.node] == ["_Recv", "Relu"]
    assert list(on_cpu.node[1].input) == ["a", "^w"]
    (send,) = channel.node
    assert send.op == "_Send"
    assert list(send.input) == ["a"]
    assert short(send.device) == "Channel_from_GPU_0_to_CPU_0"
