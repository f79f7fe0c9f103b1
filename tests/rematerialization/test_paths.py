"""Path rematerialization: cases by hand, and random networks."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.remat_networks import network_of, random_network
from support.small_buffers import Step, chain_graph, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.rematerialization.paths.algorithm import ALL, NONE, rematerialize_paths
from memopt.rematerialization.paths.clones import Clones
from memopt.rematerialization.paths.cuts import Cuts
from memopt.rematerialization.paths.facts import Facts
from memopt.rematerialization.paths.rounds import Ends, Round
from memopt.rematerialization.paths.usage_ranges import UsageRanges
from memopt.sequencing.depth_first import dfs_sequence, postorder_sequence
from memopt.sequencing.list_order import list_sequence

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.paths.algorithm import Improvements
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.sequencing.precedence import Precedence

SEEDS = range(15)
VARIANTS = {
    "all": ALL,
    "none": NONE,
    "rounds": replace(ALL, segment=False),
    "one each": replace(ALL, segment=False, share=False),
    "published undoing": replace(ALL, close_gaps=False),
}


def lowest(graph: BufferGraph, precedence: Precedence) -> list[int]:
    """XLA's default scheduler."""
    sequencers = (list_sequence, dfs_sequence, postorder_sequence)
    sequences = [sequencer(graph, precedence) for sequencer in sequencers]
    return min(sequences, key=lambda sequence: simulate(graph, sequence).peak_bytes)


def run(
    network: Network, limit_bytes: int, improvements: Improvements = ALL, *, smallest_bytes: int = 0
) -> Rematerialized:
    """Path rematerialization, its result checked."""
    done = rematerialize_paths(
        network,
        limit_bytes,
        make_sequence=lowest,
        smallest_bytes=smallest_bytes,
        improvements=improvements,
    )
    check(network, done)
    return done


def check(network: Network, done: Rematerialized) -> None:
    """Every instruction reads what its node reads, and everybody waits who must."""
    graph, table = done.buffer_graph, done.instructions
    check_sequence(graph, done.sequence)
    timeline = simulate(graph, done.sequence)
    assert timeline.peak_bytes == done.peak_bytes <= network.peak_bytes
    assert graph.held_bytes == network.buffer_graph.held_bytes
    assert {table.origin[i] for i in done.sequence} == set(network.sequence)
    assert set(done.sequence).isdisjoint(done.removed)
    position = {instruction: n for n, instruction in enumerate(done.sequence)}
    original = dict(enumerate(range(len(network.buffer_graph.size_bytes))))
    for copy in range(len(network.buffer_graph.nodes), len(table.origin)):
        assert network.recomputable[table.origin[copy]]
        made = network.buffer_graph.made[table.origin[copy]]
        original.update(zip(table.makes[copy], made, strict=True))
    for instruction in done.sequence:
        node = table.origin[instruction]
        inputs = [table.origin[source] for source in table.inputs[instruction]]
        assert inputs == list(network.inputs[node])
        reads = [original[buffer] for buffer in table.reads[instruction]]
        assert dict.fromkeys(reads) == dict.fromkeys(network.buffer_graph.read[node])
        for buffer in table.reads[instruction]:
            maker = table.maker[buffer]
            assert maker < 0 or position[maker] < position[instruction]
            assert instruction in table.readers[buffer]
        for buffer in table.makes[instruction]:
            for source in table.reusable[buffer]:
                assert source in table.reads[instruction]
    for instruction in done.sequence:
        node = table.origin[instruction]
        if table.is_view(instruction) and instruction != node:
            continue
        for follower in network.followers[node]:
            for after in (follower, *table.copies_of.get(follower, ())):
                assert position.get(after, 1 << 60) > position[instruction]


def names(done: Rematerialized) -> list[str]:
    """What runs; copies with an apostrophe."""
    nodes = done.instructions.network.buffer_graph.nodes
    return [
        nodes[done.instructions.origin[i]].name + "'" * (i >= len(nodes)) for i in done.sequence
    ]


