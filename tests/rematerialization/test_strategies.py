"""Compressing and offloading beside recomputing: XLA's cases, and random graphs."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from support.checked_remat import CheckedCandidates, CheckedTracker, assert_computes_the_same
from support.remat_networks import network_of, random_network
from support.small_buffers import Step, chain_graph, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.rematerialization.storage.compression import Tile, compact_shape, padded_bytes
from memopt.rematerialization.storage.forms import Form, Strategies
from memopt.rematerialization.xla import algorithm as walk
from memopt.rematerialization.xla.algorithm import rematerialize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

    Shaped = tuple[Network, dict[int, list[Form]]]

KIB = 1024
MINOR_TO_64 = Tile(1, 64)
"""XLA's ShapeSizePadMinorTo64."""
SEEDS = range(30)


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "MemoryUsageTracker", CheckedTracker)
    monkeypatch.setattr(walk, "Candidates", CheckedCandidates)


def shaped(operations: Sequence[tuple[str, tuple[str, ...], tuple[int, ...]]]) -> Shaped:
    """A computation of float32 results of some shapes as XLA's test pads and compresses it."""
    steps = [Step("param", (), -1)]
    forms: dict[int, list[Form]] = {}
    for name, reads, shape in operations:
        size_bytes = padded_bytes(shape, 4, MINOR_TO_64)
        compact_bytes = padded_bytes(compact_shape(shape, MINOR_TO_64), 4, MINOR_TO_64)
        if compact_bytes < size_bytes:
            forms[len(steps)] = [Form("transpose", compact_bytes)]
        steps.append(Step(name, reads, size_bytes))
    last = steps[-1]
    steps[-1] = last._replace(lasting=True)
    return network_of(small_graph(steps), fixed=("param", last.name)), forms


def compress(
    network: Network,
    forms: Mapping[int, Sequence[Form]],
    limit_bytes: int,
    *,
    smallest_bytes: int = 0,
) -> Rematerialized:
    done = rematerialize(
        network,
        limit_bytes,
        smallest_bytes=smallest_bytes,
        strategies=Strategies(recompute=False, forms=forms),
    )
    check_sequence(done.buffer_graph, done.sequence)
    assert_computes_the_same(done.instructions, done)
    return done


def described(done: Rematerialized) -> list[str]:
    """What runs, in order: `>name` stores a result, `<name` restores it."""
    found = []
    for instruction in done.sequence:
        conversion = done.instructions.conversions.get(instruction)
        sign = "" if conversion is None else "<" if conversion.restores else ">"
        found.append(sign + done.buffer_graph.nodes[instruction].name)
    return found


def peak_bytes(done: Rematerialized) -> int:
    return simulate(done.buffer_graph, done.sequence).peak_bytes


def before_bytes(network: Network) -> int:
    return simulate(network.buffer_graph, network.sequence).peak_bytes


def readers_of_restored(done: Rematerialized) -> list[list[str]]:
    """For each result that is restored the names of those who read it."""
    table = done.instructions
    return [
        [done.buffer_graph.nodes[user].name for user in table.readers[table.makes[i][0]]]
        for i, conversion in table.conversions.items()
        if conversion.restores
    ]


def test_what_xla_compresses() -> None:
    """f32[64,2] takes 16 KiB where the minor dimension is padded to 64, and 512 bytes turned."""
    assert padded_bytes((64, 2), 4, MINOR_TO_64) == 16 * KIB
    assert compact_shape((64, 2), MINOR_TO_64) == (2, 64)
    assert padded_bytes((2, 64), 4, MINOR_TO_64) == 512


def single_result(*others: tuple[str, tuple[str, ...], tuple[int, ...]]) -> Shaped:
    """A large result that is needed again after another one, and others that are needed last."""
    return shaped(
        [
            ("broadcast_0", ("param",), (64, 2)),
            *others,
            ("reduce_0", ("broadcast_0",), ()),
            ("negate", ("reduce_0",), (64, 2)),
            ("reduce_1", ("negate",), ()),
            ("reduce_2", ("broadcast_0",), ()),
            ("add", ("reduce_1", "reduce_2", *(other[0] for other in others)), ()),
        ]
    )


def test_a_single_result() -> None:
    """CompressingRematerializationTest.SingleRemat: 512 bytes are kept instead of 16 KiB."""
    network, forms = single_result()
    assert before_bytes(network) == 32 * KIB + 4
    done = compress(network, forms, 30 * KIB)
    assert peak_bytes(done) == 16 * KIB + 512 + 4
    assert described(done)[1:] == [
        "broadcast_0", "reduce_0", ">broadcast_0", "negate", "reduce_1", "<broadcast_0",
        "reduce_2", "add",
    ]  # fmt: skip


def test_small_results_are_left_alone() -> None:
    """CompressingRematerializationTest.OnlyRematBigBuffer."""
    network, forms = single_result(("broadcast_1", ("param",), (10, 2)))
    both = compress(network, forms, 19 * KIB)
    assert sorted(readers_of_restored(both)) == [["add"], ["reduce_2"]]
    large = compress(network, forms, 19 * KIB, smallest_bytes=10 * KIB)
    assert readers_of_restored(large) == [["reduce_2"]]


