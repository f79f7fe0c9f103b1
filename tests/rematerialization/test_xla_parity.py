"""XLA's own cases of its rematerialization, on equal graphs of ours with the same bytes.

After xla/service/hlo_rematerialization_test.cc and its test_utils. A called computation is the
scratch memory of the call. What XLA's computation returns is held before the step here, since
XLA's limit counts it from the beginning; parameters count nothing, as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.remat_networks import network_of
from support.small_buffers import Step, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.rematerialization.xla.algorithm import rematerialize

if TYPE_CHECKING:
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

KIB = 1024
VEC = 4 * KIB
RETURNED = -1
"""As a size: there before the step."""


def single_computation() -> Network:
    """MakeRematerializableComputation: 16 KiB at `concat_1`, 12 KiB if `bcast` is recomputed."""
    return network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("reshape", ("param",), 4),
                Step("bcast", ("reshape",), VEC),
                Step("negate", ("bcast",), VEC),
                Step("concat_1", ("negate",), 2 * VEC),
                Step("slice_1", ("concat_1",), 4),
                Step("concat_2", ("bcast", "slice_1"), VEC + 4),
                Step("slice_2", ("concat_2",), 4, lasting=True),
            ]
        ),
        fixed=("param", "slice_2"),
    )


def around_a_while(body_bytes: int) -> Network:
    """MakeRematerializableWhileComputation: a loop that hands on its operand's buffer."""
    return network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("reshape", ("param",), 4),
                Step("bcast", ("reshape",), VEC),
                Step("slice_1", ("bcast",), 4),
                Step("while", ("slice_1",), 0, aliases=True, scratch_bytes=body_bytes),
                Step("concat", ("bcast", "while"), VEC + 4),
                Step("slice_2", ("concat",), 4, lasting=True),
            ]
        ),
        fixed=("param", "while", "slice_2"),
    )


def three_calls() -> Network:
    """InstructionRematerializedMultipleTimes; XLA counts the 4 KiB of `add_4` all the time."""
    return network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("bcast", ("param",), VEC),
                Step("add_1", ("bcast",), VEC),
                Step("call_1", ("add_1",), VEC, scratch_bytes=2 * VEC),
                Step("add_2", ("bcast", "call_1"), VEC),
                Step("call_2", ("add_2",), VEC, scratch_bytes=2 * VEC),
                Step("add_3", ("bcast", "call_2"), VEC),
                Step("call_3", ("add_3",), VEC, scratch_bytes=2 * VEC),
                Step("add_4", ("bcast", "call_3"), RETURNED),
            ]
        ),
        fixed=("param", "call_1", "call_2", "call_3", "add_4"),
        returned_bytes=VEC,
    )


def names(done: Rematerialized) -> list[str]:
    nodes = done.buffer_graph.nodes
    return [nodes[instruction].name for instruction in done.sequence]


def peak_bytes(done: Rematerialized) -> int:
    check_sequence(done.buffer_graph, done.sequence)
    return simulate(done.buffer_graph, done.sequence).peak_bytes


def before_bytes(network: Network) -> int:
    return simulate(network.buffer_graph, network.sequence).peak_bytes


def inputs(done: Rematerialized, name: str) -> list[int]:
    graph = done.instructions.network.buffer_graph
    place = next(n for n, node in enumerate(graph.nodes) if node.name == name)
    return done.instructions.inputs[place]


def test_a_single_computation() -> None:
    """SingleComputation: `bcast` is recomputed just before `concat_2`."""
    network = single_computation()
    done = rematerialize(network, 14 * KIB)
    assert before_bytes(network) // KIB == 16
    assert peak_bytes(done) // KIB == 12
    assert names(done)[-3:] == ["bcast", "concat_2", "slice_2"]
    assert len(done.sequence) == 9


