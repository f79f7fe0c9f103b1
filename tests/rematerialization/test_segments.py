"""Segments on chains whose best is known, and on random graphs, everything simulated."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.remat_networks import network_of, random_network
from support.rematerialized import assert_computes_the_same
from support.small_buffers import Step, chain_graph, small_graph
from support.step_networks import layers

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.segments.algorithm import rematerialize_segments, sqrt_segments

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

SEEDS = range(20)


def peak_bytes(done: Rematerialized) -> int:
    return simulate(done.buffer_graph, done.sequence).peak_bytes


def weight(done: Rematerialized) -> int:
    """What the copies cost on top of what they replace."""
    table = done.instructions
    copied = sum(table.network.weights[table.origin[copy]] for copy in done.copies)
    return copied - sum(table.network.weights[table.origin[gone]] for gone in done.removed)


def names(done: Rematerialized) -> list[str]:
    nodes = done.buffer_graph.nodes
    return [nodes[instruction].name for instruction in done.sequence]


def peak_when_kept(count: int, kept: Collection[int]) -> int:
    """Results in use at the peak of a chain of layers of which some are kept, by counting.

    What is not kept is recomputed where it is first needed, from the last one before it that is.
    """
    there: set[int] = set()
    most = 0
    for layer in range(1, count + 1):
        there.add(layer)
        most = max(most, len(there))
        if layer - 1 not in kept:
            there.discard(layer - 1)
    if count not in kept:
        there.discard(count)
    for layer in range(count, 0, -1):
        gradients = min(count - layer, 1)
        start = layer
        while start not in there and start > 0:
            start -= 1
        for again in range(start + 1, layer + 1):
            there.add(again)
            most = max(most, len(there) + gradients)
        most = max(most, len(there) + gradients + 1)
        there.discard(layer)
    return most


def fewest_copies(count: int) -> dict[int, int]:
    """By peak in results: the fewest copies of all ways to keep some layers, all of them tried."""
    fewest: dict[int, int] = {}
    for keeps in product((False, True), repeat=count - 1):
        kept = {*(layer for layer, keep in enumerate(keeps, start=1) if keep), count}
        most = peak_when_kept(count, kept)
        fewest[most] = min(fewest.get(most, count), count - len(kept))
    return fewest


@pytest.mark.parametrize("count", [3, 6, 9, 12])
def test_no_way_to_keep_layers_takes_less_work(count: int) -> None:
    """For each limit that keeping some layers can meet: exactly the least work."""
    network = layers(count)
    assert network.peak_bytes == 8 * (count + 1)
    fewest = fewest_copies(count)
    for limit in range(min(fewest), count + 2):
        done = rematerialize_segments(network, 8 * limit)
        assert_computes_the_same(done)
        assert peak_bytes(done) <= 8 * limit
        least = min(copies for most, copies in fewest.items() if most <= limit)
        assert len(done.copies) == least


def test_nine_layers_in_segments() -> None:
    """Two cuts, and 5 results at most: 3 kept, or recomputed, of each segment, and two gradients.

    Kept are f3, f6 and, besides f9, one more of the last segment. When g9 is made, there are these
    four and g9. Before g5, f4 and f5 come again beside f3, the gradient that is there and the new
    one; f6 is gone by then. Before g2 it is f1 and f2 and two gradients.
    """
    done = rematerialize_segments(layers(9), 5 * 8)
    assert peak_bytes(done) == done.peak_bytes == 5 * 8
    counts = [names(done).count(f"f{n}") for n in range(1, 10)]
    assert counts[:6] == [2, 2, 1, 2, 2, 1]
    assert sorted(counts[6:]) == [1, 1, 2]
    assert done.block_count == 1


def test_costly_layers_are_kept_and_cheap_ones_made_again() -> None:
    """Every second layer costs a hundred times as much: with room for them they stay."""
    network = layers(12, weights=[100, 1] * 6)
    done = rematerialize_segments(network, 8 * 9)
    assert peak_bytes(done) <= 8 * 9
    again = {done.buffer_graph.nodes[copy].name for copy in done.copies}
    assert again
    assert again <= {f"f{n}" for n in range(2, 13, 2)}


def test_a_limit_below_that_of_segments_takes_segments_of_segments() -> None:
    """Fourteen layers need 6 results if each is recomputed once at most."""
    assert min(fewest_copies(14)) == 6
    done = rematerialize_segments(layers(14), 5 * 8)
    assert_computes_the_same(done)
    assert peak_bytes(done) == 5 * 8
    assert done.block_count > 1
    counts = [names(done).count(f"f{n}") for n in range(1, 15)]
    assert max(counts) > 2


def test_within_the_limit_nothing_is_made_again() -> None:
    network = layers(8)
    done = rematerialize_segments(network, network.peak_bytes)
    assert done.copies == done.removed == []
    assert done.sequence == list(network.sequence)
    assert done.peak_bytes == network.peak_bytes
    assert done.block_count == 0


def test_what_must_not_run_twice_is_kept() -> None:
    steps = [Step("x0", (), -1), Step("f1", ("x0",), 8), Step("random", ("x0",), 8)]
    steps += [Step("f2", ("f1", "random"), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(3, 7)]
    steps.append(Step("g6", ("f6",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"f{n}"), 8) for n in (5, 4, 3)]
    steps += [Step("g2", ("g3", "random"), 8), Step("g1", ("g2", "f1"), 8)]
    network = network_of(small_graph(steps), fixed=("x0", "random"))
    done = rematerialize_segments(network, 0)
    assert_computes_the_same(done)
    assert names(done).count("random") == 1
    assert peak_bytes(done) < network.peak_bytes


def test_what_would_have_to_keep_more_is_kept_itself() -> None:
    """A mask of 1 byte stays, rather than the 8 random bytes that it is made of."""
    steps = [Step("x0", (), -1), Step("random", ("x0",), 8), Step("mask", ("random",), 1)]
    steps += [Step("f1", ("x0", "mask"), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(2, 7)]
    steps.append(Step("g6", ("f6",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"f{n}"), 8) for n in (5, 4, 3, 2)]
    steps.append(Step("g1", ("g2", "mask"), 8))
    done = rematerialize_segments(network_of(small_graph(steps), fixed=("x0", "random")), 0)
    assert_computes_the_same(done)
    assert done.copies
    assert names(done).count("mask") == 1


def test_views_are_copied_along() -> None:
    """What comes behind the turn reads layers through views that ran before it."""
    count = 8
    steps = [Step("x0", (), -1)]
    for n in range(1, count + 1):
        steps.append(Step(f"f{n}", (f"v{n - 1}" if n > 1 else "x0",), 8))
        steps.append(Step(f"v{n}", (f"f{n}",), aliases=True))
    steps.append(Step(f"g{count}", (f"v{count}",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"v{n}"), 8) for n in reversed(range(1, count))]
    network = network_of(small_graph(steps), fixed=("x0",))
    done = rematerialize_segments(network, 6 * 8)
    assert_computes_the_same(done)
    assert peak_bytes(done) <= 6 * 8
    again = [done.buffer_graph.nodes[copy].name for copy in done.copies]
    assert {name for name in again if name.startswith("v")}


def test_small_results_are_left_alone() -> None:
    network = layers(9)
    assert rematerialize_segments(network, 6 * 8, smallest_bytes=7).copies
    assert not rematerialize_segments(network, 6 * 8, smallest_bytes=8).copies


def test_a_writer_of_what_was_read_holds_copies_back() -> None:
    """What reads a state is not recomputed once that has been written."""
    steps = [Step("x0", (), -1), Step("state", (), -1)]
    steps += [Step("f1", ("x0", "state"), 8), Step("write", (), 0, waits=("f1",))]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(2, 9)]
    steps.append(Step("g8", ("f8",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"f{n}"), 8) for n in reversed(range(1, 8))]
    done = rematerialize_segments(network_of(small_graph(steps), fixed=("x0",)), 6 * 8)
    assert_computes_the_same(done)
    assert done.copies
    assert names(done).count("f1") == 1


def test_a_writer_behind_the_turn_holds_copies_back() -> None:
    """Made again just before g2, f2 would read what has been written by then."""
    steps = [Step("x0", (), -1), Step("f1", ("x0",), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(2, 9)]
    steps += [Step("g8", ("f8",), 8), Step("g7", ("g8", "f7"), 8)]
    steps.append(Step("write", ("g7",), 0, waits=("f2",)))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"f{n}"), 8) for n in reversed(range(1, 7))]
    network = network_of(small_graph(steps), fixed=("x0",))
    for limit in (7, 6, 5):
        done = rematerialize_segments(network, 8 * limit)
        assert_computes_the_same(done)
        assert done.copies
        assert peak_bytes(done) < network.peak_bytes


def test_nothing_to_do_breaks_nothing() -> None:
    """No instruction at all, and one with nobody behind it."""
    given = Step("x0", (), -1)
    empty = replace(network_of(small_graph([given]), returned_bytes=8), sequence=())
    single = network_of(small_graph([given, Step("f1", ("x0",), 8, lasting=True)]))
    for network in (empty, single):
        for done in (rematerialize_segments(network, 0), sqrt_segments(network)):
            assert_computes_the_same(done)
            assert done.sequence == list(network.sequence)
            assert done.peak_bytes == network.peak_bytes


def test_square_root_of_layers() -> None:
    """Sixteen layers make four segments of four, of which the last is not recomputed."""
    done = sqrt_segments(layers(16))
    assert_computes_the_same(done)
    counts = [names(done).count(f"f{n}") for n in range(1, 17)]
    assert counts == [2, 2, 2, 1] * 3 + [1] * 4
    assert peak_bytes(done) == 8 * 8


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int) -> None:
    """Whatever the graph: it computes the same, and needs no more than without copies."""
    network = random_network(Random(seed), 60)
    for share in (0.9, 0.7, 0.4):
        limit_bytes = int(network.peak_bytes * share)
        done = rematerialize_segments(network, limit_bytes)
        assert_computes_the_same(done)
        assert peak_bytes(done) == done.peak_bytes <= network.peak_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_plain_rule_keeps_is_kept(seed: int) -> None:
    network = random_training_step(Random(seed), 30)
    plain = sqrt_segments(network)
    assert_computes_the_same(plain)
    limit_bytes = min(peak_bytes(plain), network.peak_bytes)
    done = rematerialize_segments(network, limit_bytes)
    assert_computes_the_same(done)
    assert peak_bytes(done) <= limit_bytes
    if peak_bytes(plain) < network.peak_bytes:
        assert weight(done) <= weight(plain)


def test_most_limits_on_random_steps_are_kept() -> None:
    """A planner that did nothing, or the wrong things, would keep none."""
    kept = 0
    for seed in SEEDS:
        network = random_training_step(Random(seed), 40)
        held_bytes = network.buffer_graph.held_bytes
        limit_bytes = held_bytes + (network.peak_bytes - held_bytes) // 2
        kept += peak_bytes(rematerialize_segments(network, limit_bytes)) <= limit_bytes
    assert kept > 0.8 * len(SEEDS)


def random_training_step(random: Random, count: int) -> Network:
    """A forward part with skips, views, in-place results and fixed nodes, and its way back."""
    steps = [Step("x0", (), -1)]
    fixed = ["x0"]
    for n in range(1, count + 1):
        reads = [f"f{n - 1}" if n > 1 else "x0"]
        if n > 4 and random.random() < 0.2:
            reads.append(f"f{random.randrange(n - 4, n - 1)}")
        reuses = (reads[0],) if n > 1 and random.random() < 0.3 else ()
        scratch_bytes = random.randrange(8) if random.random() < 0.2 else 0
        size_bytes = next(s for s in steps if s.name == reads[0]).size_bytes if reuses else 0
        size_bytes = size_bytes or random.randrange(4, 12)
        steps.append(
            Step(
                f"f{n}",
                tuple(dict.fromkeys(reads)),
                size_bytes,
                scratch_bytes=scratch_bytes,
                reuses=reuses,
            )
        )
        if random.random() < 0.05:
            fixed.append(f"f{n}")
    steps.append(Step(f"g{count}", (f"f{count}",), 6))
    for n in reversed(range(1, count)):
        layer = (f"f{n}",) if random.random() < 0.8 else ()
        steps.append(Step(f"g{n}", (f"g{n + 1}", *layer), 6))
    return network_of(small_graph(steps), fixed=fixed)


def test_the_same_comes_out_again() -> None:
    network = random_training_step(Random(1), 60)
    limit_bytes = network.peak_bytes // 2
    first, second = (rematerialize_segments(network, limit_bytes) for _ in range(2))
    assert first.sequence == second.sequence
    assert first.instructions.origin == second.instructions.origin


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_many_nodes(share: float) -> None:
    network = network_of(chain_graph(10_000))
    done = rematerialize_segments(network, int(network.peak_bytes * share))
    assert peak_bytes(done) <= max(network.peak_bytes * share, network.peak_bytes / 30)
