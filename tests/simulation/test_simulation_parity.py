"""The simulation beside TensorFlow's own: every nanosecond, every byte."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.native_simulation import (
    NativeLiveTensor,
    cpu,
    exhausted_message,
    gpu,
    native_peaks,
    native_temporary_peak,
    simulate_native,
)
from support.simulated_graphs import random_simulated_graph

from memopt.cluster import VirtualCluster
from memopt.costs.estimator import GrapplerCosts
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.shapes.properties import Properties
from memopt.simulation.graph_memory import GraphMemory
from memopt.simulation.run_metadata import run_metadata
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.cluster import Device
    from memopt.simulation.simulation import Simulation

RANDOM_GRAPHS = 100
GRAPHS_A_TEST = 10
NAMES = (*MODELS, *SESSION_MODELS)


class Ran(NamedTuple):
    """Where and when a node ran."""

    device: str
    start_ns: int
    end_ns: int


def simulate(item: GrapplerItem, devices: Sequence[Device]) -> Simulation:
    scheduler = VirtualScheduler(
        VirtualCluster(devices), GrapplerCosts(), Properties.as_in_grappler(item)
    )
    return scheduler.run(from_graph_def(item.graph_def), Request.of(item))


def as_native_gets_it(item: GrapplerItem) -> GrapplerItem:
    """The item with captured variables as handles of known shape; every Placeholder is fed."""
    graph_def = item.with_variable_handles()
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    return GrapplerItem(graph_def, feed=feed, fetch=item.fetch)


def compare(item: GrapplerItem, devices: Sequence[Device]) -> None:
    fetch = Request.of(item).fetched
    native = simulate_native(item.graph_def, devices, fetch)
    ours = simulate(item, devices)
    wiring = ours.wiring
    ran: dict[str, Ran] = {}
    order: dict[str, list[str]] = {}
    for number in ours.executed:
        name, place = wiring.name(number), wiring.devices[wiring.device[number]]
        ran[name] = Ran(place, ours.starts_ns[number], ours.ends_ns[number])
        order.setdefault(place, []).append(name)
    expected = {
        name: Ran(node.device, node.start_ns, node.end_ns) for name, node in native.nodes.items()
    }
    assert ran == expected
    assert order == native.order
    memory = GraphMemory(ours)
    peaks = native_peaks(item.graph_def, devices, fetch)
    for device in devices:
        peak, native_peak = memory.peak(device.name), peaks[device.name]
        assert peak.used_bytes == native_peak.used_bytes
        assert {NativeLiveTensor(*tensor[1:]) for tensor in peak.live} == native_peak.live
        temporary = native_temporary_peak(item.graph_def, devices, fetch, device.name)
        assert ours.temporary_peak_bytes(device.name) == temporary


@pytest.mark.parametrize("name", NAMES)
def test_models(name: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    compare(as_native_gets_it(tiny_item(name)), (gpu(), cpu()))


@pytest.mark.parametrize("name", NAMES)
def test_models_on_three_devices_at_random(
    name: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = as_native_gets_it(tiny_item(name))
    devices = (gpu(0), gpu(1), cpu())
    choice = random.Random(name)
    for node_def in item.graph_def.node:
        node_def.device = choice.choice(devices).name
    compare(item, devices)


@pytest.mark.parametrize(
    "first",
    [
        first if first < RANDOM_GRAPHS // 2 else pytest.param(first, marks=pytest.mark.slow)
        for first in range(0, RANDOM_GRAPHS, GRAPHS_A_TEST)
    ],
)
def test_random_graphs(first: int) -> None:
    for seed in range(first, first + GRAPHS_A_TEST):
        compare(*random_simulated_graph(seed))


@pytest.mark.parametrize("name", ["mlp", "lstm", "convnet_v1"])
def test_exhausted_at_exactly_the_same_size(
    name: str, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    item = as_native_gets_it(tiny_item(name))
    device = gpu()
    ours = simulate(item, (device, cpu()))
    peak_bytes = ours.temporary_peak_bytes(device.name)
    for size_bytes in (1, peak_bytes - 1, peak_bytes, peak_bytes + 1):
        devices = (replace(device, memory_bytes=size_bytes), cpu())
        message = exhausted_message(item.graph_def, devices, Request.of(item).fetched)
        assert ours.exceeded(device.name, size_bytes) == (message is not None)
    assert not ours.exceeded(device.name, 0)


@pytest.mark.parametrize("name", ["mlp", "lstm", "convnet_v1"])
def test_step_stats(name: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = as_native_gets_it(tiny_item(name))
    devices = (gpu(), cpu())
    native = simulate_native(item.graph_def, devices, Request.of(item).fetched)
    ours = run_metadata(simulate(item, devices))
    for stats in native.step_stats.dev_stats:
        for node in stats.node_stats:
            for output in node.output:
                for size in output.tensor_description.shape.dim:
                    # Grappler numbers the dimensions that it does not know: -2, -3 and so on.
                    size.size = max(size.size, -1)
    expected = {stats.device: stats for stats in native.step_stats.dev_stats}
    assert {stats.device: stats for stats in ours.step_stats.dev_stats} == expected
    for stats, partition in zip(ours.step_stats.dev_stats, ours.partition_graphs, strict=True):
        assert [node.name for node in partition.node] == [n.node_name for n in stats.node_stats]