def test_what_would_raise_the_peak_is_left_alone() -> None:
    """CompressingRematerializationTest.AvoidPathologicalCompress."""
    network, forms = shaped(
        [
            ("broadcast_0", ("param",), (63, 60)),
            ("broadcast_1", ("param",), (16, 64)),
            ("reduce_0", ("broadcast_1",), ()),
            ("reduce_1", ("broadcast_0",), ()),
            ("add", ("reduce_0", "reduce_1"), ()),
        ]
    )
    assert [form.size_bytes for form in forms[1]] == [60 * 64 * 4]
    assert compress(network, forms, 16 * KIB).block_count == 0


def test_what_is_large_while_it_is_read_last_is_left_alone() -> None:
    """SingleRemat as XLA has it: right after `negate` both are there, and the turned one would be.

    XLA turns `broadcast_0` right after it is made, so that `negate` runs beside both of them.
    """
    network, forms = shaped(
        [
            ("broadcast_0", ("param",), (64, 2)),
            ("negate", ("broadcast_0",), (64, 2)),
            ("reduce_0", ("negate",), ()),
            ("reduce_1", ("broadcast_0",), ()),
            ("add", ("reduce_0", "reduce_1"), ()),
        ]
    )
    assert before_bytes(network) == 32 * KIB + 4
    assert compress(network, forms, 30 * KIB).block_count == 0


def test_all_readers_have_the_same_copy() -> None:
    """CompressingRematerializationTest.AllUsersUseSameCopy."""
    network, forms = shaped(
        [
            ("broadcast_0", ("param",), (64, 2)),
            ("reduce_0", ("broadcast_0",), ()),
            ("negate", ("reduce_0",), (64, 2)),
            ("reduce_1", ("negate",), ()),
            ("reduce_2", ("broadcast_0",), ()),
            ("add", ("reduce_1", "reduce_2"), ()),
            ("reduce_3", ("broadcast_0",), ()),
            ("add_2", ("add", "reduce_3"), ()),
        ]
    )
    done = compress(network, forms, 30 * KIB)
    assert readers_of_restored(done) == [["reduce_2", "reduce_3"]]


def kept_over_a_peak(weight: int = 1) -> Network:
    """16 KiB kept while as much is needed twice, and 8 KiB that can be recomputed at a weight."""
    graph = small_graph(
        [
            Step("param", (), -1),
            Step("kept", ("param",), 16 * KIB),
            Step("use", ("kept",), 4),
            Step("big", ("use",), 16 * KIB),
            Step("small", ("big",), 4),
            Step("end", ("kept", "small"), 4, lasting=True),
        ]
    )
    network = network_of(graph, fixed=("param", "end"))
    return replace(network, weights=[1, weight, 1, 1, 1, 1])


def test_the_lower_cost_decides_between_strategies() -> None:
    """Offloading reduces as much as recomputing does; compressing reduces half of it."""
    half, host = Form("half", 8 * KIB, 2, 1), Form("host", 0, 3, 1, stays=True)
    expected = {1: "kept", 4: ">kept", 6: ">kept"}
    for weight, name in expected.items():
        strategies = Strategies(forms={1: [half, host]})
        done = rematerialize(kept_over_a_peak(weight), 28 * KIB, strategies=strategies)
        assert described(done).count(name) == (2 if name == "kept" else 1), weight
    methods = [c.form.method for c in done.instructions.conversions.values()]
    assert methods == ["host", "host"]
    cheap = half._replace(weight=1)
    done = rematerialize(
        kept_over_a_peak(6), 28 * KIB, strategies=Strategies(forms={1: [cheap, host]})
    )
    assert {c.form.method for c in done.instructions.conversions.values()} == {"half"}
    assert peak_bytes(done) == 24 * KIB + 4


def test_what_the_plan_costs() -> None:
    """Both ways of what is stored, or the weight of what is recomputed."""
    forms = {1: [Form("half", 8 * KIB, 5, 2)]}
    stored = rematerialize(kept_over_a_peak(20), 28 * KIB, strategies=Strategies(forms=forms))
    again = rematerialize(kept_over_a_peak(20), 28 * KIB)
    assert (stored.added_weight, again.added_weight) == (5, 20)


def test_modes_are_kept_apart() -> None:
    """Compress only makes nothing again, recompute only stores nothing."""
    forms = {1: [Form("half", 8 * KIB)]}
    network = kept_over_a_peak()
    compressed = rematerialize(network, 28 * KIB, strategies=Strategies(False, forms))
    again = rematerialize(network, 28 * KIB)
    neither = rematerialize(network, 28 * KIB, strategies=Strategies(recompute=False))
    assert (len(compressed.copies), len(compressed.stored)) == (0, 1)
    assert (len(again.copies), len(again.stored)) == (1, 0)
    assert neither.block_count == 0
    assert done_bytes(compressed) == 24 * KIB + 4
    assert done_bytes(again) == 16 * KIB + 8


