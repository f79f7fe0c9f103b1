"""GraphMemory on small steps: lives in whole microseconds, and the peak that they add up to."""

from __future__ import annotations

from support.native_simulation import CPU, GPU, cpu, gpu
from support.small_steps import DT_UINT8, short, simulate, sized

from memopt.graph.text import parse_graph
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import TensorProperties
from memopt.simulation.graph_memory import DeviceMemory, GraphMemory, LiveTensor, worst_case_bytes

CHAIN = """
a = A()
b = B(a)
c = C(b)
"""
SIZES = {"a": 100, "b": 40, "c": 8}


def lives(memory: DeviceMemory) -> dict[str, tuple[int, int]]:
    return {short(live.tensor): (live.allocated_ns, live.freed_ns) for live in memory.live}


def test_a_tensor_lives_from_the_start_of_its_node_to_the_end_of_its_last_reader() -> None:
    """In whole microseconds; what ends at one is gone a nanosecond after it."""
    simulation = simulate(CHAIN, fetch="c", sizes=SIZES, times={"a": 1500, "b": 700, "c": 2000})
    peak = GraphMemory(simulation).peak(CPU)
    # a from 0 to the end of b at 2200, b from 1500 to the end of c at 4200, c from 2200.
    assert peak == DeviceMemory(
        100 + 40 + 8,
        (
            LiveTensor("a:0", "a", 0, 100, 0, 2001),
            LiveTensor("b:0", "b", 0, 40, 1000, 4001),
            LiveTensor("c:0", "c", 0, 8, 2000, 4001),
        ),
        2000,
    )


def test_what_runs_within_a_microsecond_is_all_there_at_once() -> None:
    short_times = {"a": 900, "b": 50, "c": 40}
    simulation = simulate(CHAIN, fetch="c", sizes=SIZES, times=short_times)
    peak = GraphMemory(simulation).peak(CPU)
    assert lives(peak) == {"a:0": (0, 1), "b:0": (0, 1), "c:0": (0, 1)}
    assert peak.used_bytes == 148

    # With b alone past the microsecond c begins when a is gone.
    simulation = simulate(CHAIN, fetch="c", sizes=SIZES, times={"a": 900, "b": 1200, "c": 40})
    peak = GraphMemory(simulation).peak(CPU)
    assert lives(peak) == {"a:0": (0, 2001), "b:0": (0, 2001), "c:0": (2000, 2001)}


def test_the_peak_is_the_first_of_equal_ones() -> None:
    """At 10 us a and b are live, at 30 us c and d, 140 bytes each time."""
    step = "a = A()\nb = B(a)\nn = NoOp(^b)\nc = A(^n)\nd = B(c)\nend = NoOp(^d)"
    times = dict.fromkeys(("a", "b", "n", "c", "d"), 10_000)
    sizes = {"a": 100, "b": 40, "c": 100, "d": 40}
    peak = GraphMemory(simulate(step, fetch="end", sizes=sizes, times=times)).peak(CPU)
    assert (peak.used_bytes, peak.at_ns) == (140, 10_000)
    assert lives(peak) == {"a:0": (0, 20_001), "b:0": (10_000, 20_001)}


def test_persistent_tensors_count_until_their_last_use() -> None:
    step = "w = Const()\na = A(w)\nb = B(a)"
    times = dict.fromkeys(("w", "a", "b"), 5000)
    sizes = {"w": 1000, "a": 10, "b": 20}
    simulation = simulate(step, fetch="b", sizes=sizes, times=times)
    assert simulation.temporary_peak_bytes(CPU) == 10
    peak = GraphMemory(simulation).peak(CPU)
    assert peak.used_bytes == 1000 + 10 + 20
    assert lives(peak) == {"w:0": (0, 10_001), "a:0": (5000, 15_001), "b:0": (10_000, 15_001)}

    later = simulate(step, fetch="b", sizes={**sizes, "w": 15, "b": 200}, times=times)
    # b starts at the very microsecond at which a, and with it w's use, ends.
    assert lives(GraphMemory(later).peak(CPU)).keys() == {"w:0", "a:0", "b:0"}


def test_an_output_that_nobody_reads_lives_while_its_node_runs() -> None:
    step = "a = A()\nb = B(a:1)\nc = C(b)"
    simulation = simulate(
        step,
        fetch="c",
        sizes={"a": (70, 30), "b": 60},
        times={"a": 3000, "b": 3000, "c": 3000},
    )
    peak = GraphMemory(simulation).peak(CPU)
    # At 3 us b comes into being while both outputs of a are there; the first goes at once.
    assert (peak.used_bytes, peak.at_ns) == (160, 3000)
    assert lives(peak) == {"a:0": (0, 3001), "a:1": (0, 6001), "b:0": (3000, 9001)}


def test_control_edges_and_readers_that_do_not_run_keep_nothing_alive() -> None:
    step = "a = A()\nb = B(a)\nc = C(^a, ^b)\nd = D(c)\nunasked = E(a)"
    times = dict.fromkeys("abcd", 10_000)
    sizes = {"a": 10, "b": 10, "c": 100, "d": 100}
    peak = GraphMemory(simulate(step, fetch="d", sizes=sizes, times=times)).peak(CPU)
    assert lives(peak) == {"c:0": (20_000, 40_001), "d:0": (30_000, 40_001)}


