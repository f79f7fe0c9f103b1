"""What a device has for a step."""

from __future__ import annotations

from typing import Any

import pytest

from memopt.cluster import VirtualCluster
from memopt.errors import OptionsError
from memopt.options import Budget
from memopt.plugin.device_memory import device_budget

MEBIBYTE = 1 << 20


def graph_on(*devices: str) -> Any:
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    for number, device in enumerate(devices):
        graph_def.node.add(name=f"n{number}", op="NoOp", device=device)
    return graph_def


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine of 100 MiB with GPUs of 40 and 20 MiB, and one of which nothing is known."""
    cluster = VirtualCluster(
        ["CPU:0=CPU:100MiB", "GPU:0=GPU:40MiB", "GPU:1=GPU:20MiB", "GPU:2=GPU"]
    )
    monkeypatch.setattr(VirtualCluster, "of_this_machine", lambda: cluster)
    for name in ("TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def name(device: str) -> str:
    return f"/job:localhost/replica:0/task:0/device:{device}"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((), Budget(80 * MEBIBYTE)),
        ((name("CPU:0"),), Budget(80 * MEBIBYTE)),
        (
            (name("CPU:0"), name("GPU:0")),
            Budget(devices=(("GPU:0", Budget(32 * MEBIBYTE)),)),
        ),
        (
            (name("GPU:0"), name("GPU:1"), name("GPU:1")),
            Budget(devices=(("GPU:0", Budget(32 * MEBIBYTE)), ("GPU:1", Budget(16 * MEBIBYTE)))),
        ),
    ],
)
def test_a_fifth_is_left_of_what_each_device_has(
    devices: tuple[str, ...], expected: Budget
) -> None:
    assert device_budget(graph_on(*devices)) == expected


def test_the_hosts_allocator_may_be_limited_to_less(machine: pytest.MonkeyPatch) -> None:
    machine.setenv("TF_CPU_BFC_MEM_LIMIT_IN_MB", "50")
    assert device_budget(graph_on()) == Budget(80 * MEBIBYTE)
    machine.setenv("TF_CPU_ALLOCATOR_USE_BFC", "1")
    assert device_budget(graph_on()) == Budget(40 * MEBIBYTE)
    on_gpu = device_budget(graph_on(name("GPU:0")))
    assert dict(on_gpu.devices) == {"GPU:0": Budget(32 * MEBIBYTE)}


@pytest.mark.usefixtures("machine")
def test_a_device_of_which_nothing_is_known_has_no_budget() -> None:
    with pytest.raises(OptionsError, match=r"'.*GPU:2' is not known: give the budget in bytes"):
        device_budget(graph_on(name("GPU:2")))
