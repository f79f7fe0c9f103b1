"""Devices side by side: what each holds, and the order in which their operations start."""

from __future__ import annotations

import pytest
from support.bad_inputs import graph_def_of

from memopt.buffers.buffer_graph import simulate
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.sequencing.devices import Devices, name_devices, queue_names
from memopt.sequencing.free_running import free_running_sequence, free_running_side_by_side
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

LOCAL = "/job:localhost/replica:0/task:0/device:"


def two_chains(first: str, second: str, reader: str) -> Step:
    """A chain of three on each of two devices, and who reads the ends of both."""
    rows = [f"x = Placeholder() {{dtype=float, shape=[64,64]}} @{LOCAL}{first}"]
    for name, device in (("a", first), ("b", second)):
        for number in range(3):
            source = f"{name}{number - 1}" if number else "x"
            rows.append(f"{name}{number} = MatMul({source}, {source}) {{T=float}} @{LOCAL}{device}")
    rows.append(f"end = Mul(a2, b2) {{T=float}} @{LOCAL}{reader}")
    item = GrapplerItem(graph_def_of("\n".join(rows)), feed=("x:0",), fetch=("end:0",))
    graph = from_graph_def(item.graph_def)
    properties = Properties.of(item)
    return Step.of(graph, properties, fed=["x"], fetched=["end"])


def names(step: Step, sequence: list[int]) -> list[str]:
    return [step.buffer_graph.nodes[node].name for node in sequence]


def test_devices_have_short_names() -> None:
    assert name_devices(["/device:gpu:1", "GPU:0", ""]) == {
        "/device:gpu:1": "GPU:1",
        "GPU:0": "GPU:0",
        "": "",
    }
    tasks = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in (0, 1)]
    assert name_devices(tasks) == {task: task for task in tasks}
    assert name_devices([f"{LOCAL}GPU:0", f"{LOCAL}GPU:1"]) == {
        f"{LOCAL}GPU:0": "GPU:0",
        f"{LOCAL}GPU:1": "GPU:1",
    }


def test_one_device_is_none_beside_another() -> None:
    assert two_chains("CPU:0", "CPU:0", "CPU:0").devices is None
    devices = two_chains("CPU:0", "CPU:1", "CPU:0").devices
    assert devices is not None
    assert devices.names == ("CPU:0", "CPU:1")


def test_a_graph_that_is_not_placed_has_no_devices() -> None:
    graph = from_graph_def(graph_def_of(f"a = NoOp() @{LOCAL}GPU:0\nb = NoOp()"))
    assert Devices.of(list(graph)) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # The host's devices share what they make, and what is there before.
        ("CPU:0", "CPU:1", {"CPU:0": 5, "CPU:1": 3}),
        # A GPU holds a copy of what it reads from elsewhere, and so does the host.
        ("CPU:0", "GPU:0", {"CPU:0": 6, "GPU:0": 4}),
        ("GPU:0", "GPU:1", {"GPU:0": 6, "GPU:1": 4}),
    ],
)
def test_a_device_holds_what_it_makes_and_copies_of_what_it_reads(
    first: str, second: str, expected: dict[str, int]
) -> None:
    step = two_chains(first, second, first)
    assert step.devices is not None
    held = {
        name: sum(size > 0 for size in step.devices.memory_of(number, step.buffer_graph).size_bytes)
        for number, name in enumerate(step.devices.names)
    }
    assert held == expected


