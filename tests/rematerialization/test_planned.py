"""The planner on networks: what it is given, what is made of its plans, and what they come to."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.remat_networks import network_of, random_network
from support.rematerialized import assert_computes_the_same
from support.small_buffers import Step, small_graph
from support.step_networks import layers

from memopt.buffers.buffer_graph import simulate
from memopt.context import Context
from memopt.graph.graphdef import from_graph_def
from memopt.graph.onednn_fusions import find_fused_pairs
from memopt.passes.ordering import Ordering
from memopt.planning.checker import judge
from memopt.planning.initial_plans import unchanged
from memopt.planning.planner import Planner
from memopt.rematerialization.algorithms import (
    BEST,
    PATH,
    PLANNER,
    SEGMENTS,
    STANDARD,
)
from memopt.rematerialization.limits import Limits
from memopt.rematerialization.network import OUT_OF_REACH
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.planned import algorithm, decisions
from memopt.rematerialization.planned.algorithm import rematerialize_planned
from memopt.rematerialization.planned.decisions import explain
from memopt.rematerialization.planned.realization import realize
from memopt.rematerialization.planned.reduction import Reduction
from memopt.rematerialization.rewriting.eligibility import network_of as eligible_network
from memopt.rematerialization.storage.forms import Form
from memopt.shapes.properties import Properties
from memopt.time_limit import NO_LIMIT, TimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.item import GrapplerItem
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

SEEDS = range(8)


def swapped(done: Rematerialized, first: int, second: int) -> Rematerialized:
    """The same with two nodes in each other's places."""
    other = {first: second, second: first}
    return done._replace(sequence=[other.get(node, node) for node in done.sequence])


def names(done: Rematerialized) -> list[str]:
    nodes = done.buffer_graph.nodes
    return [nodes[instruction].name for instruction in done.sequence]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_network_needs_what_its_cost_graph_needs(seed: int) -> None:
    network = random_network(Random(seed), 60)
    graph = Reduction.of(network, {}).cost_graph
    assert judge(graph, graph.order.tolist()).peak_bytes == network.peak_bytes


def test_a_search_that_may_be_the_only_one_leaves_room_for_what_it_neglects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = random_network(Random(3), 60)
    own_bytes = network.peak_bytes - network.buffer_graph.held_bytes
    limit_bytes = network.buffer_graph.held_bytes + int(own_bytes * 0.8)
    asked: list[int] = []
    search = Planner.search

    def noted(self: Planner, budget_bytes: int, *starts: Any, **options: Any) -> Any:
        asked.append(budget_bytes)
        return search(self, budget_bytes, *starts, **options)

    monkeypatch.setattr(Planner, "search", noted)
    monkeypatch.setattr(algorithm, "_SPARED", 10)
    for time_limit in (NO_LIMIT, TimeLimit.after(600)):
        rematerialize_planned(network, limit_bytes, forms={}, time_limit=time_limit)
    first, second = asked
    assert first == limit_bytes
    assert second == limit_bytes - (limit_bytes - network.buffer_graph.held_bytes) // 10


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed: int) -> None:
    network = random_network(Random(seed), 60)
    for share in (1.0, 0.8, 0.6):
        limit_bytes = int(network.peak_bytes * share)
        done = rematerialize_planned(network, limit_bytes, forms={})
        assert_computes_the_same(done)
        assert done.peak_bytes == simulate(done.buffer_graph, done.sequence).peak_bytes
        again = rematerialize_planned(network, limit_bytes, forms={})
        assert again.sequence == done.sequence
        assert again.instructions.inputs == done.instructions.inputs
        if share == 1.0:
            assert not done.copies


