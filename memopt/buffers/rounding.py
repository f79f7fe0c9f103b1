"""Whole numbers rounded up, as kernels share out work and pad what they copy."""

from __future__ import annotations


def divided(amount: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-amount // by)


def round_up(amount: int, multiple: int) -> int:
    """The least multiple that is no less than an amount."""
    return divided(amount, multiple) * multiple
