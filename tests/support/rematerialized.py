"""Whether a sequence with copies computes what the one without them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import check_sequence

if TYPE_CHECKING:
    from memopt.rematerialization.rematerialized import Rematerialized


def assert_computes_the_same(done: Rematerialized) -> None:
    """Every instruction reads copies of what its origin reads, and everybody waits who must.

    Args:
        done: What an algorithm made of a network.
    """
    check_sequence(done.buffer_graph, done.sequence)
    table = done.instructions
    network = table.network
    graph = network.buffer_graph
    maker = table.maker
    made_at = {b: (node, n) for node, made in enumerate(graph.made) for n, b in enumerate(made)}

    def original(buffer: int) -> object:
        if maker[buffer] < 0:
            return buffer
        return table.origin[maker[buffer]], table.makes[maker[buffer]].index(buffer)

    origins = [table.origin[instruction] for instruction in done.sequence]
    assert set(origins) == set(network.sequence)
    position = {instruction: n for n, instruction in enumerate(done.sequence)}
    first = {table.origin[i]: position[i] for i in reversed(done.sequence)}
    for instruction in done.sequence:
        origin = table.origin[instruction]
        inputs = [table.origin[source] for source in table.inputs[instruction]]
        assert sorted(inputs) == sorted(network.inputs[origin])
        assert all(position[source] < position[instruction] for source in table.inputs[instruction])
        expected = [made_at.get(buffer, buffer) for buffer in graph.read[origin]]
        assert [original(buffer) for buffer in table.reads[instruction]] == expected
        if table.is_view(instruction):
            continue
        for follower in network.followers[origin]:
            assert position[instruction] < first[follower]
    fixed = [node for node, can in enumerate(network.recomputable) if not can]
    assert all(origins.count(node) == 1 for node in fixed if node in first)
    assert done.buffer_graph.held_bytes == graph.held_bytes
