"""A lower bound on the cost at a budget: what one moment asks for, with all that this takes.

While an operation runs for the first time, what was computed before and is read by something that
comes after it is in use, or is computed again afterwards. What is computed again reads its
operands, which are in use as well at that moment, or are computed again themselves. So there is a
choice for each value, in use or had again: what is in use must fit in the budget, the other costs.
At a price for each byte in use the best choice is a minimum cut; the bound is that at the price
with which it is highest (Lagrange), as good as all that linear programming tells of a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memopt.planning.minimum_cut import NO_LIMIT, SINK, SOURCE, FlowNetwork

if TYPE_CHECKING:
    from memopt.planning.arrays import IntArray
    from memopt.planning.problem import Problem

_HIGHEST = 1 << 58
"""Of all capacities together that a price gives."""
_FINE = 1 << 50
"""Of all costs together as capacities, so that prices are whole numbers and yet fine."""
_ROUNDS = 30
_HIGHER = 4
_NODES_AT_ENDS = 2


class _Choice(NamedTuple):
    """What is best at some price.

    Attributes:
        bound: What any choice within the budget costs at least.
        cost: What is had again costs that much.
        held_bytes: What is in use has that many.
    """

    bound: int
    cost: int
    held_bytes: int

    def is_at(self, other: _Choice) -> bool:
        """Whether it is the same choice."""
        return (self.cost, self.held_bytes) == (other.cost, other.held_bytes)


class Moment:
    """What has to be in use or had again when an operation runs for the first time.

    Args:
        problem: What is planned.
        is_earlier: By operation: whether it comes before that one in any case.
        is_later: By operation: whether it comes after it in any case.
        read: The values that the operation reads, which are in use anyway.
        room_bytes: What may be in use besides its working set.
    """

    def __init__(
        self,
        problem: Problem,
        is_earlier: np.ndarray,
        is_later: np.ndarray,
        read: IntArray,
        room_bytes: int,
    ) -> None:
        self._room_bytes = room_bytes
        earlier = np.flatnonzero(is_earlier)
        values = np.flatnonzero(is_earlier[problem.value_op])
        again = np.full(len(problem.cost), -1, np.int64)
        again[earlier] = _NODES_AT_ENDS + np.arange(len(earlier))
        swapped = earlier[problem.swap_cost[earlier] > 0]
        returned = again.copy()
        returned[swapped] = again.max(initial=_NODES_AT_ENDS - 1) + 1 + np.arange(len(swapped))
        wanted = np.full(len(problem.size), -1, np.int64)
        wanted[values] = returned.max(initial=_NODES_AT_ENDS - 1) + 1 + np.arange(len(values))
        needed = values[_reads_later(problem, is_later)[values]]
        bytes_in_use = problem.size.copy()
        bytes_in_use[read] = 0
        counts = np.diff(problem.input_start)
        all_readers = np.repeat(np.arange(len(counts)), counts)
        operands = is_earlier[all_readers]
        readers = all_readers[operands]
        self._ends = wanted[values], returned[problem.value_op[values]]
        # What is had again costs, and wants its operands; what is wanted is in use or had again.
        arcs = [
            (again[earlier], np.full(len(earlier), SINK)),
            (again[readers], wanted[problem.input_value[operands]]),
            (np.full(len(needed), SOURCE), wanted[needed]),
            (returned[swapped], again[swapped]),
            self._ends,
        ]
        tails, heads = (np.concatenate(ends) for ends in zip(*arcs, strict=True))
        nodes = int(max(wanted.max(initial=1), returned.max(initial=1))) + 1
        self._network = FlowNetwork.of(nodes, tails, heads)
        is_single = problem.single[earlier] == 1
        costs = np.where(is_single, 0, problem.cost[earlier])
        # As floating point: whole numbers of 53 bits each may add up to more than 64.
        total = costs.sum(dtype=np.float64) + problem.swap_cost[swapped].sum(dtype=np.float64)
        self._scale = max(1, int(_FINE / max(1.0, total)))
        self._fixed = np.concatenate(
            [
                np.where(is_single, NO_LIMIT, costs * self._scale),
                np.full(len(readers) + len(needed), NO_LIMIT),
                problem.swap_cost[swapped] * self._scale,
            ]
        )
        self._bytes = bytes_in_use[values]
        self._needed_bytes = int(bytes_in_use[needed].sum())

    def extra_cost(self, first_price: float) -> int:
        """What every plan costs at least on top of computing everything once.

        Args:
            first_price: Of a byte, in the unit of costs, from which the search starts.
        """
        low = _Choice(0, 0, self._needed_bytes)
        if low.held_bytes <= self._room_bytes:
            return 0
        highest = _HIGHEST // max(1, int(self._bytes.sum()))
        price = min(max(1, int(first_price * self._scale)), highest)
        high = self._choose(price)
        bound = high.bound
        while high.held_bytes > self._room_bytes and price < highest:
            low, price = high, min(price * _HIGHER, highest)
            high = self._choose(price)
            bound = max(bound, high.bound)
        for _ in range(_ROUNDS):
            if high.held_bytes > self._room_bytes or low.held_bytes <= high.held_bytes:
                break
            # Where the lines of both choices cross.
            price = (high.cost - low.cost) // (low.held_bytes - high.held_bytes)
            between = self._choose(price)
            bound = max(bound, between.bound)
            if between.is_at(low) or between.is_at(high):
                break
            if between.held_bytes > self._room_bytes:
                low = between
            else:
                high = between
        return -(-bound // self._scale)

    def _choose(self, price: int) -> _Choice:
        """The best choice at a price; costs, and the bound, in units of `_scale`."""
        capacities = np.concatenate([self._fixed, price * self._bytes])
        cut, is_wanted = self._network.minimum_cut(capacities)
        wanted, returned = self._ends
        held_bytes = int(self._bytes[is_wanted[wanted] & ~is_wanted[returned]].sum())
        return _Choice(cut - price * self._room_bytes, cut - price * held_bytes, held_bytes)


def _reads_later(problem: Problem, is_later: np.ndarray) -> np.ndarray:
    """By value: whether something later reads it."""
    later = np.concatenate([[0], np.cumsum(is_later[problem.reader_op])])
    found: np.ndarray = later[problem.reader_start[1:]] > later[problem.reader_start[:-1]]
    return found
