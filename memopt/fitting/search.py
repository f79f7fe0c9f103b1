"""The search for the largest size that fits, by as few trials as possible."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    ExcessOfEach = Callable[[Sequence[int]], Sequence[float]]
    """By what share each of some sizes, the smallest first, is over what is allowed."""

LARGEST = 1 << 30
"""No larger size is tried; a step whose memory does not depend on it would never end."""

_FINENESS = 32
"""Sizes are told apart to this part of themselves, small ones to one."""
MOST_GROWTH = 2.0
_OVERSHOOT = 1.02
_LEAST_GROWTH = 1.125
_MOST_TRIALS = 200
_BORDER = 0.125
"""What an interpolation keeps from both ends, as a share of what lies between them."""


class Trial(NamedTuple):
    """A size that was tried.

    Attributes:
        size: The size.
        excess: By what share it is over what is allowed; 0 or less if it fits.
    """

    size: int
    excess: float

    @property
    def fits(self) -> bool:
        """Whether it is within what is allowed."""
        return self.excess <= 0


class Grid(NamedTuple):
    """The sizes that are told apart: multiples of a number, of large ones only each so many.

    It does not depend on where a search begins or what it tries, so that all searches of a step
    come to the same size.

    Attributes:
        multiple: All sizes are multiples of this.
        fineness: To which part of themselves sizes are told apart, a power of two.
    """

    multiple: int
    fineness: int

    def at_most(self, size: int, above: int = 0) -> int:
        """The largest size of the grid that is no larger; the next one above another at least."""
        units = size // self.multiple
        return max(
            units // self._step(units) * self._step(units) * self.multiple, self.after(above)
        )

    def after(self, size: int) -> int:
        """The size of the grid that follows one of it, or 0."""
        units = size // self.multiple
        return (units + self._step(units)) * self.multiple

    def _step(self, units: int) -> int:
        """A power of two, so that the grid goes on where it becomes coarser."""
        return 1 << max(0, units.bit_length() - self.fineness.bit_length())


def find_largest(
    excess_of_each: ExcessOfEach,
    guess: int,
    *,
    multiple: int = 1,
    most_growth: float = MOST_GROWTH,
    fineness: int = _FINENESS,
    at_once: int = 1,
) -> int:
    """The largest size that fits, to 1/32 or what else is asked for; 0 if none does.

    Sizes above one that does not fit do not count, if they fit by luck; the size that comes out
    was tried itself. From the guess the search goes up or down, by what was missing or left; what
    lies between a size that fits and one that does not is cut in turns by interpolation and in
    half, so that every two trials halve it at least. Where several sizes are tried at once, they
    cut what lies between in more parts.

    Args:
        excess_of_each: By what share sizes are over what is allowed.
        guess: Where to begin.
        multiple: Sizes are multiples of this.
        most_growth: How much larger than one that fits the next size is at most.
        fineness: To which part of themselves sizes are told apart, small ones to one; a power of
            two.
        at_once: How many sizes are tried at once.
    """
    grid = Grid(multiple, fineness)
    fits: list[Trial] = []
    fails: Trial | None = None
    sizes = _upwards(grid, grid.at_most(guess), most_growth, at_once)
    for number in range(_MOST_TRIALS):
        for trial in map(Trial, sizes, excess_of_each(sizes)):
            if not trial.fits:
                fails = trial
                break
            fits.append(trial)
        low = fits[-1].size if fits else 0
        if fails is None:
            if low >= grid.at_most(LARGEST):
                return low
            growth = _growth(fits, most_growth)
            sizes = _upwards(grid, grid.at_most(round(low * growth), low), growth, at_once)
            continue
        if grid.after(low) >= fails.size:
            return low
        first = _between(fits[-1] if fits else None, fails, grid, halve=number % 2 == 1)
        sizes = _parts(grid, low, first, fails.size, at_once)
    raise AssertionError("the search does not end")


def _growth(fits: Sequence[Trial], most: float) -> float:
    """How much larger to try next: where a line through the last two meets what is allowed."""
    last = fits[-1]
    rise = last.excess - fits[-2].excess if len(fits) > 1 else 0.0
    if rise <= 0:
        return most
    growth = 1 - last.excess / rise * (1 - fits[-2].size / last.size)
    # A bit more: if it does not fit, what is left to look at is small.
    return min(max(growth * _OVERSHOOT, _LEAST_GROWTH), most)


def _upwards(grid: Grid, first: int, growth: float, count: int) -> list[int]:
    """A size and larger ones, as far as there are any."""
    largest = grid.at_most(LARGEST)
    sizes = [min(first, largest)]
    while len(sizes) < count and sizes[-1] < largest:
        last = sizes[-1]
        sizes.append(min(grid.at_most(round(last * growth), last), largest))
    return sizes


def _between(fits: Trial | None, fails: Trial, grid: Grid, *, halve: bool) -> int:
    """A size between one that fits (or none) and one that does not."""
    low = 0 if fits is None else fits.size
    if fits is None:
        # What is needed is near linear in the size.
        share = 0.5 if halve else 1 / (1 + fails.excess)
    else:
        share = 0.5 if halve else -fits.excess / (fails.excess - fits.excess)
    share = min(max(share, _BORDER), 1 - _BORDER)
    size = grid.at_most(low + round(share * (fails.size - low)), low)
    return min(size, grid.at_most(fails.size - 1))


def _parts(grid: Grid, low: int, first: int, high: int, count: int) -> list[int]:
    """A size between two others and more of them, each where the widest gap is left."""
    ends = [low, first, high]
    while len(ends) < count + 2:
        below, above = max(pairwise(ends), key=lambda gap: gap[1] - gap[0])
        middle = grid.at_most((below + above) // 2, below)
        if middle >= above:
            break
        ends = sorted([*ends, middle])
    return ends[1:-1]
