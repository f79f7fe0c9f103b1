"""The virtual scheduler on small steps whose times and bytes are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.native_simulation import CPU, GPU, cpu, gpu
from support.small_steps import TableCosts, order, short, simulate, sized, spans

from memopt.cluster import VirtualCluster
from memopt.costs.cost_model import Cost
from memopt.errors import InvalidGraphError, OptionsError
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.simulation.ready_nodes import MANAGERS
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import (
    PERSISTENT_OPS,
    VARIABLE_OPS,
    SchedulerOptions,
    VirtualScheduler,
)
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from memopt.cluster import Device
    from memopt.simulation.simulation import Simulation

ON_GPU = "@/device:GPU:0"
ON_CPU = "@/device:CPU:0"
BOTH = (gpu(), cpu())
CHANNEL = "Channel_from_GPU_0_to_CPU_0"

CHAIN = """
a = A()
b = B(a)
c = C(b)
"""
CHAIN_SIZES = {"a": 100, "b": 40, "c": 8}


# --- times and order -----------------------------------------------------------------------------


def test_a_chain_runs_one_after_another() -> None:
    simulation = simulate(CHAIN, fetch="c", times={"a": 10, "b": 20, "c": 5})
    assert spans(simulation) == {"a": (0, 10), "b": (10, 30), "c": (30, 35)}
    assert order(simulation) == ["a", "b", "c"]
    assert simulation.devices == (CPU,)


def test_only_what_leads_to_a_fetch_runs() -> None:
    graph = parse_graph(CHAIN + "unasked = D(a)\nwaiting = NoOp(^c)\n")
    simulation = simulate(graph, fetch="b")
    assert order(simulation) == ["a", "b"]
    for name in ("c", "unasked", "waiting"):
        node = graph[name]
        assert not simulation.ran(node)
        assert simulation.start_ns(node) is None
        assert simulation.end_ns(node) is None
        assert simulation.device(node) is None
    assert simulation.start_ns(graph["b"]) == 10
    assert simulation.end_ns(graph["b"]) == 20
    assert simulation.device(graph["b"]) == CPU


def test_what_is_fetched_and_missing_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="'nowhere'"):
        simulate(CHAIN, fetch="nowhere")


def test_devices_run_side_by_side() -> None:
    step = f"g = A() {ON_GPU}\nc = A() {ON_CPU}\nd = B(c) {ON_CPU}"
    simulation = simulate(step, fetch=("g", "d"), times={"g": 100}, devices=BOTH)
    assert spans(simulation) == {"g": (0, 100), "c": (0, 10), "d": (10, 20)}
    assert simulation.devices == (CPU, GPU)


@pytest.mark.parametrize(("late_ns", "start_ns"), [(10, 100), (300, 310)])
def test_a_node_waits_for_the_input_that_is_looked_at_last(late_ns: int, start_ns: int) -> None:
    """As in TensorFlow that is the one that was ready last, even if another ends later."""
    step = f"""
    early = A() {ON_GPU}
    first = A() {ON_CPU}
    late = B(first) {ON_CPU}
    both = NoOp(^early, ^late) {ON_GPU}
    other = NoOp(^early, ^late) {ON_CPU}
    """
    simulation = simulate(
        step, fetch=("both", "other"), times={"early": 100, "late": late_ns}, devices=BOTH
    )
    found = spans(simulation)
    assert found["early"] == (0, 100)
    assert found["late"] == (10, 10 + late_ns)
    assert found["both"][0] == start_ns
    assert found["other"][0] == 10 + late_ns


def test_an_execution_count_multiplies_the_time() -> None:
    simulation = simulate("a = A() {_execution_count=4}\nb = B(a)", fetch="b")
    assert spans(simulation) == {"a": (0, 40), "b": (40, 50)}


def test_what_is_fed_is_ready_at_the_start() -> None:
    """All the same what it would be computed from runs, and then it does once more."""
    step = f"z = A() {ON_CPU}\nb = B(^z) {ON_GPU}\nc = C(b) {ON_GPU}"
    fed = simulate(step, fetch="c", feed=["b"], times={"z": 100}, devices=BOTH)
    assert order(fed) == ["b", "z", "c", "b"]
    assert spans(fed)["c"] == (10, 20)

    computed = simulate(step, fetch="c", times={"z": 100}, devices=BOTH)
    assert order(computed) == ["z", "b", "c"]
    assert spans(computed)["c"] == (110, 120)


# --- between devices -----------------------------------------------------------------------------

ACROSS = f"""
a = A() {ON_GPU}
b = B(a) {ON_CPU}
c = C(a, ^b) {ON_CPU}
"""


def test_a_tensor_is_sent_once_to_each_device_that_reads_it() -> None:
    simulation = simulate(ACROSS, fetch="c", sizes={"a": 100}, devices=BOTH)
    assert spans(simulation) == {
        "a": (0, 10),
        "Send_a_0_from_GPU_0_to_CPU_0": (10, 11),
        "Recv_a_0_on_CPU_0": (11, 12),
        "b": (12, 22),
        "c": (22, 32),
    }
    assert [short(device) for device in simulation.devices] == ["CPU:0", "GPU:0", CHANNEL]
    # The channel and the device that receives hold a copy each.
    assert peaks(simulation) == {"CPU:0": 104, "GPU:0": 100, CHANNEL: 100}


def peaks(simulation: Simulation) -> dict[str, int]:
    return {short(device): simulation.temporary_peak_bytes(device) for device in simulation.devices}


CONTROL_ACROSS = f"""
a = A() {ON_GPU}
b = B(^a) {ON_CPU}
"""


def test_a_control_edge_between_devices_is_free() -> None:
    simulation = simulate(CONTROL_ACROSS, fetch="b", sizes={"a": 100}, devices=BOTH)
    assert spans(simulation) == {"a": (0, 10), "b": (10, 20)}
    assert peaks(simulation) == {"CPU:0": 0, "GPU:0": 4}


def test_a_control_edge_between_devices_can_be_a_message_of_four_bytes() -> None:
    simulation = simulate(
        CONTROL_ACROSS,
        fetch="b",
        sizes={"a": 100},
        devices=BOTH,
        options=SchedulerOptions(control_messages=True),
    )
    assert spans(simulation) == {
        "a": (0, 10),
        "Send_a_minus1_from_GPU_0_to_CPU_0": (10, 11),
        "Recv_a_minus1_on_CPU_0": (11, 12),
        "b": (12, 22),
    }
    assert peaks(simulation) == {"CPU:0": 4, "GPU:0": 4, CHANNEL: 4}


TIMED = SchedulerOptions(transfer_times=True)


@pytest.mark.parametrize(
    ("source", "destination", "time_ns"),
    [
        # 100 bytes at 3 bytes per nanosecond, rounded up, after the longer latency.
        (
            replace(gpu(), link_bytes_per_s=3 * 10**9, link_latency_ns=500),
            replace(cpu(), link_bytes_per_s=16 * 10**9, link_latency_ns=200),
            500 + 34,
        ),
        # The receiver's link is the slower one.
        (replace(gpu(), link_bytes_per_s=10**10), replace(cpu(), link_bytes_per_s=10**9), 100),
        (gpu(), cpu(), 7),
    ],
)
def test_a_transfer_can_take_the_time_of_the_slower_link(
    source: Device, destination: Device, time_ns: int
) -> None:
    simulation = simulate(
        ACROSS, fetch="c", sizes={"a": 100}, devices=(source, destination), options=TIMED
    )
    sent_ns = 10 + time_ns
    assert spans(simulation) == {
        "a": (0, 10),
        "Send_a_0_from_GPU_0_to_CPU_0": (10, sent_ns),
        "Recv_a_0_on_CPU_0": (sent_ns, sent_ns + 1),
        "b": (sent_ns + 1, sent_ns + 11),
        "c": (sent_ns + 11, sent_ns + 21),
    }


def test_transfers_over_one_channel_wait_for_each_other() -> None:
    slow = replace(gpu(), link_bytes_per_s=10**9)
    simulation = simulate(
        f"a = A() {ON_GPU}\nb = B() {ON_GPU}\nc = C(a, b) {ON_CPU}\nback = D(c) {ON_GPU}",
        fetch="back",
        sizes={"a": 100, "b": 50, "c": 20},
        devices=(slow, cpu()),
        options=TIMED,
    )
    assert spans(simulation) == {
        "a": (0, 10),
        "b": (10, 20),
        "Send_a_0_from_GPU_0_to_CPU_0": (10, 110),
        "Send_b_0_from_GPU_0_to_CPU_0": (110, 160),
        "Recv_a_0_on_CPU_0": (110, 111),
        "Recv_b_0_on_CPU_0": (160, 161),
        "c": (161, 171),
        # The way back is another channel.
        "Send_c_0_from_CPU_0_to_GPU_0": (171, 191),
        "Recv_c_0_on_GPU_0": (191, 192),
        "back": (192, 202),
    }


def test_a_receive_of_the_graph_waits_for_its_send() -> None:
    step = """
    a = A()
    s = _Send(a) {tensor_name="t"}
    other = _Send(a) {tensor_name="u"}
    r = _Recv() {tensor_name="t"}
    b = B(r)
    """
    simulation = simulate(step, fetch="b")
    assert spans(simulation) == {"a": (0, 10), "s": (10, 20), "r": (20, 30), "b": (30, 40)}


# --- ready-node managers -------------------------------------------------------------------------

# The sources are found in the order a, c, b: the last input first.
TIES = "a = A()\nb = A()\nc = A()\nout = NoOp(^b, ^c, ^a)"


@pytest.mark.parametrize(
    ("manager", "expected"),
    [("FirstReady", "a b c"), ("FIFO", "a c b"), ("LIFO", "b c a"), ("Composite", "b c a")],
)
def test_each_manager_chooses_among_nodes_ready_at_the_same_time(
    manager: str, expected: str
) -> None:
    simulation = simulate(TIES, fetch="out", options=SchedulerOptions(ready_nodes=manager))
    assert order(simulation) == [*expected.split(), "out"]


# Both u and v run on the CPU; u is ready long after v, but is found first.
LATE = f"""
slow = A() {ON_GPU}
fast = A() {ON_CPU}
u = B(^slow) {ON_CPU}
v = B(^fast) {ON_CPU}
out = NoOp(^v, ^u) {ON_CPU}
"""


@pytest.mark.parametrize(
    ("manager", "expected", "u", "v"),
    [
        ("FirstReady", "fast slow v u", (100, 110), (10, 20)),
        ("FIFO", "slow fast u v", (100, 110), (110, 120)),
        ("LIFO", "fast v slow u", (100, 110), (10, 20)),
        ("Composite", "fast slow v u", (100, 110), (10, 20)),
    ],
)
def test_each_manager_chooses_among_nodes_ready_at_different_times(
    manager: str, expected: str, u: tuple[int, int], v: tuple[int, int]
) -> None:
    simulation = simulate(
        LATE,
        fetch="out",
        times={"slow": 100},
        devices=BOTH,
        options=SchedulerOptions(ready_nodes=manager),
    )
    assert order(simulation) == [*expected.split(), "out"]
    assert (spans(simulation)["u"], spans(simulation)["v"]) == (u, v)


def test_an_unknown_manager_is_refused() -> None:
    with pytest.raises(OptionsError, match=f"'Random', only {', '.join(MANAGERS)}"):
        SchedulerOptions(ready_nodes="Random")


# --- control flow --------------------------------------------------------------------------------

BRANCHES = """
condition = A()
data = A()
s = Switch(data, condition){slots}
yes = B(s:1)
no = C(s:0)
m = Merge(no, yes)
out = D(m)
"""
BRANCH_TIMES = {"yes": 30, "no": 5}


@pytest.mark.parametrize("manager", MANAGERS)
def test_both_branches_run_and_a_merge_goes_on_at_the_first_of_them(manager: str) -> None:
    simulation = simulate(
        BRANCHES.format(slots=""),
        fetch="out",
        times=BRANCH_TIMES,
        options=SchedulerOptions(ready_nodes=manager),
    )
    assert {"yes", "no"} < spans(simulation).keys()
    assert order(simulation).count("m") == 2
    assert order(simulation).count("out") == 1


def test_a_merge_starts_with_its_first_input_and_ends_with_its_last() -> None:
    simulation = simulate(BRANCHES.format(slots=""), fetch="out", times=BRANCH_TIMES)
    assert order(simulation) == ["condition", "data", "s", "no", "yes", "m", "m", "out"]
    found = spans(simulation)
    assert (found["no"], found["yes"]) == ((30, 35), (35, 65))
    # On this one device both branches are through before the merge's turn comes.
    assert found["m"] == (65, 85)
    assert found["out"] == (85, 95)


@pytest.mark.parametrize(
    ("slots", "ran"),
    [
        ("i: 1 i: 1", {"yes"}),
        ("i: 0", {"no"}),
        ("i: 0 i: 1", {"yes", "no"}),
        ("", {"yes", "no"}),
    ],
)
def test_a_switch_known_to_take_one_branch_takes_only_that(slots: str, ran: set[str]) -> None:
    step = BRANCHES.format(slots=f" {{_output_slot_vector=<list {{ {slots} }}>}}")
    simulation = simulate(step, fetch="out", times=BRANCH_TIMES)
    assert spans(simulation).keys() & {"yes", "no"} == ran
    assert order(simulation).count("m") == len(ran)
    assert "out" in spans(simulation)


def test_a_loop_goes_round_once() -> None:
    step = "a = A()\nm = Merge(a, n)\nn = NextIteration(m)\nout = D(m)"
    simulation = simulate(step, fetch="out")
    assert order(simulation) == ["a", "m", "n", "out", "m"]
    assert spans(simulation) == {"a": (0, 10), "m": (10, 50), "n": (20, 30), "out": (30, 40)}


# --- temporary memory ----------------------------------------------------------------------------


def test_the_peak_is_looked_for_before_inputs_are_released() -> None:
    simulation = simulate(CHAIN, fetch="c", sizes=CHAIN_SIZES)
    # c's own output is read by nobody, so it holds nothing.
    assert simulation.temporary_peak_bytes(CPU) == 100 + 40
    assert simulation.snapshot(CPU) == ("a:0", "b:0")


def test_the_peak_can_be_looked_for_after_the_release() -> None:
    simulation = simulate(
        CHAIN, fetch="c", sizes=CHAIN_SIZES, options=SchedulerOptions(peak_after_release=True)
    )
    assert simulation.temporary_peak_bytes(CPU) == 100
    assert simulation.snapshot(CPU) == ("a:0",)


COUNTED = """
a = A()
b = B(a) {_execution_count=3}
c = C(b)
d = D(c)
"""


@pytest.mark.parametrize(
    ("options", "peak_bytes"),
    [
        (SchedulerOptions(), 100 + 40),
        # b makes 3 x 40 bytes, then releases 3 x 100.
        (SchedulerOptions(count_in_memory=True), 100 + 3 * 40),
        # After b there are 100 + 120 - 300 bytes, less than none; so there are after c.
        (SchedulerOptions(count_in_memory=True, peak_after_release=True), 100),
        (SchedulerOptions(peak_after_release=True), 100),
    ],
)
def test_a_count_of_executions_can_multiply_memory(
    options: SchedulerOptions, peak_bytes: int
) -> None:
    sizes = {"a": 100, "b": 40, "c": 200}
    simulation = simulate(COUNTED, fetch="c", sizes=sizes, options=options)
    assert simulation.temporary_peak_bytes(CPU) == peak_bytes


PERSISTENT = """
constant = Const()
variable = VariableV2()
handle = VarHandleOp()
value = ReadVariableOp(handle)
a = A(constant, variable, value)
b = B(a)
"""
PERSISTENT_SIZES = {"constant": 1000, "variable": 500, "handle": 8, "value": 300, "a": 100}


@pytest.mark.parametrize(
    ("ops", "peak_bytes"),
    [
        (PERSISTENT_OPS, 100),
        (VARIABLE_OPS, 1000 + 100),
        (frozenset({"Const"}), 500 + 300 + 100),
        # The handle is released when the value is there.
        (frozenset(), 1000 + 500 + 300 + 100),
    ],
)
def test_persistent_ops_hold_no_temporary_memory(ops: frozenset[str], peak_bytes: int) -> None:
    simulation = simulate(
        PERSISTENT,
        fetch="b",
        sizes=PERSISTENT_SIZES,
        options=SchedulerOptions(persistent_ops=ops),
    )
    assert simulation.temporary_peak_bytes(CPU) == peak_bytes


def test_the_first_version_of_the_scheduler_knew_only_variables() -> None:
    assert {"Const", "HostConst"} == PERSISTENT_OPS - VARIABLE_OPS


def test_outputs_that_nobody_reads_hold_nothing() -> None:
    step = "a = A()\nb = B(a:1)"
    simulation = simulate(step, fetch="b", sizes={"a": (100, 30)})
    assert simulation.temporary_peak_bytes(CPU) == 30
    assert simulation.snapshot(CPU) == ("a:1",)


def test_what_streams_holds_nothing() -> None:
    step = "a = A() {_streaming=<list { b: true b: false }>}\nb = B(a, a:1)"
    simulation = simulate(step, fetch="b", sizes={"a": (100, 30)})
    assert simulation.temporary_peak_bytes(CPU) == 30


DIAMOND = """
a = A()
b = B(a)
c = C(a)
d = D(b, c)
e = E(d, ^b)
"""


def test_the_snapshot_is_what_is_there_at_the_peak() -> None:
    """Every sum: a; a and b; a, b and c; then a goes, d comes. The control edge is 4 bytes."""
    simulation = simulate(DIAMOND, fetch="e", sizes={"a": 100, "b": 30, "c": 50, "d": 90})
    assert simulation.temporary_peak_bytes(CPU) == 100 + 30 + 4 + 50
    assert simulation.snapshot(CPU) == ("a:0", "b:0", "^b", "c:0")

    later = simulate(DIAMOND, fetch="e", sizes={"a": 100, "b": 30, "c": 50, "d": 101})
    assert later.temporary_peak_bytes(CPU) == 30 + 4 + 50 + 101
    assert later.snapshot(CPU) == ("b:0", "^b", "c:0", "d:0")


def test_the_first_of_two_equal_peaks_counts() -> None:
    simulation = simulate(DIAMOND, fetch="e", sizes={"a": 100, "b": 30, "c": 50, "d": 100})
    assert simulation.temporary_peak_bytes(CPU) == 184
    assert simulation.snapshot(CPU) == ("a:0", "b:0", "^b", "c:0")


def test_a_device_on_which_nothing_runs_has_no_peak() -> None:
    simulation = simulate(CHAIN, fetch="c", sizes=CHAIN_SIZES, devices=BOTH)
    assert simulation.devices == (GPU,)
    assert simulation.temporary_peak_bytes(CPU) == 0
    assert simulation.snapshot(CPU) == ()


@pytest.mark.parametrize(("memory_bytes", "exceeded"), [(139, True), (140, True), (141, False)])
def test_a_device_is_exhausted_when_the_peak_reaches_its_size(
    memory_bytes: int, *, exceeded: bool
) -> None:
    simulation = simulate(CHAIN, fetch="c", sizes=CHAIN_SIZES)
    assert simulation.exceeded(CPU, memory_bytes) is exceeded


def test_a_device_without_a_limit_is_never_exhausted() -> None:
    assert not simulate(CHAIN, fetch="c", sizes=CHAIN_SIZES).exceeded(CPU, 0)


# --- costs ---------------------------------------------------------------------------------------


def test_costs_are_asked_for_where_a_node_runs() -> None:
    graph = parse_graph(ACROSS)
    costs = TableCosts({"b": Cost(7, 3, 4)})
    simulation = VirtualScheduler(VirtualCluster(BOTH), costs, sized({})).run(
        graph, Request(("c",), frozenset())
    )
    assert sorted(costs.asked) == [("a", GPU), ("b", CPU), ("c", CPU)]
    assert simulation.costs[simulation.wiring.number[graph["b"].index]] == Cost(7, 3, 4)


def test_a_graph_is_simulated_again_only_when_it_was_edited() -> None:
    graph = parse_graph(ACROSS)
    scheduler = VirtualScheduler(VirtualCluster(BOTH), TableCosts({}), sized({"a": 100}))
    simulated = SimulatedMemory(graph, scheduler, Request(("c",), frozenset()))
    assert simulated.simulation().device(graph["b"]) == CPU
    assert simulated.simulation() is simulated.simulation()
    assert simulated.count == 1

    rewriter = Rewriter(graph)
    with rewriter.edit("b to the other device"):
        rewriter.set_device(graph["b"], "/device:GPU:0")

    edited = simulated.simulation()
    assert simulated.count == 2
    assert edited.device(graph["b"]) == GPU
    assert spans(edited) == {
        "a": (0, 10),
        "b": (10, 20),
        "Send_a_0_from_GPU_0_to_CPU_0": (10, 11),
        "Recv_a_0_on_CPU_0": (11, 12),
        "c": (12, 22),
    }
