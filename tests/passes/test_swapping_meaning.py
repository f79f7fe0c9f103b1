"""What swapping is for: the same bits with less memory, seen by running graphs for real.

By SerializeTensor, which takes the bytes out of TensorFlow's allocator on any machine.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from support.random_graphs import SIDE, random_training_graph
from support.sessions import run_graph
from support.swapping import (
    Case,
    chain,
    copied_bytes,
    host_peak_bytes,
    in_simulated_order,
    prepare,
)

from memopt.analysis import analyze
from memopt.api import optimize
from memopt.cluster import Device
from memopt.graph.graphdef import to_graph_def
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.passes import Swapping
from memopt.runtime.entry import verify

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.runtime.verification import Verification

NATIVE = Swapping(ops="serialize", device_type="CPU")
IMPROVED = replace(NATIVE, improved=True)
CPU = Device.parse("CPU:0=CPU")
SNAIL = Device("CPU:0", "CPU", 0, 1, 1, 1)
"""A kilobyte a second: the tiniest tensors live for long."""
RANDOM_SEEDS = range(12)


class Run(NamedTuple):
    """A step before and after, run for real."""

    verification: Verification
    copies: int
    host_bytes: int

    @property
    def device_bytes(self) -> tuple[int, int]:
        return self.verification.original.peak_bytes, self.verification.rewritten.peak_bytes


def annotated(seed: int) -> GraphDef:
    """A random graph, some of whose inputs are to be swapped."""
    graph_def = random_training_graph(seed)
    choice = random.Random(seed)
    for node in graph_def.node:
        slots = [slot for slot, name in enumerate(node.input) if not name.startswith("^")]
        if slots and choice.random() < 0.5:
            node.attr["_swap_to_host"].list.i.extend(choice.sample(slots, 1))
    return graph_def


@pytest.mark.parametrize("pass_", [NATIVE, IMPROVED], ids=str)
def test_random_graphs_compute_the_same_bits(pass_: Swapping) -> None:
    swaps = 0
    for seed in RANDOM_SEEDS:
        graph_def = annotated(seed)
        swapped = prepare(Case(graph_def, ("train",), (SNAIL,)))
        replace(pass_, heuristics=False).run(swapped.rewriter, swapped.context)
        verify_graph(swapped.graph)
        swaps += len(swapped.rewriter.edits)
        values = np.random.default_rng(seed)
        feed: dict[str, Any] = {
            f"{node.name}:0": values.standard_normal((SIDE, SIDE)).astype(np.float32)
            for node in graph_def.node
            if node.op == "Placeholder"
        }
        fetch = [f"{node.name}:0" for node in graph_def.node if node.op != "NoOp"]
        (expected,) = run_graph(graph_def, fetch, feed)
        (found,) = run_graph(to_graph_def(swapped.graph), fetch, feed)
        for tensor, before, after in zip(fetch, expected, found, strict=True):
            assert after.tobytes() == before.tobytes(), f"graph {seed}: {tensor}"
    assert swaps > 2 * len(RANDOM_SEEDS)


def run_for_real(item: GrapplerItem, pass_: Swapping, part: float, *, in_order: bool) -> Run:
    """Fit a step into a part of its simulated peak, and run both."""
    (peak_bytes,) = analyze(item, devices=[CPU]).peak_bytes.values()
    device = replace(CPU, memory_bytes=int(peak_bytes * part))
    result = optimize(
        item, level="swapping_heuristics", devices=[device], pass_options=[str(pass_)]
    )
    after = replace(item, graph_def=result.graph_def)
    if in_order:
        item, ordered = (
            replace(one, graph_def=in_simulated_order(one, CPU)) for one in (item, after)
        )
    else:
        ordered = after
    verification = verify(item, ordered, timing_rounds=0, steps=2)
    sizes = copied_bytes(result.graph_def, item)
    return Run(verification, len(sizes), host_peak_bytes(verification.rewritten, sizes))


def mlp_item() -> GrapplerItem:
    function = MODELS["mlp"](batch=512, width=64, layers=10, classes=5).function
    return GrapplerItem.from_concrete_function(function)


def bert_item() -> GrapplerItem:
    sizes = {"batch": 8, "tokens": 16, "width": 32, "layers": 2, "heads": 2, "vocabulary": 50}
    return GrapplerItem.from_concrete_function(MODELS["bert"](**sizes).function)


def chain_item() -> GrapplerItem:
    graph_def = chain(12, 128, 256)
    for node in graph_def.node:
        node.device = ""
    return GrapplerItem(graph_def, feed=("x:0",), fetch=("train",))


ITEMS = {"mlp": mlp_item, "bert": bert_item, "chain": chain_item}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bert", marks=pytest.mark.slow),
        "mlp",
        pytest.param("chain", marks=pytest.mark.slow),
    ],
)
def test_steps_compute_the_same_bits_in_less_memory(name: str) -> None:
    """In the simulated order; where nothing holds operations back, memory may pile up anyway."""
    item = ITEMS[name]()
    native = run_for_real(item, NATIVE, 0.6, in_order=True)
    improved = run_for_real(item, IMPROVED, 0.6, in_order=True)
    for run in (native, improved):
        assert run.verification.equal
        before_bytes, after_bytes = run.device_bytes
        assert after_bytes < 0.8 * before_bytes
        # What left the device is on the host.
        assert run.host_bytes >= before_bytes - after_bytes
    assert improved.device_bytes[1] <= native.device_bytes[1]
    assert improved.host_bytes < native.host_bytes
    assert improved.copies < native.copies


@pytest.mark.slow
def test_a_step_computes_the_same_bits_in_any_order() -> None:
    run = run_for_real(bert_item(), IMPROVED, 0.6, in_order=False)
    assert run.verification.equal
    assert run.copies > 5
    assert run.host_bytes > 0