def done_bytes(done: Rematerialized) -> int:
    assert peak_bytes(done) <= done.peak_bytes
    return peak_bytes(done)


def test_what_lies_on_the_host_comes_back_as_often_as_needed() -> None:
    """Between its uses it is dropped, and brought back from the same copy."""
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("kept", ("param",), 8),
                Step("big_1", ("param",), 20),
                Step("small_1", ("big_1",), 1),
                Step("use_1", ("kept", "small_1"), 1),
                Step("big_2", ("use_1",), 20),
                Step("small_2", ("big_2",), 1),
                Step("use_2", ("kept", "small_2"), 1),
                Step("big_3", ("use_2",), 20),
                Step("small_3", ("big_3",), 1),
                Step("end", ("kept", "small_3"), 1, lasting=True),
            ]
        ),
        fixed=[f"big_{number}" for number in range(1, 4)],
    )
    host = Form("host", 0, stays=True)
    done = rematerialize(network, 25, strategies=Strategies(False, {1: [host]}))
    assert described(done).count(">kept") == 1
    assert described(done).count("<kept") == 3
    assert done_bytes(done) <= 25
    half = Form("half", 4)
    once = rematerialize(network, 25, strategies=Strategies(False, {1: [half]}))
    assert described(once).count(">kept") == described(once).count("<kept") == 1


def test_a_result_that_is_read_through_a_view_is_restored_behind_a_new_view() -> None:
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("kept", ("param",), 8),
                Step("view", ("kept",), aliases=True),
                Step("use", ("view",), 1),
                Step("big", ("use",), 16),
                Step("small", ("big",), 1),
                Step("end", ("view", "small"), 1, lasting=True),
            ]
        ),
        fixed=("param", "kept", "end"),
    )
    done = rematerialize(network, 20, strategies=Strategies(forms={1: [Form("host", 0)]}))
    assert described(done)[1:] == [
        "kept", "view", "use", ">kept", "big", "small", "<kept", "view", "end"
    ]  # fmt: skip
    assert done_bytes(done) == 17


def random_forms(random: Random, network: Network) -> dict[int, list[Form]]:
    """Forms for many nodes that make one buffer."""
    graph = network.buffer_graph
    found: dict[int, list[Form]] = {}
    for node, made in enumerate(graph.made):
        if len(made) != 1 or random.random() < 0.3:
            continue
        size_bytes = graph.size_bytes[made[0]]
        weight = random.randrange(1, 8)
        forms = [Form("compress", random.randrange(size_bytes), weight, 1)]
        if random.random() < 0.5:
            forms.append(Form("host", 0, 2 * weight, weight, stays=True))
        found[node] = forms
    return found


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_count_on_random_graphs(seed: int, *, recompute: bool) -> None:
    """What is counted is what there is, and the simulated peak is never above the walk's."""
    random = Random(seed)
    network = random_network(random, 40)
    strategies = Strategies(recompute, random_forms(random, network))
    ordinary_bytes = before_bytes(network)
    for share in (0.9, 0.7, 0.5):
        limit_bytes = int(ordinary_bytes * share)
        done = rematerialize(network, limit_bytes, largest_block=4, strategies=strategies)
        check_sequence(done.buffer_graph, done.sequence)
        assert_computes_the_same(done.instructions, done)
        assert peak_bytes(done) <= done.peak_bytes
        assert done.buffer_graph.held_bytes == network.buffer_graph.held_bytes
        assert recompute or not done.copies or all(map(done.instructions.is_view, done.copies))


def test_more_strategies_keep_more_limits() -> None:
    """A walk that stored nothing, or the wrong things, would not."""
    kept = [0, 0]
    for seed in range(60):
        random = Random(seed)
        network = random_network(random, 40)
        forms = random_forms(random, network)
        limit_bytes = int(before_bytes(network) * 0.85)
        for way, strategies in enumerate((Strategies(), Strategies(forms=forms))):
            done = rematerialize(network, limit_bytes, largest_block=4, strategies=strategies)
            kept[way] += peak_bytes(done) <= limit_bytes
    assert kept[1] > kept[0] + 5


def test_a_chain_goes_to_the_host() -> None:
    """Of what a long way forward leaves for the way back next to nothing has to stay."""
    network = network_of(chain_graph(400))
    forms = {node: [Form("host", 0, stays=True)] for node in range(200)}
    done = rematerialize(network, 80, strategies=Strategies(recompute=False, forms=forms))
    assert before_bytes(network) > 1600
    assert done_bytes(done) <= 80


@pytest.mark.slow
def test_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    network = network_of(chain_graph(20_000))
    forms = [Form("host", 0, 3, 2, stays=True), Form("half", 4, 2)]
    strategies = Strategies(forms=dict.fromkeys(range(10_000), forms))
    limit_bytes = network.peak_bytes // 5
    done = rematerialize(network, limit_bytes, largest_block=8, strategies=strategies)
    assert peak_bytes(done) <= limit_bytes
