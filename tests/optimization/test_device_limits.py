"""Budgets of steps on several devices: what they mean for each, and that they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.bad_inputs import graph_def_of

import memopt
from memopt.buffers.kernel_call import Runtime
from memopt.errors import BudgetError, OptionsError
from memopt.item import GrapplerItem
from memopt.options import Budget

if TYPE_CHECKING:
    from memopt.result import DeviceMemory, OptimizationResult

LOCAL = "/job:localhost/replica:0/task:0/device:"
LAYERS = 12
SHEET = 64 * 64 * 4


def towers(*devices: str, weights: int = LAYERS) -> GrapplerItem:
    """A forward chain on each device, of which every result is read again on the way back."""
    rows, ends = [], []
    for device in devices:
        name, at = device.replace(":", "").lower() or "none", f"@{LOCAL}{device}" if device else ""
        rows.append(f"{name}_x = Placeholder() {{dtype=float, shape=[64,64]}} {at}")
        source = f"{name}_x"
        for number in range(weights):
            rows.append(f"{name}_f{number} = Sin({source}) {{T=float}} {at}")
            source = f"{name}_f{number}"
        back = source
        for number in reversed(range(weights)):
            rows.append(f"{name}_b{number} = MatMul({back}, {name}_f{number}) {{T=float}} {at}")
            back = f"{name}_b{number}"
        ends.append(back)
    feed = tuple(f"{device.replace(':', '').lower() or 'none'}_x:0" for device in devices)
    text = "\n".join(rows)
    return GrapplerItem(graph_def_of(text), feed=feed, fetch=tuple(f"{end}:0" for end in ends))


def devices_of(result: OptimizationResult) -> dict[str, DeviceMemory]:
    assert result.report.runtime is not None
    return {device.name: device for device in result.report.runtime.devices}


def test_one_figure_is_the_budget_of_each_device() -> None:
    item = towers("GPU:0", "GPU:1")
    result = memopt.optimize(item, budget="60%")
    assert result.report.runtime is not None
    assert result.report.runtime.keeps_budget
    devices = devices_of(result)
    assert devices.keys() == {"GPU:0", "GPU:1"}
    for device in devices.values():
        assert device.peak_before_bytes >= LAYERS * SHEET
        own = device.peak_before_bytes - device.held_bytes
        assert device.budget_bytes == device.held_bytes + own * 6 // 10
        assert device.peak_after_bytes <= device.budget_bytes
    copies = [node for node in result.graph_def.node if node.name.startswith("Recomputed/")]
    assert {node.device[-5:] for node in copies} == {"GPU:0", "GPU:1"}
    assert "predicted peak of GPU:1" in str(result)


def crossing(first: str, second: str, layers: int = LAYERS) -> GrapplerItem:
    """A forward chain whose second half is on another device, and its way back on the first."""
    rows = [f"x = Placeholder() {{dtype=float, shape=[64,64]}} @{LOCAL}{first}"]
    source = "x"
    for number in range(layers):
        at = f"@{LOCAL}{second if 2 * number >= layers else first}"
        rows.append(f"p{number} = MatMul({source}, {source}) {{T=float}} {at}")
        rows.append(f"f{number} = Sin(p{number}) {{T=float}} {at}")
        source = f"f{number}"
    for number in reversed(range(layers)):
        rows.append(f"b{number} = MatMul({source}, f{number}) {{T=float}} @{LOCAL}{first}")
        source = f"b{number}"
    return GrapplerItem(graph_def_of("\n".join(rows)), feed=("x:0",), fetch=(f"{source}:0",))


def all_before(result: OptimizationResult, name: str) -> set[str]:
    """What a node waits for, over other nodes too."""
    sources = {
        node.name: [name.removeprefix("^").partition(":")[0] for name in node.input]
        for node in result.graph_def.node
    }
    pending, before = [name], set[str]()
    while pending:
        new = set(sources[pending.pop()]) - before
        pending += new
        before |= new
    return before


@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_what_another_device_reads_late_is_computed_again_late(kind: str) -> None:
    """Nothing on the second device waits for the first one's way back, but for the copies."""
    result = memopt.optimize(crossing(f"{kind}:0", f"{kind}:1", 16), budget="50%")
    for device in devices_of(result).values():
        assert 0 < device.peak_after_bytes <= device.budget_bytes
    copies = [
        node.name
        for node in result.graph_def.node
        if node.name.startswith("Recomputed/") and node.device.endswith(f"{kind}:1")
    ]
    assert copies
    assert all(any(name.startswith("b") for name in all_before(result, copy)) for copy in copies)


def test_a_device_that_needs_little_need_not_need_less() -> None:
    """The second device sends what it makes, and holds less than the share of the first one's."""
    devices = devices_of(memopt.optimize(crossing("GPU:0", "GPU:1", 16), budget="60%"))
    first, second = devices["GPU:0"], devices["GPU:1"]
    most = first.peak_before_bytes - first.held_bytes
    assert second.peak_before_bytes - second.held_bytes < most // 2
    assert first.budget_bytes - first.held_bytes == most * 6 // 10
    assert second.budget_bytes - second.held_bytes == most * 6 // 10


