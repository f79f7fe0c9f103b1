"""The search for the largest size: few trials, on the grid, and what comes out was tried."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memopt.fitting.search import LARGEST, find_largest


class Step:
    """A step that needs a fixed part and a part for each unit of its size."""

    def __init__(self, largest: int, *, fixed: float = 0.2) -> None:
        self.largest = largest
        self.fixed = fixed
        self.tried: list[int] = []

    def excess(self, size: int) -> float:
        assert size > 0
        self.tried.append(size)
        needed = self.fixed + (1 - self.fixed) * size / max(self.largest, 0.5)
        return needed - 1


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 200_000), st.integers(1, 300_000), st.sampled_from([1, 3, 8, 64]))
def test_the_largest_is_found_to_a_part_of_itself(largest: int, guess: int, multiple: int) -> None:
    step = Step(largest)
    found = find_largest(step.excess, guess, multiple=multiple)
    assert found % multiple == 0
    assert found <= largest
    assert found in step.tried or not found
    assert largest - found <= max(multiple, found // 32) + multiple
    assert len(set(step.tried)) == len(step.tried), "no size is tried twice"
    assert all(size % multiple == 0 for size in step.tried)


@pytest.mark.parametrize("guess", [1, 300, 3000])
def test_a_step_that_is_linear_takes_few_trials(guess: int) -> None:
    step = Step(1000)
    assert find_largest(step.excess, guess, most_growth=8.0) >= 969
    assert len(step.tried) <= 9


def test_a_coarse_search_takes_fewer_trials() -> None:
    coarse, fine = Step(100_000), Step(100_000)
    found = find_largest(coarse.excess, 90_000, fineness=4)
    assert 80_000 <= found <= 100_000
    find_largest(fine.excess, 90_000, fineness=1024)
    assert len(coarse.tried) < len(fine.tried)


def test_nothing_fits() -> None:
    step = Step(0)
    assert find_largest(step.excess, 100) == 0
    assert step.tried[-1] == 1


def test_a_step_that_needs_no_more_for_more_ends() -> None:
    assert find_largest(lambda _: -0.5, 1) == LARGEST


def test_what_is_left_without_a_slope_does_not_stop_the_search() -> None:
    """As with an allowed overhead of nothing: what fits is exactly at the limit."""
    assert find_largest(lambda size: 0.0 if size <= 57 else 1.0, 4) == 57
