"""Swapping equals TensorFlow's own: what is chosen always, what is done wherever that is certain.

TensorFlow takes the readers whose inputs it swaps in the order of a hash table of addresses, and a
swap can leave a later reader without a trigger. So its result differs from run to run, and must be
one that some order gives. The first of several readers that end together is the table's choice too.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.native import differences, normalize_native
from support.native_simulation import gpu
from support.swapping import (
    GRAPHS,
    Case,
    NativeSwapping,
    Swaps,
    peak_bytes,
    prepare,
    swap_natively,
    swaps_of,
    uneven,
)
from support.text_cases import read_cases

from memopt.cluster import Device
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.passes import Swapping
from memopt.passes.swapping import PairRewrite
from memopt.simulation.earliest_times import earliest_ends_ns
from memopt.swapping.candidates import choose
from memopt.swapping.history import SwapHistory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Node

PARTS = (0.999999, 0.99, 0.97, 0.95, 0.9, 0.8, 0.6, 0.4)
CASES = read_cases(Path(__file__).parent / "cases" / "swapping.txt")
SLOW_DEVICES = (
    Device("CPU:0", "CPU", 1 << 20, 1000, 4, 32),
    Device("GPU:0", "GPU", 1 << 20, 1000, 24, 128, "6"),
)
DEVICE_STRINGS = {
    "/gpu:0": True,
    "/GPU:0": True,
    "/device:GPU:0": True,
    "/job:localhost/replica:0/task:0/device:GPU:0": True,
    "/task:0/job:localhost/gpu:0": True,
    "/device:XLA_GPU:0": True,
    "/device:GPU:*": False,
    "/device:GPU": False,
    "/device:gpu:0": False,
    "/cpu:0": False,
    "": False,
}


class Compared(NamedTuple):
    """A case, and what TensorFlow does with it."""

    name: str
    case: Case
    native: NativeSwapping


def received(graph_def: GraphDef, fetch: tuple[str, ...], devices: tuple[Device, ...]) -> GraphDef:
    return normalize_native(graph_def, fetch, devices=devices)


def limited(graph_def: GraphDef, memory_bytes: int) -> Case:
    return Case(graph_def, ("train",), (gpu(0, memory_bytes),))


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    """Every graph with every limit, and with one that the best tensor alone is enough for."""
    named = []
    for name, build in GRAPHS.items():
        graph_def = received(build(), ("train",), (gpu(),))
        peak = peak_bytes(Case(graph_def, ("train",), (gpu(),)))
        named.append((f"{name} one", limited(graph_def, peak - 1)))
        named += [(f"{name} {part}", limited(graph_def, int(peak * part))) for part in PARTS]
    results = swap_natively([case for _, case in named])
    return [Compared(*pair, native) for pair, native in zip(named, results, strict=True)]


@pytest.mark.not_on_tensorflow("2.20", "Grappler does not log what it chooses")
def test_the_same_is_chosen(compared: list[Compared]) -> None:
    counts = []
    for name, case, native in compared:
        swapped = prepare(case)
        choice = choose(swapped.graph, case.devices[0], swapped.simulated, SwapHistory())
        chosen = {
            candidate.tensor.name: (
                candidate.size_bytes,
                frozenset((reader.name, slot) for reader, slot in candidate.uses),
            )
            for candidate in choice.candidates
        }
        assert chosen == native.chosen, name
        counts.append(len(chosen))
    assert min(counts) == 1
    assert max(counts) > 40


def test_the_result_is_the_same_where_one_tensor_is_enough(compared: list[Compared]) -> None:
    certain = [one for one in compared if one.name.endswith("one")]
    assert len(certain) == len(GRAPHS)
    for name, case, native in certain:
        swapped = prepare(case)
        Swapping(same_sums=False).run(swapped.rewriter, swapped.context)
        ours = to_graph_def(swapped.graph)
        assert len(swaps_of(ours)) == 1, name
        assert differences(ours, native.graph_def) == [], name
        assert groups(ours) == groups(native.graph_def), name


def test_a_sum_that_native_grappler_would_add_in_another_order_is_split(
    compared: list[Compared],
) -> None:
    case, native = next((one.case, one.native) for one in compared if one.name == "resblocks one")
    assert {node.name: node.op for node in native.graph_def.node}["join0"] == "AddN"
    swapped = prepare(case)
    Swapping().run(swapped.rewriter, swapped.context)
    reads = {node.name: list(node.input)[:3] for node in to_graph_def(swapped.graph).node}
    assert reads["join0"][:2] == ["join0/sum_2", "relu0_3"]
    assert reads["join0/sum_2"][:2] == ["join0/sum_1", "relu0_2"]
    assert reads["join0/sum_1"] == ["relu0_0", "relu0_1"]


def test_the_result_is_the_same_for_tensorflows_own_tests() -> None:
    cases = []
    for text in CASES[:4]:
        parsed = to_graph_def(parse_graph(text.before))
        fetch = tuple(sorted(text.settings["fetched"]))
        level = "MANUAL" if "heuristics=false" in text.spec else "SWAPPING_HEURISTICS"
        cases.append(Case(received(parsed, fetch, SLOW_DEVICES), fetch, SLOW_DEVICES, level))
    for case, native in zip(cases, swap_natively(cases), strict=True):
        swapped = prepare(case)
        Swapping(heuristics=case.level != "MANUAL").run(swapped.rewriter, swapped.context)
        ours = to_graph_def(swapped.graph)
        assert differences(ours, native.graph_def) == []
        assert groups(ours) == groups(native.graph_def)


def test_many_readers_are_all_served(compared: list[Compared]) -> None:
    """The order that is taken for many readers leaves none of them without a trigger."""
    for name, case, native in compared:
        swapped = prepare(case)
        Swapping().run(swapped.rewriter, swapped.context)
        ours = swaps_of(to_graph_def(swapped.graph))
        readers = {use for _, uses in native.chosen.values() for use in uses}
        if len({reader for reader, _ in readers}) > 12:
            assert len(ours) >= len(native.swaps), name
            assert len(ours) >= len(readers) - 1, name


def test_some_order_gives_the_native_result(compared: list[Compared]) -> None:
    several = 0
    for name, case, native in compared:
        found, ends_ns, wanted = replay_native(case, native.swaps)
        assert found.keys() == native.swaps.keys(), name
        for use, (trigger, waiting) in native.swaps.items():
            assert found[use][0] == trigger, (name, use)
            # Of readers that end together, the table decides which one waits.
            assert {ends_ns[node] for node in found[use][1]} == {ends_ns[node] for node in waiting}
        # How many are served is the table's choice too; how many ask is not.
        several += wanted > 12
    assert several >= 12


def replay_native(case: Case, native: Swaps) -> tuple[Swaps, dict[str, int], int]:
    """The swaps of an order that gives a native result, all earliest times, and the uses that ask.

    Every reader that TensorFlow served comes before those whose swap would leave it without a
    trigger; those that it did not serve come last.
    """
    swapped = prepare(case)
    pass_ = Swapping(heuristics=case.level != "MANUAL")
    history = SwapHistory()
    wanted = pass_.wanted(swapped.rewriter, swapped.simulated, history)
    served = [
        reader for reader in wanted if any((reader.name, k) in native for k in wanted[reader])
    ]
    others = [reader for reader in wanted if reader not in served]
    rewriter = swapped.rewriter
    arguments = (pass_, rewriter, swapped.context, swapped.simulated, history)
    ends = earliest_ends_ns(swapped.graph, swapped.simulated.execution_ns)
    ends_ns = {node.name: ends[node.index] for node in swapped.graph}
    trial = PairRewrite(*arguments)
    leaves_without: dict[Node, set[Node]] = {}
    for first in served:
        start = rewriter.checkpoint()
        trial.apply({first: wanted[first]})
        leaves_without[first] = {
            reader
            for reader in served
            if reader is not first and isinstance(trial.in_trigger(reader, wanted[reader]), str)
        }
        rewriter.revert(start)
    order = [*sorted_last(leaves_without), *others]
    PairRewrite(*arguments).apply({reader: wanted[reader] for reader in order})
    return swaps_of(to_graph_def(swapped.graph)), ends_ns, sum(map(len, wanted.values()))


def sorted_last(leaves_without: dict[Node, set[Node]]) -> list[Node]:
    """The readers so that none leaves a later one without a trigger."""
    order: list[Node] = []
    left = dict(leaves_without)
    while left:
        free = [reader for reader, hurt in left.items() if not hurt & left.keys()]
        assert free, "no order gives the native result"
        order.append(free[0])
        del left[free[0]]
    return order


def test_all_orders_of_a_small_graph() -> None:
    graph_def = received(uneven(layers=14), ("train",), (gpu(),))
    peak = peak_bytes(Case(graph_def, ("train",), (gpu(),)))
    case = limited(graph_def, int(peak * 0.97))
    swapped = prepare(case)
    pass_ = Swapping()
    wanted = pass_.wanted(swapped.rewriter, swapped.simulated, SwapHistory())
    assert len(wanted) == 5
    start = swapped.rewriter.checkpoint()
    possible = []
    for order in permutations(wanted):
        arguments = (pass_, swapped.rewriter, swapped.context, swapped.simulated, SwapHistory())
        PairRewrite(*arguments).apply({reader: wanted[reader] for reader in order})
        possible.append(swaps_of(to_graph_def(swapped.graph)))
        swapped.rewriter.revert(start)
    assert distinct(possible) == 8

    for native in swap_natively([case] * 6):
        assert native.swaps in possible
    pass_.run(swapped.rewriter, swapped.context)
    assert swaps_of(to_graph_def(swapped.graph)) in possible


def test_only_tensors_of_more_than_a_kibibyte_are_swapped() -> None:
    (graph,) = (case for case in CASES if "what is read after it" in case.name)
    cases = []
    for elements in (256, 257, 511, 512, 513):
        text = graph.before.replace("[128,128,8]", f"[{elements}]")
        small = [replace(device, memory_bytes=1) for device in SLOW_DEVICES[1:]]
        fetch = tuple(sorted(graph.settings["fetched"]))
        cases.append(Case(to_graph_def(parse_graph(text)), fetch, (SLOW_DEVICES[0], *small)))
    for case, native in zip(cases, swap_natively(cases), strict=True):
        swapped = prepare(case)
        Swapping().run(swapped.rewriter, swapped.context)
        ours = swaps_of(to_graph_def(swapped.graph))
        assert ours.keys() == native.swaps.keys()
        assert bool(ours) == (case is not cases[0])


def test_the_same_device_strings_name_a_gpu() -> None:
    cases = []
    for device in DEVICE_STRINGS:
        annotated = CASES[0].before.replace(" @/gpu:0", f" @{device}" if device else "")
        graph_def = received(to_graph_def(parse_graph(annotated)), ("e",), SLOW_DEVICES)
        cases.append(Case(graph_def, ("e",), SLOW_DEVICES, "MANUAL"))
    natives = swap_natively(cases)
    for (device, is_gpu), case, native in zip(DEVICE_STRINGS.items(), cases, natives, strict=True):
        assert bool(native.swaps) == is_gpu, device
        swapped = prepare(case)
        Swapping(heuristics=False).run(swapped.rewriter, swapped.context)
        assert swaps_of(to_graph_def(swapped.graph)) == native.swaps, device


def groups(graph_def: GraphDef) -> dict[str, list[bytes]]:
    return {
        node.name: list(node.attr["_class"].list.s)
        for node in graph_def.node
        if "_class" in node.attr
    }


def distinct(results: Iterable[Swaps]) -> int:
    return len({tuple(sorted(swaps.items(), key=lambda item: item[0])) for swaps in results})
