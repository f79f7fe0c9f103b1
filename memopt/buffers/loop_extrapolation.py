"""Turns of a long loop that are not followed: what they keep grows as in those before."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from memopt.shapes.loop_counters import count_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.buffers.nested_steps import Loop, Turn
    from memopt.buffers.pool import Pool

    Test = Callable[[Sequence[int]], Turn]
    Elements = tuple[int, ...]


def skip_turns(
    pool: Pool, loop: Loop, states: Sequence[Sequence[int]], test: Test, some_turns: int
) -> bool:
    """Bring a loop's state to where its last turns begin; what is kept meanwhile is made at once.

    Nothing is skipped where the end is near, or cannot be told from counters that change by the
    same in every turn. Between beginning and end of a loop what is in use grows or shrinks by the
    same from turn to turn, so that the most is in use at either of them. Each element that the last
    turn put into a list stands for those of all turns that are skipped: in the list there is one
    buffer, of their size together, in all of their positions. Elements that they take from the end
    of a list go.

    Args:
        pool: All buffers.
        loop: What was followed so far; the step is appended.
        states: The last three states, each the buffers that a turn begins with; the last one
            changes.
        test: Runs the loop's test on a state.
        some_turns: How many turns are still to come after that.

    Returns:
        Whether turns are skipped.
    """
    steps = _find_steps(pool, states)
    goes_on = partial(_goes_on, pool, states[-1], steps, test)
    turns = count_turns(goes_on) if any(steps) else 0
    skipped = turns - some_turns
    if skipped <= 0:
        return False
    lists = [
        pool.contents[buffer] for buffer in dict.fromkeys(states[0]) if buffer in pool.contents
    ]
    skip = _Skip(pool, loop, skipped, lists)
    for buffers in dict.fromkeys(zip(*states, strict=True)):
        skip.fill(*buffers)
    for buffer, step in dict(zip(states[-1], steps, strict=True)).items():
        if step:
            pool.numbers[buffer] += skipped * step
    loop.add(made=skip.made)
    return True


def _find_steps(pool: Pool, states: Sequence[Sequence[int]]) -> list[int]:
    """By what a known number in the state changes in each turn; all 0 if not always the same."""
    steps = []
    for buffers in zip(*states, strict=True):
        first, second, third = map(pool.numbers.get, buffers)
        if first is None or second is None or third is None:
            steps.append(0)
        elif third - second != second - first:
            return [0] * len(states[-1])
        else:
            steps.append(third - second)
    return steps


def _goes_on(
    pool: Pool, state: Sequence[int], steps: Sequence[int], test: Test, turns: int
) -> bool:
    """Whether the test says yes so many turns later."""
    later = list(state)
    for argument, step in enumerate(steps):
        if step:
            later[argument] = pool.add(0)
            pool.numbers[later[argument]] = pool.numbers[state[argument]] + turns * step
    tested = test(later)
    for buffer in chain.from_iterable(tested.made):
        pool.size_bytes[buffer] = 0
    return bool(pool.numbers.get(tested.results[0], 0))


class _Skip:
    """The step in place of turns that are skipped.

    Attributes:
        made: The buffers that it makes.
    """

    def __init__(self, pool: Pool, loop: Loop, turns: int, lists: Sequence[Elements]) -> None:
        self.made: list[int] = []
        self._pool = pool
        self._turns = turns
        self._lists = lists
        """The lists as they were before the last two turns."""
        self._role = _find_roles(loop)
        self._together: dict[tuple[int, int], int] = {}
        """By role: what stands for the buffers of this role in the turns that are skipped."""

    def fill(self, first: int, second: int, third: int) -> None:
        """Change a list as the turns that are skipped do.

        Args:
            first: The list before the last two turns, or what is no list.
            second: That before the last turn.
            third: That after it.
        """
        contents = self._pool.contents
        if third != second and third in contents and third in self._role:
            before = contents.get(first, ()), contents.get(second, ())
            contents[third] = self._elements(*before, contents[third])

    def _elements(self, first: Elements, second: Elements, third: Elements) -> Elements:
        """What a list holds after the turns that are skipped."""
        grown = len(third) - len(second)
        if grown > 0:
            pushed = zip(second[-grown:] or third[-grown:], third[-grown:], strict=False)
            series = [self._series(one, other) for one, other in pushed]
            return third + tuple(chain.from_iterable(zip(*series, strict=True)))
        if grown < 0:
            return third[: max(0, len(third) + grown * self._turns)]
        return self._set(second, third, _changed(first, second), _changed(second, third))

    def _set(
        self, second: Elements, third: Elements, before: Sequence[int], now: Sequence[int]
    ) -> Elements:
        """A list whose elements are set, by the positions that the last two turns changed."""
        elements = list(third)
        for previous, position in zip(before, now, strict=False):
            for turn, element in enumerate(self._series(second[previous], third[position]), 1):
                reached = position + turn * (position - previous)
                if 0 <= reached < len(elements):
                    elements[reached] = element
        return tuple(elements)

    def _series(self, previous: int, element: int) -> Elements:
        """What goes on with the elements that the last two turns put into a list."""
        turns, role = self._turns, self._role.get(element)
        if role is not None:
            return (self._all(role, element),) * turns
        for found in self._lists if element != previous else ():
            if element in found and previous in found:
                start = found.index(element)
                step = start - found.index(previous)
                places = range(start + step, start + step * (turns + 1), step)
                return tuple(found[p] if 0 <= p < len(found) else element for p in places)
        return (element,) * turns

    def _all(self, role: tuple[int, int], element: int) -> int:
        """The buffer that stands for those of a role in all turns that are skipped."""
        if role not in self._together:
            size_bytes = self._turns * self._pool.size_bytes[element]
            self._together[role] = self._pool.add(size_bytes)
            self.made.append(self._together[role])
        return self._together[role]


def _find_roles(loop: Loop) -> dict[int, tuple[int, int]]:
    """What the buffers made in a loop are in their turn: of which operation, and which of its.

    What one turn puts into a list the next one may put into another, as the state that it began
    with: the two lists hold the same buffers.
    """
    roles = {}
    ends = [*loop.turns[1:], len(loop.made)]
    for start, end in zip(loop.turns, ends, strict=True):
        for position, buffers in enumerate(loop.made[start:end]):
            for number, buffer in enumerate(buffers):
                roles[buffer] = (position, number)
    return roles


def _changed(before: Elements, after: Elements) -> list[int]:
    """The positions at which two lists of the same length differ."""
    pairs = zip(before, after, strict=False)
    return [position for position, (one, other) in enumerate(pairs) if one != other]
