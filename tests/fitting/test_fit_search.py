"""The search for the largest size: few trials, on the grid, and what comes out was tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memopt.fitting.search import LARGEST, find_largest

if TYPE_CHECKING:
    from collections.abc import Sequence


class Step:
    """A step that needs a fixed part and a part for each unit of its size."""

    def __init__(self, largest: int, *, fixed: float = 0.2) -> None:
        self.largest = largest
        self.fixed = fixed
        self.tried: list[int] = []

    def excess_of_each(self, sizes: Sequence[int]) -> list[float]:
        assert sorted(set(sizes)) == list(sizes)
        assert sizes[0] > 0
        self.tried += sizes
        units = max(self.largest, 0.5)
        return [self.fixed + (1 - self.fixed) * size / units - 1 for size in sizes]


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 200_000), st.integers(1, 300_000), st.sampled_from([1, 3, 8, 64]))
def test_the_largest_is_found_to_a_part_of_itself(largest: int, guess: int, multiple: int) -> None:
    step = Step(largest)
    found = find_largest(step.excess_of_each, guess, multiple=multiple)
    assert found % multiple == 0
    assert found <= largest
    assert found in step.tried or not found
    assert largest - found <= max(multiple, found // 32) + multiple
    assert len(set(step.tried)) == len(step.tried), "no size is tried twice"
    assert all(size % multiple == 0 for size in step.tried)


@settings(deadline=None, derandomize=True)
@given(
    st.integers(0, 200_000),
    st.lists(st.integers(1, 300_000), min_size=2, max_size=2),
    st.sampled_from([1, 3, 8, 64]),
    st.integers(2, 9),
)
def test_it_is_the_same_wherever_the_search_begins_and_however_many_are_tried_at_once(
    largest: int, guesses: list[int], multiple: int, at_once: int
) -> None:
    steps = [Step(largest), Step(largest, fixed=0.7)]
    alone, together = (
        find_largest(step.excess_of_each, guess, multiple=multiple, at_once=count)
        for step, guess, count in zip(steps, guesses, (1, at_once), strict=True)
    )
    assert alone == together


def test_many_at_once_take_few_rounds() -> None:
    rounds = []

    def excess_of_each(sizes: Sequence[int]) -> list[float]:
        rounds.append(len(sizes))
        return [0.0 if size <= 1_000 else 1.0 for size in sizes]

    assert find_largest(excess_of_each, 300, at_once=8) in range(970, 1_001)
    assert len(rounds) <= 3
    assert max(rounds) == 8


@pytest.mark.parametrize("guess", [1, 300, 3000])
def test_a_step_that_is_linear_takes_few_trials(guess: int) -> None:
    step = Step(1000)
    assert find_largest(step.excess_of_each, guess, most_growth=8.0) >= 969
    assert len(step.tried) <= 9


def test_a_coarse_search_takes_fewer_trials() -> None:
    coarse, fine = Step(100_000), Step(100_000)
    found = find_largest(coarse.excess_of_each, 90_000, fineness=4)
    assert 80_000 <= found <= 100_000
    find_largest(fine.excess_of_each, 90_000, fineness=1024)
    assert len(coarse.tried) < len(fine.tried)


def test_nothing_fits() -> None:
    step = Step(0)
    assert find_largest(step.excess_of_each, 100) == 0
    assert step.tried[-1] == 1


def test_a_step_that_needs_no_more_for_more_ends() -> None:
    assert find_largest(lambda sizes: [-0.5 for _ in sizes], 1) == LARGEST


def test_what_is_left_without_a_slope_does_not_stop_the_search() -> None:
    """As with an allowed overhead of nothing: what fits is exactly at the limit."""
    assert find_largest(lambda sizes: [0.0 if size <= 57 else 1.0 for size in sizes], 4) == 57