def test_inputs_that_an_annotation_says_to_swap_keep_nothing_alive() -> None:
    step = "a = A()\nb = B(a)\nc = C(b, a){swap}\nd = D(c)"
    times = dict.fromkeys("abcd", 10_000)
    sizes = {"a": 100, "b": 10, "c": 10, "d": 10}

    def life_of_a(swap: str) -> tuple[int, int]:
        simulation = simulate(step.format(swap=swap), fetch="d", sizes=sizes, times=times)
        return lives(GraphMemory(simulation).peak(CPU))["a:0"]

    assert life_of_a("") == (0, 30_001)
    assert life_of_a(" {_swap_to_host=<list { i: 0 }>}") == (0, 30_001)
    assert life_of_a(" {_swap_to_host=<list { i: 1 }>}") == (0, 20_001)


def test_each_device_has_its_own_peak() -> None:
    step = """
    a = A() @/device:GPU:0
    b = B(a) @/device:CPU:0
    c = C(a, b) @/device:CPU:0
    """
    simulation = simulate(
        step,
        fetch="c",
        sizes={"a": 100, "b": 30, "c": 5},
        times=dict.fromkeys("abc", 10_000),
        devices=(gpu(), cpu(), gpu(1)),
    )
    memory = GraphMemory(simulation)
    channel = "Channel_from_GPU_0_to_CPU_0"
    assert [short(device) for device in memory.devices] == ["CPU:0", "GPU:0", channel]
    # A reader on another device keeps the tensor alive where it was made ...
    assert lives(memory.peak(GPU)) == {"a:0": (0, 30_001)}
    # ... while the copies live only as long as they are made.
    assert lives(memory.peak(CPU)) == {
        "Recv_a_0_on_CPU_0:0": (10_000, 10_001),
        "b:0": (10_000, 30_001),
    }
    assert memory.peak(CPU).used_bytes == 130
    assert lives(memory.peak(memory.devices[2])) == {
        "Send_a_0_from_GPU_0_to_CPU_0:0": (10_000, 10_001)
    }
    assert memory.peak(gpu(1).name) == DeviceMemory(-1, (), 0)
    assert memory.peak(GPU) is memory.peak(GPU)


def test_a_device_that_holds_nothing_has_a_peak_of_nothing() -> None:
    peak = GraphMemory(simulate("a = NoOp()\nb = NoOp(^a)", fetch="b")).peak(CPU)
    assert peak == DeviceMemory(0, (), 0)


def test_what_is_live_is_listed_by_time_then_by_name() -> None:
    step = "z = A()\ny = A()\nx = B(y, z)"
    sizes: dict[str, int | tuple[int, ...]] = {"x": (1, 2), "y": 3, "z": 4}
    simulation = simulate(step, fetch="x", sizes=sizes, times={"x": 1000, "y": 2000, "z": 2000})
    peak = GraphMemory(simulation).peak(CPU)
    assert [live.tensor for live in peak.live] == ["y:0", "z:0", "x:0", "x:1"]


def test_the_worst_case_is_the_sum_of_all_tensors_run_or_not() -> None:
    graph = parse_graph(CHAIN + "unasked = D(a)")
    assert worst_case_bytes(graph, sized({**SIZES, "unasked": (1000, 2000)})) == 3148
    assert worst_case_bytes(graph, Properties.unknown()) == 0


def test_what_is_not_known_counts_as_little_as_it_can_be() -> None:
    """A dimension that is not known counts as one, as in TensorFlow."""
    properties = sized(SIZES)
    properties.add("a", (TensorProperties(DT_UINT8, (-1, 7), None),))
    assert worst_case_bytes(parse_graph(CHAIN), properties) == 7 + 40 + 8


SWAPPED = """
a = Exp() @/gpu:0
out = _CopyFromGpuToHost(a) @/gpu:0
b = Exp(^out) @/gpu:0
back = _CopyFromHostToGpu(out, ^b) @/gpu:0
end = Add(b, back) @/gpu:0
"""


def test_a_copy_on_the_host_counts_there_when_asked_for() -> None:
    """It is made by an operation on the GPU, where TensorFlow counts it."""
    sizes: dict[str, int | tuple[int, ...]] = {"a": 100, "out": 100, "b": 10, "back": 100, "end": 1}
    times = dict.fromkeys(sizes, 1000)
    simulation = simulate(SWAPPED, fetch="end", sizes=sizes, times=times, devices=(gpu(), cpu()))
    as_tensorflow = GraphMemory(simulation)
    assert as_tensorflow.peak(GPU).used_bytes == 211
    assert as_tensorflow.devices == (GPU,)
    charged = GraphMemory(simulation, host_memory=True)
    assert charged.peak(GPU).used_bytes == 111
    assert lives(charged.peak(CPU)).keys() == {"out:0"}
    assert charged.devices == (CPU, GPU)