def one_round(network: Network, deepest: int, *, share: bool) -> dict[str, list[str]]:
    """What everybody reads after one round; clones have numbers behind a colon."""
    clones = Clones(Facts(network))
    settled = clones.settle(list(network.sequence))
    free = list(clones.facts.cloneable)
    found = Round(settled, Ends(free, free), set(), set()).clone_paths(deepest, share=share)
    assert found is not None
    count = len(network.buffer_graph.nodes)
    label = [
        network.buffer_graph.nodes[node].name + (f":{i - count}" if i >= count else "")
        for i, node in enumerate(found.origin)
    ]
    running = found.find_running()
    return {
        label[i]: [label[source] for source in inputs]
        for i, inputs in enumerate(found.inputs)
        if running[i]
    }


def chain(layers: int) -> list[Step]:
    """A chain forward, the peak, and the way back."""
    steps = [Step("x", (), -1), Step("f0", ("x",), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(1, layers)]
    steps.append(Step("top", (f"f{layers - 1}",), 16, scratch_bytes=16))
    steps.append(Step(f"b{layers - 1}", ("top", f"f{layers - 1}"), 8))
    steps += [Step(f"b{n}", (f"b{n + 1}", f"f{n}"), 8) for n in reversed(range(layers - 1))]
    return steps


def test_a_path_ends_at_its_depth() -> None:
    """Each user of the chain gets two clones at most, and the second reads an original."""
    network = network_of(small_graph(chain(4)), fixed=("x", "top"))
    reads = one_round(network, 2, share=False)
    # f0 for b0; f1 for b1 with f0; f2 for b2 with f1 that reads f0; f3 for b3 with f2.
    clone = {user: reads[user][-1] for user in ("b0", "b1", "b2", "b3")}
    assert all(":" in name for name in clone.values())
    operand = {user: reads[name][0] for user, name in clone.items()}
    assert operand["b0"] == "x"
    assert [operand[user].split(":")[0] for user in ("b1", "b2", "b3")] == ["f0", "f1", "f2"]
    assert reads[operand["b1"]] == ["x"]
    assert reads[operand["b2"]] == ["f0"]
    assert reads[operand["b3"]] == ["f1"]
    assert len([name for name in reads if ":" in name]) == 7


def test_each_user_gets_its_own_clone_unless_they_are_shared() -> None:
    steps = [
        Step("x", (), -1),
        Step("kept", ("x",), 8),
        Step("top", ("kept",), 32, scratch_bytes=9),
        Step("a", ("kept", "top"), 1),
        Step("b", ("kept", "a"), 1, lasting=True),
    ]
    network = network_of(small_graph(steps), fixed=("x", "top"))
    alone = one_round(network, 10, share=False)
    assert alone["a"][0] != alone["b"][0]
    assert {alone["a"][0], alone["b"][0]} == {"kept:0", "kept:1"}
    shared = one_round(network, 10, share=True)
    assert shared["a"][0] == shared["b"][0] == "kept:0"


def test_a_path_ends_at_what_cannot_run_twice() -> None:
    network = network_of(small_graph(chain(4)), fixed=("x", "top", "f1"))
    reads = one_round(network, 10, share=False)
    assert reads["b1"] == ["b2", "f1"]
    assert reads[reads["b2"][1]] == ["f1"]


def test_views_are_cloned_with_what_they_show_and_cost_no_depth() -> None:
    steps = [
        Step("x", (), -1),
        Step("kept", ("x",), 8),
        Step("view", ("kept",), aliases=True),
        Step("of_x", ("x",), aliases=True),
        Step("top", ("view", "of_x"), 32, scratch_bytes=9),
        Step("end", ("view", "of_x", "top"), 1, lasting=True),
    ]
    network = network_of(small_graph(steps), fixed=("x", "top"))
    reads = one_round(network, 1, share=True)
    assert reads["end"][1] == "of_x"
    assert reads[reads["end"][0]] == ["kept:1"]


def test_what_is_moved_twice_is_left_alone() -> None:
    """`early` is moved behind the first peak; moved behind the second one, it stays there."""
    steps = [
        Step("x", (), -1),
        Step("early", ("x",), 8),
        Step("top", ("x",), 16, scratch_bytes=9),
        Step("end", ("early", "top"), 1, lasting=True),
    ]
    network = network_of(small_graph(steps), fixed=("x", "top", "end"))
    clones = Clones(Facts(network))
    free = list(clones.facts.cloneable)
    ends = Ends(free, free)
    skipped: set[int] = set()
    moved: set[int] = set()
    sequence = list(network.sequence)
    for expected in (4, 5):
        settled = clones.settle(sequence)
        found = Round(settled, ends, skipped, moved).clone_paths(10, share=False)
        assert found is not None
        assert found.find_running() == [True, False, True, True, *[False] * (expected - 4), True]
        assert expected in moved
        # As if the sequencer had put it where the original was.
        clones, sequence = found, [0, expected, 2, 3]
    assert skipped == {5}
    assert Round(clones.settle(sequence), ends, skipped, moved).clone_paths(10, share=False) is None


def test_what_must_be_followed_by_what_has_run_is_left_alone() -> None:
    def steps(writer_at: int) -> list[Step]:
        found = [
            Step("state", (), -1),
            Step("read", ("state",), 8),
            Step("use", ("read",), 1),
            Step("big", ("use",), 16, scratch_bytes=9),
            Step("small", ("big",), 1),
            Step("end", ("read", "small"), 1, lasting=True),
        ]
        found.insert(writer_at, Step("write", (), 0, waits=("read",)))
        return found

    assert not run(network_of(small_graph(steps(3))), 20).copies
    late = names(run(network_of(small_graph(steps(5))), 20))
    assert late.index("read'") < late.index("write") < late.index("end")


def test_small_results_are_left_alone() -> None:
    network = network_of(small_graph(chain(6)), fixed=("x", "top"))
    assert run(network, 40, smallest_bytes=7).copies
    assert not run(network, 40, smallest_bytes=8).copies


def test_paths_go_on_through_small_results() -> None:
    """What is small is cloned for what reads it, and not without that."""
    steps = [
        Step("x", (), -1),
        Step("wide", ("x",), 8),
        Step("small", ("wide",), 2),
        Step("kept", ("small",), 8),
        Step("use", ("kept", "wide"), 2),
        Step("top", ("use",), 16, scratch_bytes=9),
        Step("end", ("kept", "top"), 1, lasting=True),
    ]
    network = network_of(small_graph(steps), fixed=("x", "use", "top"))
    done = run(network, 28, smallest_bytes=2)
    assert done.peak_bytes == 27
    assert [name for name in names(done) if "'" in name] == ["wide'", "small'", "kept'"]
    without = run(network, 28, replace(ALL, through_small=False), smallest_bytes=2)
    assert without.peak_bytes == 29
    assert [name for name in names(without) if "'" in name] == ["kept'"]


def test_segments_are_cut_where_least_crosses() -> None:
    """Eight in four: what is read across the three cuts is kept, and nothing else."""
    network = network_of(small_graph(chain(8)), fixed=("x", "top"))
    settled = Clones(Facts(network)).settle(list(network.sequence))
    kept = Cuts(settled).crossing_buffers(4)
    maker = {b: i for i, made in enumerate(network.buffer_graph.made) for b in made}
    found = sorted(network.buffer_graph.nodes[maker[buffer]].name for buffer in kept)
    assert found == ["f2", "f4"]
    wide = [Step(s.name, s.reads, 9 if s.name == "f3" else s.size_bytes) for s in chain(8)]
    network = network_of(small_graph(wide), fixed=("x", "top"))
    kept = Cuts(Clones(Facts(network)).settle(list(network.sequence))).crossing_buffers(2)
    assert [network.buffer_graph.size_bytes[buffer] for buffer in kept] == [8]


def test_a_chain_keeps_a_limit_of_its_root() -> None:
    """24 layers of 8 bytes: kept in segments they need less than half."""
    network = network_of(small_graph(chain(24)), fixed=("x", "top"))
    assert network.peak_bytes == 24 * 8 + 16 + 16
    done = run(network, 100)
    assert done.peak_bytes <= 100
    assert len(done.copies) <= 24


def test_a_loose_limit_needs_fewer_copies() -> None:
    network = network_of(small_graph(chain(24)), fixed=("x", "top"))
    for improvements in (ALL, replace(ALL, close_gaps=False)):
        copies = [
            len(run(network, network.peak_bytes - room, improvements).copies)
            for room in (100, 60, 20, 0)
        ]
        assert copies == sorted(copies, reverse=True)
        assert copies[0] > copies[2] > copies[3] == 0


@pytest.mark.parametrize("dear", ["a", "b"])
def test_the_most_intense_are_undone_first(dear: str) -> None:
    """There is room for one of two results: the one that is dear stays."""
    steps = [
        Step("x", (), -1),
        Step("a", ("x",), 8),
        Step("use_a", ("a",), 1),
        Step("b", ("x",), 8),
        Step("use_b", ("b",), 1),
        Step("top", ("use_a", "use_b"), 16, scratch_bytes=9),
        Step("end_a", ("a", "top"), 1, lasting=True),
        Step("end_b", ("b", "end_a"), 1, lasting=True),
    ]
    network = network_of(small_graph(steps), fixed=("x", "use_a", "use_b", "top"))
    nodes = network.buffer_graph.nodes
    network = replace(network, intensities=[float(node.name == dear) for node in nodes])
    improvements = replace(ALL, close_gaps=False, segment=False)
    assert network.peak_bytes == 43
    both = run(network, 27, improvements)
    assert both.peak_bytes == 27
    assert {name for name in names(both) if "'" in name} == {"a'", "b'"}
    one = run(network, 35, improvements)
    assert one.peak_bytes == 35
    assert [name for name in names(one) if "'" in name] == ["b'" if dear == "a" else "a'"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed: int, variant: str) -> None:
    random = Random(seed)
    network = random_network(random, 60)
    intensities = [random.random() for _ in network.weights]
    network = replace(network, intensities=intensities)
    for share in (1.0, 0.9, 0.6, 0.3):
        limit_bytes = int(network.peak_bytes * share)
        done = run(network, limit_bytes, VARIANTS[variant])
        again = run(network, limit_bytes, VARIANTS[variant])
        assert again.sequence == done.sequence
        assert again.instructions.inputs == done.instructions.inputs
        if share == 1.0:
            assert not done.copies


def test_most_limits_on_random_networks_are_kept() -> None:
    kept = 0
    for seed in SEEDS:
        network = random_network(Random(seed), 60)
        limit_bytes = int(network.peak_bytes * 0.9)
        kept += run(network, limit_bytes).peak_bytes <= limit_bytes
    assert kept > len(SEEDS) // 3


def test_the_published_algorithm_on_a_short_chain() -> None:
    """Every user gets the whole path, up to the argument, and then as few as the limit allows."""
    network = network_of(small_graph(chain(8)), fixed=("x", "top"))
    assert network.peak_bytes == 8 * 8 + 16 + 16
    low = run(network, 48, NONE)
    assert low.peak_bytes <= 48
    high = run(network, 80, NONE)
    assert 48 < high.peak_bytes <= 80
    assert 0 < len(high.copies) < len(low.copies)


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_of_usage(seed: int) -> None:
    """The tree against a list."""
    random = Random(seed)
    usage = [random.randrange(50) for _ in range(random.randrange(1, 40))]
    ranges = UsageRanges(usage)
    for _ in range(60):
        first, end = sorted(random.randrange(len(usage) + 1) for _ in range(2))
        if random.random() < 0.5:
            size_bytes = random.randrange(9)
            ranges.add(first, end, size_bytes)
            usage[first:end] = [used + size_bytes for used in usage[first:end]]
        assert ranges.most(first, end) == max(usage[first:end], default=0)


@pytest.mark.slow
def test_many_nodes() -> None:
    network = network_of(chain_graph(6_000))
    done = run(network, network.peak_bytes // 5)
    assert done.peak_bytes <= network.peak_bytes // 5
