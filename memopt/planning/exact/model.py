"""The model of a piece for CP-SAT: copies with positions, and how long their values are held.

After Moccasin (Bartan et al., 2023): each copy of an operation is optional, has a position, and for
each of its values an end until which it is held; a computation chooses of each of its inputs the
copy that it reads; at no position are more bytes held than there is room for. Unlike there, the
order is free.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.planning.exact.live_ranges import Reads
    from memopt.planning.exact.subproblem import Part, Piece
    from memopt.planning.problem import Problem


class _Copy(NamedTuple):
    """One place that an operation may have in the window."""

    position: cp_model.IntVar
    is_there: cp_model.IntVar
    is_swap: cp_model.IntVar
    is_computed: cp_model.IntVar
    ends: dict[int, cp_model.IntVar]


class _Entry(NamedTuple):
    """What was computed before the window."""

    ends: dict[int, cp_model.IntVar]


class Found(NamedTuple):
    """What a window contains.

    Attributes:
        steps: Operations, and 1 for swaps in, in their order.
        left_out: Steps behind the window that are not needed any more.
    """

    steps: list[tuple[int, int]]
    left_out: frozenset[int]


class Model:
    """A piece as a model; `model` is what is solved, `found` reads the solution."""

    def __init__(self, problem: Problem, reads: Reads, piece: Piece, room: int) -> None:
        self._problem = problem
        self._reads = reads
        self._piece = piece
        self.model = cp_model.CpModel()
        self._one = self.model.new_constant(1)
        self._zero = self.model.new_constant(0)
        self._intervals: list[cp_model.IntervalVar] = []
        self._demands: list[int] = []
        self._costs: list[tuple[int, cp_model.IntVar]] = []
        self._steps: list[cp_model.IntervalVar] = []
        self._horizon = max(end for _, end, _ in piece.in_use)
        self._entries = {op: self._entry(part) for op, part in piece.parts.items()}
        self._copies = {op: self._copies_of(part) for op, part in piece.parts.items()}
        self._kept = {op: self._keep_late(part) for op, part in piece.parts.items()}
        for op, copies in self._copies.items():
            for copy in copies:
                self._read(op, copy)
        for part in piece.parts.values():
            self._serve_later(part)
        self._order()
        self._limit(room)
        self._cost = sum(cost * there for cost, there in self._costs)
        self.model.minimize(self._cost)

    def found(self, solver: cp_model.CpSolver) -> Found:
        """The window of a solution."""
        steps = [
            (solver.value(copy.position), op, int(solver.boolean_value(copy.is_swap)))
            for op, copies in self._copies.items()
            for copy in copies
            if solver.boolean_value(copy.is_there)
        ]
        left_out = frozenset(
            part.late.step
            for op, part in self._piece.parts.items()
            if part.late is not None and not solver.boolean_value(self._kept[op])
        )
        return Found([(op, swapped) for _, op, swapped in sorted(steps)], left_out)

    def add_floor(self, held: Mapping[int, int], excess_bytes: int) -> None:
        """Of some operations, enough must be had again for some bytes to be free.

        Every plan keeps to that; it is said because the solver does not see it by itself.

        Args:
            held: Bytes of operations that are held, unless they are had again.
            excess_bytes: How much of that is too much.
        """
        again = {op: self._copies[op][1].is_there for op in held if len(self._copies[op]) > 1}
        # What frees more than is needed counts as what is needed: a tighter relaxation.
        freed = [min(held[op], excess_bytes) * is_there for op, is_there in again.items()]
        self.model.add(sum(freed) >= excess_bytes)

    def add_least_cost(self, least_cost: int) -> None:
        """Say that every solution costs something: the solver need not look for cheaper ones."""
        if least_cost:
            self.model.add(self._cost >= least_cost)

    def _bool(self) -> cp_model.IntVar:
        return self.model.new_bool_var("")

    def _entry(self, part: Part) -> _Entry | None:
        """Hold what was computed before for longer, or not."""
        if not part.held_from:
            return None
        ends = {}
        for value, start in part.held_from.items():
            end = self.model.new_int_var(start, self._horizon, "")
            self.model.add_hint(end, part.now_held[0][value])
            self._hold(value, start, end, self._one)
            ends[value] = end
        return _Entry(ends)

    def _copies_of(self, part: Part) -> list[_Copy]:
        return [self._copy(part, number) for number in range(part.copies)]

    def _copy(self, part: Part, number: int) -> _Copy:
        model, piece, op = self.model, self._piece, part.op
        is_needed = part.is_first and number == 0
        is_there = self._one if is_needed else self._bool()
        position = model.new_int_var(piece.start, piece.end - 1, "")
        if is_needed or not part.may_swap:
            is_swap, is_computed = self._zero, is_there
        elif not part.may_compute:
            is_swap, is_computed = is_there, self._zero
        else:
            is_swap, is_computed = self._bool(), self._bool()
            model.add(is_swap + is_computed == is_there)
        if not is_needed:
            self._costs.append((int(self._problem.cost[op]), is_computed))
            self._costs.append((int(self._problem.swap_cost[op]), is_swap))
        self._steps.append(model.new_optional_fixed_size_interval_var(position, 1, is_there, ""))
        scratch = int(self._problem.scratch[op])
        if scratch:
            self._intervals.append(self._steps[-1])
            self._demands.append(scratch)
        copy = _Copy(position, is_there, is_swap, is_computed, {})
        for value in range(
            int(self._problem.value_start[op]), int(self._problem.value_start[op + 1])
        ):
            end = model.new_int_var(piece.start + 1, self._horizon, "")
            model.add(end >= position + 1)
            self._hold(value, position, end, is_there)
            copy.ends[value] = end
        self._hint(part, copy, number)
        return copy

    def _hint(self, part: Part, copy: _Copy, number: int) -> None:
        """What the sequence has there now."""
        is_known = number < len(part.now)
        if copy.is_there is not self._one:
            self.model.add_hint(copy.is_there, is_known)
        if not is_known:
            return
        at, swapped = part.now[number]
        self.model.add_hint(copy.position, at)
        if copy.is_swap is not self._zero and copy.is_computed is not self._zero:
            self.model.add_hint(copy.is_swap, swapped)
            self.model.add_hint(copy.is_computed, 1 - swapped)
        held = part.now_held[number + (1 if part.held_from else 0)]
        for value, end in copy.ends.items():
            self.model.add_hint(end, held[value])

    def _hold(
        self,
        value: int,
        start: cp_model.IntVar | int,
        end: cp_model.IntVar | int,
        is_there: cp_model.IntVar,
    ) -> None:
        size = int(self._problem.size[value])
        if not size:
            return
        length = self.model.new_int_var(0, self._horizon, "")
        self._intervals.append(
            self.model.new_optional_interval_var(start, length, end, is_there, "")
        )
        self._demands.append(size)

    def _keep_late(self, part: Part) -> cp_model.IntVar:
        """Whether what is recomputed behind the window is."""
        late = part.late
        if late is None:
            return self._zero
        kept = self._bool()
        self.model.add_hint(kept, 1)
        self._costs.append((late.cost, kept))
        for value, end in late.ends.items():
            size = int(self._problem.size[value])
            if size and end > late.start:
                self._intervals.append(
                    self.model.new_optional_fixed_size_interval_var(
                        late.start, end - late.start, kept, ""
                    )
                )
                self._demands.append(size)
        return kept

    def _read(self, op: int, copy: _Copy) -> None:
        """A computation reads one copy of each operation that it needs."""
        if copy.is_computed is self._zero:
            return
        read: dict[int, list[tuple[int, int]]] = {}
        for value, source, takes in self._reads[op]:
            if self._problem.size[value]:
                read.setdefault(source, []).append((value, takes))
        for source, values in read.items():
            choices = []
            entry = self._entries[source]
            if entry is not None:
                is_read = self._bool()
                choices.append(is_read)
                for value, takes in values:
                    self.model.add(entry.ends[value] >= copy.position + 1 - takes).only_enforce_if(
                        is_read
                    )
            for other in self._copies[source]:
                is_read = self._bool()
                choices.append(is_read)
                self.model.add_implication(is_read, other.is_there)
                self.model.add(other.position + 1 <= copy.position).only_enforce_if(is_read)
                for value, takes in values:
                    self.model.add(other.ends[value] >= copy.position + 1 - takes).only_enforce_if(
                        is_read
                    )
            self.model.add(sum(choices) == copy.is_computed)

    def _serve_later(self, part: Part) -> None:
        """What is read behind the window, and not recomputed there, is held until then."""
        late, kept = part.late, self._kept[part.op]
        if late is None and not part.needed:
            return
        entry = self._entries[part.op]
        sources = [(entry.ends, self._one)] if entry is not None else []
        sources += [(copy.ends, copy.is_there) for copy in self._copies[part.op]]
        # Without a late copy the last ones are read from as well.
        last_ends = {v: late.ends[v] for v in late.read} if late is not None else {}
        choices = []
        for ends, is_there in sources:
            is_read = self._bool()
            choices.append(is_read)
            self.model.add_implication(is_read, is_there)
            for value, end in part.needed.items():
                self.model.add(ends[value] >= end).only_enforce_if(is_read)
            for value, end in last_ends.items():
                self.model.add(ends[value] >= end).only_enforce_if(is_read, ~kept)
        if part.needed:
            self.model.add_exactly_one(choices)
        else:
            self.model.add(sum(choices) + kept == 1)

    def _order(self) -> None:
        """What has to come before what, and copies one after the other."""
        model = self.model
        for first, then in self._piece.earlier:
            for copy in self._copies[then]:
                if copy.is_computed is not self._zero:
                    model.add(self._copies[first][0].position + 1 <= copy.position).only_enforce_if(
                        copy.is_computed
                    )
        for first, then in self._piece.ended:
            for copy in self._copies[first]:
                if copy.is_computed is not self._zero:
                    model.add(copy.position + 1 <= self._copies[then][0].position).only_enforce_if(
                        copy.is_computed
                    )
        for copies in self._copies.values():
            for copy, following in pairwise(copies):
                model.add_implication(following.is_there, copy.is_there)
                model.add(copy.position + 1 <= following.position).only_enforce_if(
                    following.is_there
                )
        model.add_no_overlap(self._steps)

    def _limit(self, room: int) -> None:
        """Keep to the budget."""
        for start, end, in_use in self._piece.in_use:
            self._intervals.append(self.model.new_fixed_size_interval_var(start, end - start, ""))
            self._demands.append(in_use)
        unit = gcd(*self._demands) or 1
        self.model.add_cumulative(
            self._intervals, [demand // unit for demand in self._demands], room // unit
        )
