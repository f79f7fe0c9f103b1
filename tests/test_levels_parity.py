"""Every level beside TensorFlow's own, node by node, on every model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.native import (
    differences,
    memory_only_config,
    normalize_native,
    optimize_native,
)
from support.native_simulation import GPU, cpu, gpu
from support.native_view import without_repeated_controls
from support.random_sums import addn_stages

from memopt.analysis import analyze
from memopt.cluster import VirtualCluster
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.optimization.pipeline import MAX_ITERATIONS
from memopt.optimizer import MemoryOptimizer
from memopt.options import Level, Options
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device

SCOPE = "gradient_tape/"
NATIVE = [level for level in Level if not level.improves]
LEVELS = [level for level in NATIVE if level is not Level.NO_MEM_OPT]


def on_a_gpu(item: GrapplerItem) -> GrapplerItem:
    """The item as native's optimizer gets it, variables as handles, all of it on a GPU."""
    graph_def = item.with_variable_handles()
    for node in graph_def.node:
        node.device = GPU
    fetch = Request.of(item).fetched
    graph_def = without_repeated_controls(normalize_native(graph_def, fetch))
    feed = tuple(f"{node.name}:0" for node in graph_def.node if node.op == "Placeholder")
    return GrapplerItem(graph_def, feed=feed, fetch=fetch)


def compare(level: Level, item: GrapplerItem, devices: tuple[Device, ...]) -> int:
    """Compare the results; returns how many edits there were."""
    native = optimize_native(
        item.graph_def, level.name, item.fetch, target_scope=SCOPE, devices=devices
    )
    optimizer = MemoryOptimizer(level, SCOPE, as_grappler=True)
    result = optimizer.optimize(VirtualCluster(devices), item)
    assert not [report.failure for report in result.report.passes if report.failure]
    ours = result.graph_def
    if level is Level.HEURISTICS:
        # Repeated control inputs of triggers, which memopt does not make, are dropped by Grappler
        # when it goes on, and that changes the order of those that are left.
        ours, native = with_sorted_triggers(ours), with_sorted_triggers(native)
    assert differences(ours, native, relaxing=True) == []
    return sum(len(report.edits) for report in result.report.passes)


def with_sorted_triggers(graph_def: GraphDef) -> GraphDef:
    result = type(graph_def)()
    result.CopyFrom(graph_def)
    for node in result.node:
        if node.name.startswith("RecomputeTrigger/"):
            node.input[:] = sorted(set(node.input))
    return result


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "bert" else name
        for name in (*MODELS, *SESSION_MODELS)
    ],
)
def test_models(level: Level, name: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    """At a size at which sums are under pressure but nothing is to be swapped."""
    item = on_a_gpu(tiny_item(name))
    peak_bytes = analyze(item, devices=(gpu(), cpu())).peak_bytes[GPU]
    assert compare(level, item, (gpu(0, peak_bytes + 1), cpu())) > 0


@pytest.mark.parametrize("level", [Level.SCHEDULING_HEURISTICS, Level.HEURISTICS])
def test_sums_take_all_iterations(level: Level) -> None:
    graph_def = without_repeated_controls(normalize_native(addn_stages(30, device=GPU), ["train"]))
    item = GrapplerItem(graph_def, fetch=("train",))
    devices = (gpu(0, 1 << 20), cpu())
    assert compare(level, item, devices) == MAX_ITERATIONS


@pytest.mark.parametrize("level", NATIVE)
def test_a_configuration_of_a_session_gives_the_same(level: Level) -> None:
    config = memory_only_config(level.name, SCOPE)
    options = Options.from_config_proto(config)
    assert options == Options(level, SCOPE)
    optimizer = MemoryOptimizer.from_options(options)
    assert optimizer == MemoryOptimizer(level, SCOPE)
