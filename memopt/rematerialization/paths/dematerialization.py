"""Dematerialization: clones are undone as far as a limit leaves room."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.paths.usage_ranges import UsageRanges
from memopt.time_limit import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memopt.rematerialization.paths.clones import Clones, Settled
    from memopt.time_limit import TimeLimit

    Rearrange = Callable[[Clones, list[int]], Settled]

_MOST_PASSES = 6
_MOST_SIMULATED = 300_000
"""On large graphs fewer passes, down to two, so that no more instructions are simulated."""


def dematerialize(
    settled: Settled,
    limit_bytes: int,
    rearrange: Rearrange,
    *,
    close_gaps: bool = True,
    time_limit: TimeLimit = NO_LIMIT,
) -> Settled:
    """Undo clones while the peak is within a limit.

    The published algorithm goes node by node, those that compute most for each byte that they move
    first. All clones of a node are undone: their users read the original again. It stops at the
    first node that breaks the limit. How many nodes it takes until then is found by bisection, so
    that there are only as many simulations as their number has digits; in the rare case that the
    peak is not the higher the more is undone, it is another place at which the next node breaks the
    limit.

    With `close_gaps` single clones are undone instead: the users of one read the previous clone of
    the same node, or the original, which lives on over the gap in between. What this adds to the
    memory in use at each position of the gap is its size, at most. So all gaps of a sequence are
    weighed with one simulation, those first that save most time for each byte, and the next one
    finds out what is really in use then. All clones of a node are undone if all of its gaps are.

    Args:
        settled: The clones, within the limit.
        limit_bytes: What may be in use.
        rearrange: Finds a new order for clones, where the old one breaks the limit.
        close_gaps: Whether to undo single clones, and not all clones of a node together.
        time_limit: When to leave the rest as it is.

    Returns:
        Clones within the limit that cost no more than those given.
    """
    if close_gaps:
        return _close_all_gaps(settled, limit_bytes, time_limit)
    return _undo_nodes(settled, limit_bytes, rearrange)


def _undo_nodes(settled: Settled, limit_bytes: int, rearrange: Rearrange) -> Settled:
    """The published algorithm, with a bisection."""
    clones = settled.clones
    count = len(clones.facts.runs)
    copies: dict[int, list[int]] = {}
    for instruction in settled.sequence:
        if instruction >= count:
            copies.setdefault(clones.origin[instruction], []).append(instruction)
    intensities = clones.facts.network.intensities or [0.0] * count
    nodes = sorted(copies, key=lambda node: (-intensities[node], node))

    def undo(number: int) -> Settled:
        targets = {copy: node for node in nodes[:number] for copy in copies[node]}
        found = _redirect(settled, targets)
        if found.peak_bytes > limit_bytes:
            found = rearrange(found.clones, found.sequence)
        return found

    best, low, high = settled, 0, len(nodes)
    while low < high:
        middle = (low + high + 1) // 2
        found = undo(middle)
        if found.peak_bytes <= limit_bytes:
            best, low = found, middle
        else:
            high = middle - 1
    return best


class _Gap(NamedTuple):
    """A clone and the one before it.

    Attributes:
        copy: The clone.
        previous: Another clone of the same node, or the node, which ran before it.
        first: The position from which on the memory would be kept.
        end: The position of the clone.
        size_bytes: What would be kept.
        saved: The weight of what would not run any more.
    """

    copy: int
    previous: int
    first: int
    end: int
    size_bytes: int
    saved: int


def _close_all_gaps(settled: Settled, limit_bytes: int, time_limit: TimeLimit) -> Settled:
    """Close gaps until there is room for none."""
    best = _merge_views(settled)
    if best.peak_bytes > limit_bytes:
        best = settled
    for _ in range(min(_MOST_PASSES, max(2, _MOST_SIMULATED // len(settled.sequence)))):
        if time_limit.is_over:
            return best
        targets = _choose_gaps(best, limit_bytes)
        found = _close_most(best, targets, limit_bytes, time_limit)
        if found is None or found.cost >= best.cost:
            return best
        best = found
    return best


def _close_most(
    settled: Settled, targets: Mapping[int, int], limit_bytes: int, time_limit: TimeLimit
) -> Settled | None:
    """All of the gaps, or as many of the first as the limit allows in truth; `None` for none."""
    chosen = list(targets.items())
    low, high, middle = 0, len(chosen), len(chosen)
    best: Settled | None = None
    while low < high and not time_limit.is_over:
        found = _merge_views(_redirect(settled, dict(chosen[:middle])))
        if found.peak_bytes <= limit_bytes:
            best, low = found, middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return best


def _choose_gaps(settled: Settled, limit_bytes: int) -> dict[int, int]:
    """The gaps to close, each clone with what is read instead; the best first."""
    clones = settled.clones
    count = len(clones.facts.runs)
    usage = UsageRanges(settled.timeline.usage_bytes)
    readers = [len(users) for users in clones.users]
    gone: set[int] = set()
    targets: dict[int, int] = {}
    gaps = sorted(_find_gaps(settled), key=lambda gap: (-gap.saved / gap.size_bytes, gap.end))
    for gap in gaps:
        if gap.copy in gone:
            continue
        previous = gap.previous
        if previous in gone:
            continue
        if usage.most(gap.first, gap.end) + gap.size_bytes > limit_bytes:
            continue
        usage.add(gap.first, gap.end, gap.size_bytes)
        targets[gap.copy] = previous
        readers[previous] += readers[gap.copy]
        pending = [gap.copy]
        while pending:
            for source in clones.inputs[pending.pop()]:
                readers[source] -= 1
                if not readers[source] and source >= count and source not in targets:
                    gone.add(source)
                    pending.append(source)
    return targets


def _find_gaps(settled: Settled) -> list[_Gap]:
    """Every clone that makes something, with the clone before it; linear."""
    clones, timeline = settled.clones, settled.timeline
    facts = clones.facts
    saved = _saved_weights(settled)
    made, last_position = timeline.buffer_graph.made, timeline.last_position
    given = set(timeline.reused.values())
    newest: dict[int, int] = {}
    gaps: list[_Gap] = []
    for position, instruction in enumerate(settled.sequence):
        node = clones.origin[instruction]
        previous = newest.get(node)
        newest[node] = instruction
        if previous is None or facts.is_view[node]:
            continue
        # What took the memory over has to get its own at once.
        first = min(last_position[b] + (b not in given) for b in made[previous])
        size_bytes = max(facts.size_bytes[node], 1)
        gaps.append(_Gap(instruction, previous, first, position, size_bytes, saved[instruction]))
    return gaps


def _saved_weights(settled: Settled) -> list[int]:
    """By instruction: its weight, and that of the clones that run only for it."""
    clones = settled.clones
    count, weights = len(clones.facts.runs), clones.facts.network.weights
    saved = [weights[node] for node in clones.origin]
    for instruction in settled.sequence:
        for source in clones.inputs[instruction]:
            if source >= count and len(clones.users[source]) == 1:
                saved[instruction] += saved[source]
    return saved


def _merge_views(settled: Settled) -> Settled:
    """Without the clones of views that show the same as another one."""
    clones = settled.clones
    seen: dict[tuple[int, ...], int] = {}
    targets: dict[int, int] = {}
    count = len(clones.facts.runs)
    for instruction in settled.sequence:
        node = clones.origin[instruction]
        if not clones.facts.is_view[node]:
            continue
        sources = (targets.get(source, source) for source in clones.inputs[instruction])
        first = seen.setdefault((node, *sources), instruction)
        if first != instruction and instruction >= count:
            targets[instruction] = first
    return _redirect(settled, targets) if targets else settled


def _redirect(settled: Settled, targets: Mapping[int, int]) -> Settled:
    """Other clones are read instead of some; the order stays."""
    clones = settled.clones.redirected(targets)
    producers = clones.producers(clones.find_running())
    return clones.settle(clones.arrange(producers, settled.sequence))
