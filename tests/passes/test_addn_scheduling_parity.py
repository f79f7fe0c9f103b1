"""AddN scheduling equals TensorFlow's own, node by node, all iterations of its loop included.

Comparisons begin behind what Grappler's graph view does to control inputs; see `native_view`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.native import differences, normalize_native, optimize_native
from support.native_simulation import cpu, gpu, native_peaks
from support.native_view import without_repeated_controls
from support.random_sums import SINK, addn_stages, random_sums_graph
from support.scheduling import item_of, schedule
from support.text_cases import read_cases

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.models import MODELS, SESSION_MODELS
from memopt.passes.addn_scheduling import AddnScheduling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.scheduling import Scheduled
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device
    from memopt.item import GrapplerItem

CASES = read_cases(Path(__file__).parent / "cases" / "addn_scheduling.txt")
LEVEL = "SCHEDULING_HEURISTICS"
RANDOM_GRAPHS = 80
DEVICE_STRINGS = (
    "",
    "/device:CPU:0",
    "/device:GPU:0",
    "/device:GPU:1",
    "/job:localhost/replica:0/task:0/device:GPU:0",
)
MEMORY_SHARES = (0.01, 0.3, 0.9, 1.1, 1.24, 1.25, 1.26, 2.0, 100.0)
"""Memory sizes, in peaks; the limit of what Grappler finds full is 1.25."""


def both(
    graph_def: GraphDef, fetch: Sequence[str], devices: Sequence[Device]
) -> tuple[Scheduled, GraphDef]:
    """What memopt and what TensorFlow make of the same graph."""
    received = without_repeated_controls(normalize_native(graph_def, fetch, devices=devices))
    ours = schedule(AddnScheduling(), item_of(received, *fetch), devices)
    return ours, optimize_native(graph_def, LEVEL, fetch, devices=devices)


def rewritten(graph_def: GraphDef) -> set[str]:
    return {node.name for node in graph_def.node if node.op == "DestroyTemporaryVariable"}


def random_devices(choice: random.Random, graph_def: GraphDef) -> list[Device]:
    """Two GPUs and a CPU of random sizes, from much too small to large."""
    devices = [gpu(0), gpu(1), cpu(0)]
    peaks = native_peaks(graph_def, devices, [SINK])
    shares = (choice.choice(MEMORY_SHARES) for _ in devices)
    return [
        replace(device, memory_bytes=max(1, int(peaks[device.name].used_bytes * share)))
        for device, share in zip(devices, shares, strict=True)
    ]


def test_random_graphs_equal_native() -> None:
    graphs = edits = iterations = 0
    for seed in range(RANDOM_GRAPHS):
        choice = random.Random(seed)
        graph_def = random_sums_graph(seed, choice.sample(DEVICE_STRINGS, choice.randint(1, 3)))
        devices = random_devices(choice, graph_def)
        ours, native = both(graph_def, [SINK], devices)
        assert differences(ours.graph_def, native) == [], f"graph {seed}"
        graphs += bool(ours.edits)
        edits += len(ours.edits)
        iterations = max(iterations, ours.iterations)
    # The comparison above is not one of graphs that stay as they are.
    assert graphs > RANDOM_GRAPHS / 3
    assert edits > 2 * RANDOM_GRAPHS
    assert iterations > 2


@pytest.mark.parametrize("model", [*MODELS, *SESSION_MODELS])
def test_models_equal_native(model: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    item = tiny_item(model)
    fetch = [name.removesuffix(":0") for name in item.fetch]
    devices = [gpu(0, 1 << 10), cpu(0)]
    ours, native = both(item.with_variable_handles(), fetch, devices)
    assert differences(ours.graph_def, native) == []
    if model in ("bert", "gpt"):
        assert len(rewritten(native)) == 2


@pytest.mark.parametrize(("stages", "iterations"), [(3, 4), (20, 21), (40, 25)])
def test_stages_whose_peak_moves_on_equal_native(stages: int, iterations: int) -> None:
    """One stage in each iteration, and none after the 25th."""
    graph_def = addn_stages(stages)
    ours, native = both(graph_def, [SINK], [gpu(0, 1 << 10), cpu(0)])
    assert differences(ours.graph_def, native) == []
    assert ours.iterations == iterations
    assert len(ours.edits) == min(stages, 25)


def test_an_existing_variable_stops_both() -> None:
    """Which sums Grappler rewrites before it meets the variable depends on its hash table."""
    (case,) = (case for case in CASES if case.name.startswith("a variable of the name"))
    graph_def = to_graph_def(parse_graph(case.before))
    fetch = sorted(case.settings["fetched"])
    ours, native = both(graph_def, fetch, [cpu(memory_bytes=1 << 10)])
    assert rewritten(ours.graph_def) == {"first"}
    assert "second" not in rewritten(native)
    assert rewritten(native) <= {"first", "third"}


REFUSED = (
    "a reference variable that is updated before",
    "a variable that only one branch of a Switch",
)


@pytest.mark.parametrize("name", REFUSED)
def test_native_rewrites_what_memopt_refuses(name: str) -> None:
    """Deliberate differences: the result could change, or memory stay in use."""
    (case,) = (case for case in CASES if case.name.startswith(name))
    graph_def = to_graph_def(parse_graph(case.before))
    fetch = sorted(case.settings["fetched"])
    ours, native = both(graph_def, fetch, [cpu(memory_bytes=1 << 10)])
    assert rewritten(native) == {"d"}
    assert not ours.edits
    assert len(ours.declined) == 1


def test_control_inputs_that_grappler_drops_are_kept() -> None:
    """A deliberate difference without a meaning, which all other comparisons here begin behind."""
    text = """
    v = VarHandleOp() {dtype=float, shape=[64,64]}
    w = VarHandleOp() {dtype=float, shape=[64,64]}
    a = ReadVariableOp(v) {dtype=float}
    b = Square(a, ^a, ^w) {T=float}
    """
    graph_def = to_graph_def(parse_graph(text))
    devices = [cpu()]
    native = optimize_native(graph_def, LEVEL, ["b"], devices=devices)
    received = normalize_native(graph_def, ["b"], devices=devices)
    ours = schedule(AddnScheduling(), item_of(received, "b"), devices)
    inputs = {node.name: list(node.input) for node in native.node}
    assert inputs["b"] == ["a", "^w"]
    assert {node.name: list(node.input) for node in ours.graph_def.node}["b"] == ["a", "^a", "^w"]
    assert differences(without_repeated_controls(ours.graph_def), native) == []