def test_a_limit_below_what_is_held_leaves_nothing_to_neglect() -> None:
    """As in a branch that is given more than it needs at once."""
    network = random_network(Random(1), 60)
    graph = Reduction.of(network, {}, -1).cost_graph
    assert judge(graph, graph.order.tolist()).peak_bytes == network.peak_bytes


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow) if seed > 3 else seed for seed in SEEDS]
)
def test_the_best_plan_is_none_worse_than_any(seed: int) -> None:
    network = random_network(Random(seed), 60)
    for share in (0.9, 0.6):
        limits = Limits(int(network.peak_bytes * share), largest_block=16)
        best = make_plan(BEST, network, limits)
        for name in (STANDARD, PATH, SEGMENTS, PLANNER):
            other = make_plan(name, network, limits)
            if other.peak_bytes <= limits.limit_bytes:
                assert best.peak_bytes <= limits.limit_bytes
                if name != PLANNER:
                    assert best.added_ns <= other.added_ns
            elif best.peak_bytes > limits.limit_bytes and name != PLANNER:
                assert best.peak_bytes <= other.peak_bytes


@pytest.mark.slow
def test_a_limit_is_kept_where_nothing_else_keeps_it() -> None:
    """Of random networks, the planner brings more within a limit, and those at less cost."""
    others = (STANDARD, PATH, SEGMENTS)
    kept = dict.fromkeys((*others, BEST), 0)
    saved = dict.fromkeys(others, 0)
    for seed in SEEDS:
        network = random_network(Random(seed), 60)
        limits = Limits(int(network.peak_bytes * 0.7), largest_block=16)
        plans = {name: make_plan(name, network, limits) for name in kept}
        within = {name for name, plan in plans.items() if plan.peak_bytes <= limits.limit_bytes}
        for name in within:
            kept[name] += 1
    for network in (layers(count) for count in (12, 20, 30)):
        limits = Limits(network.peak_bytes // 2, largest_block=16)
        best = make_plan(BEST, network, limits)
        for name in others:
            saved[name] += make_plan(name, network, limits).added_ns - best.added_ns
    assert kept[BEST] > max(kept[name] for name in others)
    assert min(saved.values()) >= 0


@pytest.mark.parametrize("algorithm", [BEST, PLANNER])
def test_every_limit_above_the_lowest_peak_is_kept(algorithm: str) -> None:
    """And costs no more than that, also where a search for the limit itself misses it."""
    network = layers(40)
    lowest = make_plan(algorithm, network, Limits(OUT_OF_REACH))
    for limit_bytes in range(lowest.peak_bytes, 2 * lowest.peak_bytes, 32):
        plan = make_plan(algorithm, network, Limits(limit_bytes))
        assert plan.peak_bytes <= limit_bytes
        assert plan.added_ns <= lowest.added_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sequence_that_the_planner_cannot_have_is_none_to_start_from(seed: int) -> None:
    """What needs something comes after it, and before what it must not come after."""
    network = random_network(Random(seed), 60)
    done = rematerialize_planned(network, network.peak_bytes, forms={})
    reduction = Reduction.of(network, {})
    graph, nodes = reduction.cost_graph, reduction.nodes
    assert reduction.steps(done) is not None
    makers = np.searchsorted(graph.output_start, graph.read_values, "right") - 1
    reads = np.stack((makers, graph.read_ops), 1)
    pairs = np.concatenate((reads, graph.after, graph.until))
    checked = 0
    for first, second in pairs.tolist():
        if min(nodes[first], nodes[second]) >= 0 and first != second:
            assert reduction.steps(swapped(done, nodes[first], nodes[second])) is None
            checked += 1
    assert checked


@pytest.mark.parametrize("seed", SEEDS)
def test_where_some_cost_is_enough_a_plan_within_it_finds_room(seed: int) -> None:
    """Not the cheapest, for which there is none, and none that costs more than is enough."""
    network = random_network(Random(seed), 60)
    room_bytes = int(0.75 * network.peak_bytes)
    least = rematerialize_planned(network, room_bytes, forms={})
    if least.peak_bytes > room_bytes or not least.added_weight:
        return

    def pack(done: Rematerialized) -> tuple[Rematerialized, int]:
        return done, max(done.peak_bytes - room_bytes, 0)

    limit_bytes = network.peak_bytes - 1
    cheapest = rematerialize_planned(network, limit_bytes, forms={})
    enough = 2 * least.added_weight
    found = rematerialize_planned(network, limit_bytes, forms={}, pack=pack, enough_weight=enough)
    assert cheapest.peak_bytes > room_bytes >= found.peak_bytes
    assert found.added_weight <= enough
    nothing = rematerialize_planned(network, limit_bytes, forms={}, pack=pack, enough_weight=1)
    assert pack(nothing)[1] or nothing.added_weight > 1


def test_layers_are_checkpointed() -> None:
    """Sixteen layers in the memory of nine, at no more work than by segments."""
    network = layers(16)
    assert network.peak_bytes == 17 * 8
    done = rematerialize_planned(network, 9 * 8, forms={})
    assert_computes_the_same(done)
    assert done.peak_bytes <= 9 * 8
    segments = make_plan(SEGMENTS, network, Limits(9 * 8))
    assert done.added_weight <= segments.added_ns


def test_results_are_taken_to_the_host_where_that_costs_less() -> None:
    network = layers(8, weights=[100] * 16)
    forms = {node: [Form("serialize", 0, 10, 5, stays=True)] for node in range(1, 9)}
    done = rematerialize_planned(network, 5 * 8, forms=forms)
    assert done.peak_bytes <= 5 * 8
    assert done.stored
    assert not done.copies
    table = done.instructions
    for store in done.stored:
        (source,) = table.inputs[store]
        at = done.sequence.index(store)
        readers = [reader for reader in table.readers[table.makes[source][0]] if reader != store]
        assert all(done.sequence.index(reader) < at for reader in readers)


def test_views_of_what_runs_again_are_copied() -> None:
    steps = [
        Step("x", (), -1),
        Step("a", ("x",), 8),
        Step("seen", ("a",), 0, aliases=True),
        Step("again", ("seen",), 0, aliases=True),
        Step("b", ("again",), 8),
        Step("c", ("b",), 8, scratch_bytes=8),
        Step("d", ("c",), 8, scratch_bytes=8),
        Step("e", ("d", "again"), 8),
    ]
    network = network_of(small_graph(steps), fixed=("x",))
    done = rematerialize_planned(network, network.peak_bytes - 8, forms={})
    assert_computes_the_same(done)
    assert names(done).count("a") == 2
    assert names(done).count("seen") == names(done).count("again") == 2
    assert names(done)[-4:] == ["a", "seen", "again", "e"]


def test_what_holds_next_to_nothing_is_folded() -> None:
    steps = [Step("x", (), -1), Step("tiny", ("x",), 1), Step("big", ("tiny",), 4_000)]
    steps += [Step("other", ("big",), 4_000), Step("last", ("other", "big", "tiny"), 4_000)]
    network = network_of(small_graph(steps), fixed=("x", "last"))
    reduction = Reduction.of(network, {})
    assert reduction.operation[:2] == (-1, -1)
    assert reduction.nodes == (2, 3, 4)


def test_what_is_next_to_nothing_is_told_by_the_room_there_is() -> None:
    """What the step as it is does not feel can be what a plan in a fraction of it goes over by."""
    steps = [Step("x", (), -1), Step("small", ("x",), 50), Step("big", ("small",), 4_000)]
    steps += [Step("other", ("big",), 4_000), Step("last", ("other", "big", "small"), 4_000)]
    network = network_of(small_graph(steps), fixed=("x", "last"))
    assert Reduction.of(network, {}).nodes == (2, 3, 4)
    assert Reduction.of(network, {}, room_bytes=4_000).nodes == (1, 2, 3, 4)
    assert Reduction.of(network, {}, room_bytes=1 << 40).nodes == (2, 3, 4)


def test_what_runs_again_with_what_may_not_is_no_sequence_of_the_planner() -> None:
    network = layers(4)
    done = rematerialize_planned(network, network.peak_bytes - 8, forms={})
    assert done.copies
    assert Reduction.of(network, {}).steps(done) is not None
    fixed = replace(network, recomputable=[False] * len(network.recomputable))
    assert Reduction.of(fixed, {}).steps(done) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_every_decision_says_what_the_peak_would_be_without_it(seed: int) -> None:
    network = random_network(Random(seed), 60)
    limit_bytes = int(network.peak_bytes * 0.7)
    done = rematerialize_planned(network, limit_bytes, forms={})
    found = explain(done, {}, limit_bytes)
    table = done.instructions
    copies = [copy for copy in done.copies if not table.is_view(copy)]
    moved = [node for node in done.removed if node < len(network.inputs)]
    assert len(found) == len(copies) - len([n for n in moved if not table.is_view(n)])
    names = [table.network.buffer_graph.nodes[table.origin[copy]].name for copy in copies]
    assert {decision.node for decision in found} <= set(names)
    peaks = [int(decision.reason.rsplit(" ", 2)[1]) for decision in found]
    assert peaks == sorted(peaks, reverse=True)
    assert all(peak <= network.peak_bytes + done.peak_bytes for peak in peaks)


def test_a_decision_is_explained_by_what_would_be_without_it() -> None:
    steps = [Step("x", (), -1), Step("a", ("x",), 8), Step("b", ("a",), 8)]
    steps += [Step("c", ("b",), 8, scratch_bytes=16), Step("d", ("c", "a"), 8)]
    network = network_of(small_graph(steps), fixed=("x", "d"))
    done = rematerialize_planned(network, network.peak_bytes - 8, forms={})
    (decision,) = explain(done, {}, network.peak_bytes - 8)
    assert decision.node == "a"
    assert decision.reason == (
        f"recomputed, 8 bytes in about 0.0 us; kept instead, the peak would be "
        f"{network.peak_bytes} bytes"
    )


def test_of_very_many_decisions_only_the_largest_are_weighed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = random_network(Random(1), 60)
    limit_bytes = int(network.peak_bytes * 0.7)
    done = rematerialize_planned(network, limit_bytes, forms={})
    weighed = explain(done, {}, limit_bytes)
    monkeypatch.setattr(decisions, "_MOST_MOVED", 2 * len(done.sequence))
    bounded = explain(done, {}, limit_bytes)
    assert sorted(each.node for each in bounded) == sorted(each.node for each in weighed)
    told = ["the peak would be" in each.reason for each in bounded]
    assert told == sorted(told, reverse=True)
    assert 2 <= sum(told) < len(told)
    assert {each for each, is_told in zip(bounded, told, strict=True) if is_told} <= set(weighed)


@pytest.fixture(scope="module", params=["unet", "resnet50"])
def convolutions(
    request: pytest.FixtureRequest, tiny_item: Callable[[str], GrapplerItem]
) -> Network:
    item = tiny_item(request.param)
    graph = from_graph_def(item.graph_def)
    fetched = frozenset(name.partition(":")[0] for name in item.fetch)
    fed = frozenset(name.partition(":")[0] for name in item.feed)
    context = Context(Properties.of(item), fed=fed, fetched=fetched)
    order = Ordering().order(graph, context)
    assert order is not None
    return eligible_network(graph, order.buffer_graph, order.sequence, context)


@pytest.mark.parametrize("room_bytes", [None, 1 << 14])
def test_what_onednn_may_fuse_is_planned_side_by_side(
    convolutions: Network, room_bytes: int | None
) -> None:
    """The gradient of a bias reads what the gradient of its filter reads, right after it.

    However little room there is, in which its few bytes count.
    """
    reduction = Reduction.of(convolutions, {}, room_bytes)
    nodes = convolutions.buffer_graph.nodes
    pairs = {
        first: second
        for first, second in find_fused_pairs(nodes).items()
        if nodes[second].op == "BiasAddGrad" and first in convolutions.sequence
    }
    assert len(pairs) > 10
    assert all(reduction.operation[second] < 0 for second in pairs.values())
    if room_bytes is not None:
        operations = [reduction.cost_graph.operations[reduction.operation[node]] for node in pairs]
        assert all(len(operation.output_bytes) == 2 for operation in operations)
    done = realize(reduction, unchanged(np.array(reduction.cost_graph.order)), {})
    place = {node: position for position, node in enumerate(done.sequence)}
    assert all(place[second] == place[first] + 1 for first, second in pairs.items())