def test_nothing_is_made_again_under_the_limit() -> None:
    """SingleComputationNoRematerialization."""
    network = single_computation()
    done = rematerialize(network, 20 * KIB)
    assert done.block_count == 0
    assert done.sequence == list(network.sequence)


def test_around_a_while() -> None:
    """RematerializeAroundWhile: the body needs 16 KiB, and 4 KiB are live around it."""
    network = around_a_while(16 * KIB)
    done = rematerialize(network, 17 * KIB)
    assert before_bytes(network) // KIB == 20
    assert peak_bytes(done) // KIB == 16
    assert len(done.sequence) == 8
    assert names(done)[-3:] == ["bcast", "concat", "slice_2"]


def test_the_same_instruction_several_times() -> None:
    """InstructionRematerializedMultipleTimes: from 24 KiB to 20 by three more broadcasts."""
    network = three_calls()
    assert before_bytes(network) == 24 * KIB
    done = rematerialize(network, 22 * KIB)
    assert peak_bytes(done) == 20 * KIB
    assert names(done).count("bcast") == 4
    assert len(done.sequence) == 12
    readers = [inputs(done, f"add_{number}")[0] for number in range(2, 5)]
    assert len(set(readers)) == 3
    assert all(reader >= len(network.buffer_graph.nodes) for reader in readers)


def test_random_numbers_are_not_made_again() -> None:
    """RngNotRematerialized: something else is."""
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("rng", ("param",), VEC),
                Step("tanh", ("rng",), VEC),
                Step("exp", ("rng",), VEC),
                Step("add_0", ("rng", "tanh"), VEC),
                Step("inner_1", ("exp", "add_0"), VEC),
                Step("add_1", ("rng", "inner_1"), VEC),
                Step("inner_2", ("tanh", "add_1"), VEC),
                Step("add_2", ("rng", "inner_2"), RETURNED),
            ]
        ),
        fixed=("param", "rng", "add_2"),
        returned_bytes=VEC,
    )
    assert before_bytes(network) == 6 * VEC
    done = rematerialize(network, 4 * VEC)
    assert peak_bytes(done) == 5 * VEC
    assert names(done).count("rng") == 1
    assert len(done.sequence) > 9


def test_what_must_not_run_again_stays_as_it_is() -> None:
    """CopyNotRematerialized: of a copy's two readers, each with one more."""
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("copy", ("param",), VEC),
                Step("negate_a_1", ("copy",), VEC),
                Step("negate_a_2", ("negate_a_1",), RETURNED),
                Step("negate_b_1", ("copy",), VEC),
                Step("negate_b_2", ("negate_b_1",), RETURNED),
            ]
        ),
        fixed=("param", "copy", "negate_a_2", "negate_b_2"),
        returned_bytes=2 * VEC,
    )
    done = rematerialize(network, KIB)
    assert names(done).count("copy") == 1


@pytest.mark.parametrize("indirect", [True, False])
def test_what_is_read_through_a_tuple_is_not_made_again(*, indirect: bool) -> None:
    """IndirectUseNotRematerialized: unless the element taken from the tuple is the other one."""
    element = "bcast" if indirect else "add_2"
    network = network_of(
        small_graph(
            [
                Step("param", (), -1),
                Step("bcast", ("param",), VEC),
                Step("add_1", ("bcast",), VEC),
                Step("call", ("add_1",), VEC, scratch_bytes=2 * VEC),
                Step("add_2", ("bcast", "call"), VEC),
                Step("tuple", ("bcast", "add_2"), 16, aliases=True),
                Step("element", ("tuple",), 0, aliases=True),
                Step("negate", ("element",), RETURNED),
            ]
        ),
        fixed=("param", "call", "negate"),
        only_reads={"element": ("tuple", element), "negate": (element,)},
        returned_bytes=VEC,
    )
    done = rematerialize(network, 22 * KIB)
    assert before_bytes(network) == 24 * KIB
    assert (done.block_count > 0) is not indirect
    assert names(done).count("bcast") == (1 if indirect else 2)
