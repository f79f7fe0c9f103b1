"""Integers that are known before a step: counters of loops and their tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.graph.graph import Node


_MOST_TURNS = 1 << 40
"""A loop that takes more does not end."""


def count_turns(goes_on: Callable[[int], bool]) -> int:
    """How often a loop runs whose test says yes once; 0 where it does not end.

    Args:
        goes_on: Whether the test says yes again after so many turns.
    """
    beyond = 1
    while beyond <= _MOST_TURNS and goes_on(beyond):
        beyond *= 2
    if beyond > _MOST_TURNS:
        return 0
    within = beyond // 2
    while beyond - within > 1:
        middle = (within + beyond) // 2
        if goes_on(middle):
            within = middle
        else:
            beyond = middle
    return beyond


def known_number(node: Node, numbers: Sequence[int | None]) -> int | None:
    """What a node makes of known integers: counters of loops and their tests."""
    if not numbers or numbers[0] is None:
        return None
    one = numbers[0]
    if node.op in _KEEPS:
        return one
    other = numbers[1] if len(numbers) > 1 else None
    compute = _COMPUTES.get(node.op)
    return None if compute is None or other is None else compute(one, other)


_KEEPS = frozenset(
    "Identity Max Min Reshape Cast Squeeze Enter Exit NextIteration Switch LoopCond".split()
)

_COMPUTES: dict[str, Callable[[int, int], int]] = {
    "Add": lambda one, other: one + other,
    "AddV2": lambda one, other: one + other,
    "Sub": lambda one, other: one - other,
    "Minimum": min,
    "Maximum": max,
    "Less": lambda one, other: int(one < other),
    "LessEqual": lambda one, other: int(one <= other),
    "Greater": lambda one, other: int(one > other),
    "GreaterEqual": lambda one, other: int(one >= other),
    "LogicalAnd": lambda one, other: int(bool(one) and bool(other)),
    "LogicalOr": lambda one, other: int(bool(one) or bool(other)),
}