def test_a_device_that_keeps_its_budget_goes_on_keeping_it() -> None:
    """The second device is planned after the first, and does not undo it."""
    free = devices_of(memopt.optimize(crossing("CPU:0", "CPU:1", 24), level="ordered"))
    limits = {
        name: device.held_bytes + (device.peak_before_bytes - device.held_bytes) * 6 // 10
        for name, device in free.items()
    }
    budget = ",".join(f"{name}={limit}" for name, limit in limits.items())
    result = memopt.optimize(crossing("CPU:0", "CPU:1", 24), budget=budget)
    for name, device in devices_of(result).items():
        assert device.peak_after_bytes <= limits[name]


def test_devices_have_budgets_of_their_own() -> None:
    item = towers("GPU:0", "GPU:1")
    result = memopt.optimize(item, budget=f"GPU:1={8 * SHEET}")
    devices = devices_of(result)
    assert devices["GPU:0"].budget_bytes == 0
    assert devices["GPU:1"].budget_bytes == 8 * SHEET
    assert devices["GPU:1"].peak_after_bytes <= 8 * SHEET
    copies = [node for node in result.graph_def.node if node.name.startswith("Recomputed/")]
    assert {node.device[-5:] for node in copies} == {"GPU:1"}
    assert result.report.to_json()["runtime"]["devices"][1]["budget_bytes"] == 8 * SHEET


def test_the_host_beside_an_accelerator_has_no_share() -> None:
    """What it needs is next to nothing, and half of that is less than one operation needs."""
    item = towers("GPU:0")
    host = item.graph_def.node.add(name="host", op="NoOp", device=f"{LOCAL}CPU:0")
    assert host.name == "host"
    devices = devices_of(memopt.optimize(item, budget="60%"))
    assert devices["CPU:0"].budget_bytes == 0
    assert devices["GPU:0"].peak_after_bytes <= devices["GPU:0"].budget_bytes


def test_a_budget_that_a_device_cannot_keep_is_refused() -> None:
    with pytest.raises(
        BudgetError, match=r"the budget of \d+ bytes of GPU:1 cannot be kept"
    ) as info:
        memopt.optimize(towers("GPU:0", "GPU:1"), budget=f"GPU:1={2 * SHEET}")
    assert info.value.budget_bytes == 2 * SHEET
    assert info.value.result is not None


def test_the_only_device_has_its_budget() -> None:
    item = towers("GPU:0")
    result = memopt.optimize(item, budget=f"GPU:0={9 * SHEET}, GPU:1=1MiB")
    assert result.report.runtime is not None
    assert result.report.runtime.budget_bytes == 9 * SHEET
    assert result.report.runtime.after.peak_bytes <= 9 * SHEET
    free = memopt.optimize(item, budget="GPU:1=1KiB")
    assert not any(node.name.startswith("Recomputed/") for node in free.graph_def.node)


def test_devices_are_named_only_where_operations_are_placed() -> None:
    with pytest.raises(OptionsError, match="not all operations are placed on one"):
        memopt.optimize(towers(""), budget="GPU:0=1MiB")


def test_budgets_of_devices_are_read_and_written() -> None:
    budget = Budget.parse("gpu:0=6GiB, /device:GPU:1=60%")
    assert budget.devices == (("GPU:0", Budget(6 << 30)), ("GPU:1", Budget.parse("60%")))
    assert str(budget) == f"GPU:0={6 << 30},GPU:1=60%"
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize(
    "text", ["GPU:0=", "GPU=1MiB", "=1MiB", "GPU:0=device", "GPU:0=1MiB,", "GPU:0=1MiB=2MiB"]
)
def test_what_is_no_budget_of_a_device_is_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="is no budget"):
        Budget.parse(text)
    with pytest.raises(OptionsError, match="is no budget"):
        memopt.enable(budget=text)


def test_two_budgets_for_one_device_are_refused() -> None:
    with pytest.raises(OptionsError, match="two budgets for GPU:0"):
        Budget.parse("GPU:0=1MiB,gpu:0=2MiB")


def test_a_step_that_the_host_only_feeds_runs_on_one_device() -> None:
    item = towers("GPU:0")
    item.graph_def.node[0].device = f"{LOCAL}CPU:0"
    runtime = memopt.optimize(item, budget="60%").report.runtime
    assert runtime is not None
    assert not runtime.devices
    own = runtime.before.peak_bytes - runtime.before.held_bytes
    assert runtime.budget_bytes == runtime.before.held_bytes + own * 6 // 10
    assert runtime.after.peak_bytes <= runtime.budget_bytes


def test_recomputation_waits_where_only_one_of_two_devices_has_a_budget() -> None:
    """What all devices together may use is no limit then, and none for how far to run ahead."""
    item = towers("GPU:0")
    item.graph_def.node.add(name="host", op="NoOp", device=f"{LOCAL}CPU:0")
    optimizer = memopt.MemoryOptimizer(
        "ordered", budget="60%", runtime=Runtime(inter_op_threads=16)
    )
    result = optimizer.optimize(None, item)
    runtime = result.report.runtime
    assert runtime is not None
    assert runtime.budget_bytes == 0
    assert runtime.budgeted.name == "GPU:0"
    assert runtime.budgeted.peak_after_bytes <= runtime.budgeted.budget_bytes
    names = [node.name for node in result.graph_def.node]
    copies = [name for name in names if name.startswith("Recomputed/")]
    assert copies
    for copy in copies:
        assert any(name.startswith("gpu0_b") for name in all_before(result, copy)), copy
