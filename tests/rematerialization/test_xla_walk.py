"""The walk on random graphs, each count checked against one made from scratch."""

from __future__ import annotations

from random import Random

import pytest
from support.checked_remat import CheckedCandidates, CheckedTracker, assert_computes_the_same
from support.remat_networks import network_of, random_network
from support.small_buffers import Step, chain_graph, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.rematerialization.xla import algorithm as walk
from memopt.rematerialization.xla.algorithm import Walk, rematerialize
from memopt.rematerialization.xla.peak_priority import rematerialize_peaks

SEEDS = range(30)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MemoryUsageTracker", CheckedTracker)
    monkeypatch.setattr(walk, "Candidates", CheckedCandidates)


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("largest_block", [1, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_count_on_random_graphs(seed: int, largest_block: int) -> None:
    """What is counted is what there is, and the simulated peak is never above the walk's."""
    random = Random(seed)
    network = random_network(random, 40)
    before_bytes = simulate(network.buffer_graph, network.sequence).peak_bytes
    for share in (0.9, 0.7, 0.5):
        limit_bytes = int(before_bytes * share)
        done = rematerialize(network, limit_bytes, largest_block=largest_block)
        graph = done.buffer_graph
        check_sequence(graph, done.sequence)
        assert_computes_the_same(done.instructions, done)
        assert simulate(graph, done.sequence).peak_bytes <= done.peak_bytes
        assert graph.held_bytes == network.buffer_graph.held_bytes
        fixed = [node for node, free in enumerate(network.recomputable) if not free]
        origins = [done.instructions.origin[i] for i in done.sequence]
        assert all(origins.count(node) == 1 for node in fixed)


@pytest.mark.usefixtures("checked")
def test_without_copies_the_walk_counts_what_is_simulated() -> None:
    for seed in SEEDS:
        network = random_network(Random(seed), 60)
        simulated = simulate(network.buffer_graph, network.sequence)
        done = rematerialize(network, simulated.peak_bytes)
        assert done.block_count == 0
        assert done.peak_bytes == simulated.peak_bytes


def test_most_limits_on_random_graphs_are_kept() -> None:
    """A walk that did nothing, or the wrong things, would keep none."""
    kept = tried = 0
    for seed in SEEDS:
        network = random_network(Random(seed), 60)
        before_bytes = simulate(network.buffer_graph, network.sequence).peak_bytes
        limit_bytes = int(before_bytes * 0.9)
        done = rematerialize(network, limit_bytes, largest_block=4)
        tried += 1
        kept += simulate(done.buffer_graph, done.sequence).peak_bytes <= limit_bytes
    assert kept > tried // 3


def test_a_chain_in_place_needs_blocks() -> None:
    """The sum is taken over by what comes after it: recomputed alone it would have to live on."""
    layers = 6
    steps = [Step("x0", (), -1)]
    for n in range(layers):
        steps += [
            Step(f"product{n}", (f"x{n}",), 8),
            Step(f"x{n + 1}", (f"product{n}",), 8, reuses=(f"product{n}",)),
        ]
    steps.append(Step(f"g{layers}", (f"x{layers}",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"x{n}"), 8) for n in reversed(range(layers))]
    network = network_of(small_graph(steps), fixed=("x0",))
    before_bytes = simulate(network.buffer_graph, network.sequence).peak_bytes
    assert before_bytes == (layers + 2) * 8 - 8
    alone = rematerialize(network, 40)
    together = rematerialize(network, 40, largest_block=8)
    assert simulate(alone.buffer_graph, alone.sequence).peak_bytes > 40
    assert simulate(together.buffer_graph, together.sequence).peak_bytes <= 40


def test_what_follows_an_instruction_follows_its_copies() -> None:
    """A writer that has run keeps a reader of the state from being recomputed."""

    def steps(writer_at: int) -> list[Step]:
        found = [
            Step("state", (), -1),
            Step("read", ("state",), 8),
            Step("use", ("read",), 1),
            Step("big", ("use",), 16),
            Step("small", ("big",), 1),
            Step("end", ("read", "small"), 1, lasting=True),
        ]
        found.insert(writer_at, Step("write", (), 0, waits=("read",)))
        return found

    early = rematerialize(network_of(small_graph(steps(3))), 20)
    late = rematerialize(network_of(small_graph(steps(5))), 20)
    assert early.block_count == 0
    assert late.block_count == 1
    names = [late.buffer_graph.nodes[i].name for i in late.sequence]
    assert names == ["state", "read", "use", "big", "small", "read", "write", "end"]


def test_small_results_are_left_alone() -> None:
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("kept", ("param",), 8),
                Step("use", ("kept",), 1),
                Step("big", ("use",), 16),
                Step("small", ("big",), 1),
                Step("end", ("kept", "small"), 1, lasting=True),
            ]
        )
    )
    assert rematerialize(network, 20, smallest_bytes=7).block_count == 1
    assert rematerialize(network, 20, smallest_bytes=8).block_count == 0


def test_what_is_moved_leaves_nothing_behind() -> None:
    """Nobody has read `early` when memory runs out: it is made later instead of twice."""
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("early", ("param",), 8),
                Step("big", ("param",), 16),
                Step("small", ("big",), 1),
                Step("end", ("early", "small"), 1, lasting=True),
            ]
        )
    )
    done = rematerialize(network, 20)
    names = [done.buffer_graph.nodes[i].name for i in done.sequence]
    assert names == ["param", "big", "small", "early", "end"]
    assert done.removed == [1]


@pytest.mark.slow
@pytest.mark.parametrize(("largest_block", "share"), [(1, 0.6), (8, 0.2)])
def test_many_nodes(largest_block: int, share: float) -> None:
    network = network_of(chain_graph(20_000))
    peak_bytes = simulate(network.buffer_graph, network.sequence).peak_bytes
    done = rematerialize(network, int(peak_bytes * share), largest_block=largest_block)
    assert done.block_count > 0
    assert simulate(done.buffer_graph, done.sequence).peak_bytes < peak_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_one_peak_after_the_other_gives_a_sequence_that_can_run(seed: int) -> None:
    network = random_network(Random(seed), 40)
    held_bytes = network.buffer_graph.held_bytes
    limit_bytes = held_bytes + (network.peak_bytes - held_bytes) * 6 // 10
    done = rematerialize_peaks(network, Walk(limit_bytes, largest_block=4))
    check_sequence(done.buffer_graph, done.sequence)
    assert done.peak_bytes >= simulate(done.buffer_graph, done.sequence).peak_bytes


def test_only_the_peak_is_looked_at_while_it_is_the_peak() -> None:
    """A walk with the same limit makes more again: it is over it at other places too."""
    network = network_of(chain_graph(24))
    held_bytes = network.buffer_graph.held_bytes
    limit_bytes = held_bytes + (network.peak_bytes - held_bytes) * 9 // 10
    peaks = rematerialize_peaks(network, Walk(limit_bytes))
    assert simulate(peaks.buffer_graph, peaks.sequence).peak_bytes <= limit_bytes
    assert 0 < len(peaks.copies) <= len(rematerialize(network, limit_bytes).copies)
