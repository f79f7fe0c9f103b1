"""The search for the largest size that fits, by as few trials as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def find_largest(
    excess_of: Callable[[int], float],
    guess: int,
    *,
    multiple: int = 1,
    most_growth: float = MOST_GROWTH,
    fineness: int = _FINENESS,
) -> int:
    """The largest size that fits, to 1/32 or what else is asked for; 0 if none does.

    Sizes above one that does not fit do not fit either, nor are they tried; the size that comes out
    was tried itself. From the guess the search goes up or down, by what was missing or left; what
    lies between a size that fits and one that does not is cut in turns by interpolation and in
    half, so that every two trials halve it at least.

    Args:
        excess_of: By what share a size is over what is allowed.
        guess: Where to begin.
        multiple: Sizes are multiples of this.
        most_growth: How much larger than one that fits the next size is at most.
        fineness: To which part of themselves sizes are told apart, small ones to one.
    """
    fits: list[Trial] = []
    fails: Trial | None = None
    size = _on_grid(guess, multiple)
    for number in range(_MOST_TRIALS):
        trial = Trial(size, excess_of(size))
        if trial.fits:
            fits.append(trial)
        else:
            fails = trial
        low = fits[-1].size if fits else 0
        if fails is None:
            if size >= LARGEST:
                return size
            size = min(
                _on_grid(round(low * _growth(fits, most_growth)), multiple, above=low), LARGEST
            )
            continue
        if fails.size - low <= max(multiple, low // fineness):
            return low
        size = _between(fits[-1] if fits else None, fails, multiple, halve=number % 2 == 1)
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


def _between(fits: Trial | None, fails: Trial, multiple: int, *, halve: bool) -> int:
    """A size between one that fits (or none) and one that does not."""
    low = 0 if fits is None else fits.size
    if fits is None:
        # What is needed is near linear in the size.
        share = 0.5 if halve else 1 / (1 + fails.excess)
    else:
        share = 0.5 if halve else -fits.excess / (fails.excess - fits.excess)
    share = min(max(share, _BORDER), 1 - _BORDER)
    size = _on_grid(low + round(share * (fails.size - low)), multiple, above=low)
    return min(size, _on_grid(fails.size - 1, multiple))


def _on_grid(size: int, multiple: int, *, above: int = 0) -> int:
    """The multiple next to a size and not above it, but more than another."""
    return max(size // multiple * multiple, above // multiple * multiple + multiple)
