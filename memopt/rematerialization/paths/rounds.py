"""One round of path rematerialization: what is needed after a peak is cloned with its operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from memopt.rematerialization.paths.clones import Clones, Settled

_MOST_CLONES_PER_NODE = 4
"""Paths that branch have exponentially many clones, and those of each round add to the last's."""


class Ends(NamedTuple):
    """What a path may be made of.

    Attributes:
        free: By node: whether it may be cloned.
        starts: By node: whether a path may end with it.
    """

    free: Sequence[bool]
    starts: Sequence[bool]


class Round:
    """Clones of paths across one peak.

    Args:
        settled: Where memory peaks.
        ends: What may be cloned.
        skipped: Instructions that are left alone; grows.
        moved: Instructions that took the place of their originals; grows.
        stops: Buffers whose makers are left alone.
    """

    def __init__(
        self,
        settled: Settled,
        ends: Ends,
        skipped: set[int],
        moved: set[int],
        stops: Collection[int] = (),
    ) -> None:
        facts = settled.clones.facts
        self._clones = settled.clones.redirected({})
        self._facts = facts
        self._free, self._starts = ends
        made = settled.timeline.buffer_graph.made
        self._stops = {
            number for number, buffers in enumerate(made) if any(b in stops for b in buffers)
        }
        self._skipped = skipped
        self._moved = moved
        self._made: dict[int, int] = {}
        self._copied: list[tuple[int, int]] = []
        peak = settled.timeline.peak_position
        self._before = settled.sequence[:peak]
        self._later = settled.sequence[peak + 1 :]
        self._placed = [False] * len(self._clones.origin)
        self._begun = [False] * len(facts.runs)
        for instruction in settled.sequence[: peak + 1]:
            self._placed[instruction] = True
            self._begun[self._clones.origin[instruction]] = True
        # What peaks would peak again.
        self._stops.add(settled.sequence[peak])
        self._most = len(self._clones.origin) + _MOST_CLONES_PER_NODE * len(settled.sequence)

    def clone_paths(self, deepest: int, *, share: bool) -> Clones | None:
        """The clones with those of one more round; `None` if there is nothing to clone.

        Args:
            deepest: How many instructions a path has at most that make something.
            share: Whether all users get the same clone; otherwise each gets one for itself.
        """
        clones = self._clones
        uses = self._uses_by_user() if share else self._uses_by_source()
        for source, user in uses:
            self._clone_path(source, user, deepest, share=share)
        if not self._copied:
            return None
        self._drop_idle_views()
        return clones.redirected({})

    def _uses_by_user(self) -> Iterator[tuple[int, int]]:
        """What is used across the peak, in the order in which it is."""
        for user in self._later:
            for source in list(self._clones.inputs[user]):
                if self._can_start(source):
                    yield source, user

    def _uses_by_source(self) -> Iterator[tuple[int, int]]:
        """The same in the order in which it was made."""
        for source in self._before:
            if self._can_start(source):
                for user in list(self._clones.users[source]):
                    if not self._is_placed(user):
                        yield source, user

    def _can_start(self, source: int) -> bool:
        return self._starts[self._clones.origin[source]] and self._can_clone(source)

    def _clone_path(self, source: int, user: int, deepest: int, *, share: bool) -> None:
        """Clone an instruction for one user, then its operands for the clone."""
        clones, is_view = self._clones, self._facts.is_view
        pending = [(source, user, deepest)]
        while pending:
            original, reader, depth = pending.pop()
            if original in self._made:
                clones.redirect(reader, original, self._made[original])
                continue
            makes = not is_view[clones.origin[original]]
            if (makes and not depth) or not self._can_clone(original):
                continue
            if len(clones.origin) >= self._most:
                return
            copy = clones.clone(original)
            self._copied.append((copy, original))
            clones.redirect(reader, original, copy)
            if share:
                self._made[original] = copy
            if not clones.users[original]:
                if original in self._moved:
                    self._skipped.add(copy)
                self._moved.add(copy)
            pending.extend((i, copy, depth - makes) for i in reversed(clones.inputs[copy]))

    def _can_clone(self, instruction: int) -> bool:
        node = self._clones.origin[instruction]
        if not self._free[node] or not self._is_placed(instruction):
            return False
        if instruction in self._skipped or instruction in self._stops:
            return False
        return not any(self._begun[follower] for follower in self._facts.network.followers[node])

    def _is_placed(self, instruction: int) -> bool:
        return instruction < len(self._placed) and self._placed[instruction]

    def _drop_idle_views(self) -> None:
        """A clone of a view that shows the same as the view is not needed."""
        clones = self._clones
        for copy, original in reversed(self._copied):
            is_view = self._facts.is_view[clones.origin[copy]]
            if is_view and clones.inputs[copy] == clones.inputs[original]:
                for user in list(clones.users[copy]):
                    clones.redirect(user, copy, original)
