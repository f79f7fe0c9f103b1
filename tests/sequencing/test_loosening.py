"""Loosening: a sequence comes nearer to what threads prefer, and never needs more than a limit."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_steps import random_graphs
from support.small_buffers import SmallGraph, Step, small_graph

from memopt.buffers.buffer_graph import check_sequence, simulate
from memopt.sequencing.fusions import keep_adjacent
from memopt.sequencing.loosening import loosen

BACKWARD = small_graph(
    [
        Step("x", (), 100),
        Step("y", ("x",), 100),
        Step("gradient_y", ("y",), 20),
        Step("weight_y", ("gradient_y", "y"), 120),
        Step("update_y", ("weight_y",), 1, lasting=True),
        Step("gradient_x", ("gradient_y",), 20),
        Step("weight_x", ("gradient_x", "x"), 50),
        Step("update_x", ("weight_x",), 1, lasting=True),
    ]
)
"""Two layers there and back: the gradients of weights can wait, or come at once."""
LATE = ("x", "y", "gradient_y", "gradient_x", "weight_x", "update_x", "weight_y", "update_y")


def loosened(graph: SmallGraph, names: tuple[str, ...], limit_bytes: int) -> list[str]:
    place = {node.name: number for number, node in enumerate(graph.buffers.nodes)}
    timeline = simulate(graph.buffers, [place[name] for name in names])
    wanted = graph.precedence.program
    return graph.names(loosen(timeline, graph.precedence, wanted, limit_bytes))


@pytest.mark.parametrize(
    ("limit_bytes", "expected"),
    [
        # weight_x needs 290 with weight_y still to come, and weight_y at once 340.
        (340, ["x", "y", "gradient_y", "weight_y", "update_y", "gradient_x"]),
        (339, ["x", "y", "gradient_y", "gradient_x", "weight_x", "weight_y"]),
    ],
)
def test_what_is_put_off_comes_at_once_where_there_is_room(
    limit_bytes: int, expected: list[str]
) -> None:
    found = loosened(BACKWARD, LATE, limit_bytes)
    assert found[: len(expected)] == expected


@settings(max_examples=300, deadline=None)
@given(random_graphs(), st.sampled_from([1.0, 1.1, 2.0, 100.0]), st.integers(0, 1 << 30))
def test_a_loosened_sequence_runs_and_keeps_the_limit(
    graph: SmallGraph, share: float, seed: int
) -> None:
    draw = Random(seed)
    keys = [draw.random() for _ in graph.buffers.nodes]
    pairs = graph.buffers.fused_pairs
    given_sequence, _ = keep_adjacent(graph.precedence, graph.precedence.sorted_by(keys), pairs)
    timeline = simulate(graph.buffers, given_sequence)
    limit_bytes = int(share * timeline.peak_bytes)
    wanted = graph.precedence.program
    found = loosen(timeline, graph.precedence, wanted, limit_bytes)
    assert sorted(found) == sorted(given_sequence)
    check_sequence(graph.buffers, found)
    assert simulate(graph.buffers, found).peak_bytes <= limit_bytes
    for first, second in pairwise(given_sequence):
        if pairs.get(first) == second:
            assert found.index(second) == found.index(first) + 1
    if share == 100.0 and not pairs:
        assert found == wanted