@pytest.mark.parametrize(("kind", "held"), [("GPU", 1), ("CPU", 3)])
def test_what_is_sent_to_another_device_is_held_no_longer(kind: str, held: int) -> None:
    """Three results that only another device reads, last of all."""
    rows = [f"x = Placeholder() {{dtype=float, shape=[64,64]}} @{LOCAL}{kind}:1"]
    rows += [f"a{number} = Sin(x) {{T=float}} @{LOCAL}{kind}:1" for number in range(3)]
    rows += [f"b0 = Neg(a0) {{T=float}} @{LOCAL}{kind}:0"]
    rows += [
        f"b{number} = Mul(b{number - 1}, a{number}) {{T=float}} @{LOCAL}{kind}:0"
        for number in (1, 2)
    ]
    item = GrapplerItem(graph_def_of("\n".join(rows)), feed=("x:0",), fetch=("b2:0",))
    graph = from_graph_def(item.graph_def)
    step = Step.of(graph, Properties.of(item), fed=["x"], fetched=["b2"])
    assert step.devices is not None
    place = {node.name: number for number, node in enumerate(step.buffer_graph.nodes)}
    sequence = [place[name] for name in "x a0 a1 a2 b0 b1 b2".split()]
    own = step.devices.memory_of(1, step.buffer_graph)
    assert simulate(own, sequence).step_peak_bytes == held * 64 * 64 * 4


def test_devices_run_side_by_side_each_in_its_own_order() -> None:
    step = two_chains("CPU:0", "CPU:1", "CPU:0")
    one_by_one = free_running_sequence(step.buffer_graph, step.precedence)
    together = step.settle(one_by_one)
    assert sorted(together) == sorted(one_by_one)
    for device in "ab":
        alone = [name for name in names(step, one_by_one) if name.startswith(device)]
        assert [name for name in names(step, together) if name.startswith(device)] == alone
    starts = [name[0] for name in names(step, together) if name[0] in "ab"]
    assert starts in (list("ababab"), list("bababa"), list("abbaab"), list("abbaba"))
    # Both chains hold something at once, which one after the other would not.
    assert simulate(step.buffer_graph, together).peak_bytes >= (
        simulate(step.buffer_graph, one_by_one).peak_bytes
    )


@pytest.mark.parametrize(("groups", "expected"), [((), [0, 1, 3, 2]), (((1, 2),), [0, 1, 2, 3])])
def test_what_begins_together_keeps_its_devices_waiting(
    groups: tuple[tuple[int, ...], ...], expected: list[int]
) -> None:
    """The second device could begin at once, and what comes after that soon; the first is busy."""
    devices = Devices(("CPU:0", "CPU:1"), (0, 1, 0, 1))
    producers, times_ns = [[], [], [], [1]], [100, 10, 10, 5]
    assert devices.side_by_side(producers, range(4), times_ns, groups) == expected


def test_executors_run_side_by_side() -> None:
    step = two_chains("CPU:0", "CPU:1", "CPU:0")
    assert step.devices is not None
    found = free_running_side_by_side(
        step.buffer_graph, step.precedence, step.devices, step.times_ns
    )
    order = names(step, found)
    assert sorted(order) == ["a0", "a1", "a2", "b0", "b1", "b2", "end", "x"]
    assert order[0] == "x"
    assert order[-1] == "end"
    assert max(order.index("a0"), order.index("b0")) < min(order.index("a1"), order.index("b1"))


@pytest.mark.parametrize(
    ("spelled", "accelerator", "expected"),
    [
        (["", "/device:CPU:0"], False, ["CPU:0", "CPU:0"]),
        (["", "/device:CPU:0"], True, ["", "CPU:0"]),
        (["", "/device:CPU:0", "/device:CPU:1"], False, ["", "CPU:0", "CPU:1"]),
        (["", "/device:GPU:0"], False, ["", "GPU:0"]),
        ([""], False, [""]),
    ],
)
def test_what_is_on_no_device_is_on_the_only_one(
    spelled: list[str], accelerator: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.sequencing.devices.has_accelerator", lambda: accelerator)
    assert list(queue_names(spelled).values()) == expected


def test_this_machine_is_asked_for_what_it_has() -> None:
    import tensorflow as tf

    from memopt.cluster import has_accelerator

    assert has_accelerator() == bool(tf.config.list_physical_devices("GPU"))
