"""The minimum cut is the least of all cuts, with compiled loops and without."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.both_ways import assert_same_without_compiler

from memopt.planning.minimum_cut import NO_LIMIT, SINK, SOURCE, FlowNetwork

NODES = 7
ARCS = st.lists(
    st.tuples(
        st.integers(0, NODES - 1),
        st.integers(0, NODES - 1),
        st.one_of(st.integers(0, 9), st.just(1 << 50)),
    ).filter(lambda arc: arc[0] != arc[1]),
    min_size=1,
    max_size=20,
)


def cut_of(arcs: list[tuple[int, int, int]]) -> tuple[int, list[bool]]:
    tails, heads, capacities = np.array(arcs, np.int64).T
    cut, side = FlowNetwork.of(NODES, tails, heads).minimum_cut(capacities)
    return cut, side.tolist()


def across(arcs: list[tuple[int, int, int]], side: list[bool]) -> int:
    """What leads out of a side."""
    return sum(capacity for tail, head, capacity in arcs if side[tail] and not side[head])


@settings(max_examples=300, deadline=None)
@given(ARCS)
def test_no_other_cut_is_less(arcs: list[tuple[int, int, int]]) -> None:
    cut, side = cut_of(arcs)
    assert side[SOURCE]
    assert not side[SINK]
    assert across(arcs, side) == cut
    others = product([False, True], repeat=NODES - 2)
    assert cut == min(across(arcs, [True, False, *other]) for other in others)


def test_arcs_without_a_limit_are_not_cut() -> None:
    arcs = [(SOURCE, 2, NO_LIMIT), (2, 3, 5), (2, 4, 3), (3, SINK, NO_LIMIT), (4, SINK, NO_LIMIT)]
    assert cut_of(arcs) == (8, [True, False, True, False, False, False, False])


def test_without_a_compiler_it_is_the_same() -> None:
    assert_same_without_compiler(
        "import numpy as np\n"
        "from memopt.compilation.jit import IS_COMPILED\n"
        "from memopt.planning.minimum_cut import FlowNetwork\n"
        "random = np.random.default_rng(1)\n"
        "tails, heads, capacities = random.integers(0, 30, (3, 200))\n"
        "cut, side = FlowNetwork.of(30, tails, heads).minimum_cut(capacities)\n"
        "print(IS_COMPILED, cut, side.tolist())\n"
    )
