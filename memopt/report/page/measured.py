"""Measured memory: as a track of its own, and as a curve over what was predicted."""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from memopt.report.page.grouping import (
    HELD,
    SCRATCH,
    Layers,
    has_gradient_name,
    kind_of_name,
)
from memopt.report.page.model import Curve, Operation, Tensor, Track, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.runtime.replay import Measurement, TimelineEntry

_NS_PER_MS = 1_000_000
_MOST_OUT_OF_ORDER = 0.02
"""The share of operations that may come elsewhere than predicted for a curve to follow them."""


def layers_of(measurements: Sequence[Measurement]) -> Layers:
    """The layers of measured steps that are shown together."""
    return Layers(
        (entry.operation, entry.size_bytes)
        for measurement in measurements
        for entry in measurement.timeline
        if entry.kind == "allocate"
    )


def track_of(measurement: Measurement, title: str, layers: Layers) -> Track:
    """The track of a measurement; its moments are the changes, the first is the step's start."""
    timeline = measurement.timeline
    totals = [measurement.held_bytes, *(entry.in_use_bytes for entry in timeline)]
    peak_at = totals.index(max(totals))
    times = [0.0, *(entry.when_ns / _NS_PER_MS for entry in timeline)]
    operations, numbers = _operations(timeline, times)
    return Track(
        title,
        len(totals),
        operations,
        tuple(_tensors(measurement, layers, numbers)),
        measurement.peak_bytes,
        peak_at,
        # Threads' clocks may differ by a little; the axis only goes forward.
        tuple(round(time, 4) for time in accumulate(times, max)),
    )


def _operations(
    timeline: Sequence[TimelineEntry], times: Sequence[float]
) -> tuple[tuple[Operation, ...], dict[str, int]]:
    """Who allocated something, in order, from its first allocation to that of the next one."""
    starts: dict[str, float] = {}
    for entry, time in zip(timeline, times[1:], strict=True):
        if entry.kind == "allocate":
            starts.setdefault(entry.operation, time)
    ends = [*list(starts.values())[1:], times[-1]]
    found = tuple(
        Operation(shown(name), "", "", _kind(name), start, max(start, end))
        for (name, start), end in zip(starts.items(), ends, strict=True)
    )
    return found, {name: number for number, name in enumerate(starts)}


def _kind(name: str) -> int:
    return kind_of_name(name, is_backward=has_gradient_name(name))


class _Key(NamedTuple):
    """What tells which allocation an event frees; of equal ones the first is taken."""

    operation: str
    size_bytes: int
    region: str
    shape: str


def _tensors(measurement: Measurement, layers: Layers, numbers: dict[str, int]) -> Iterator[Tensor]:
    born: defaultdict[_Key, deque[int]] = defaultdict(deque)
    held_bytes = measurement.held_bytes
    last = len(measurement.timeline) + 1
    for moment, entry in enumerate(measurement.timeline, 1):
        key = _Key(entry.operation, entry.size_bytes, entry.region, entry.shape)
        if entry.kind == "allocate":
            born[key].append(moment)
        elif born[key]:
            yield _tensor(key, born[key].popleft(), moment, layers, numbers)
        else:
            held_bytes -= entry.size_bytes
            name, layer = shown(entry.operation), layers.of(entry.operation)
            yield Tensor(name, -1, entry.size_bytes, 0, moment, HELD, layer)
    for key, moments in born.items():
        for moment in moments:
            yield _tensor(key, moment, last, layers, numbers)
    if held_bytes > 0:
        what = "variables, constants and inputs that are held throughout"
        yield Tensor(what, -1, held_bytes, 0, last, HELD, layers.of(""))


def _tensor(key: _Key, birth: int, end: int, layers: Layers, numbers: dict[str, int]) -> Tensor:
    kind = SCRATCH if key.region == "temp" else _kind(key.operation)
    name = shown(f"{key.operation} {key.shape}".strip())
    maker, layer = numbers.get(key.operation, -1), layers.of(key.operation)
    return Tensor(name, maker, key.size_bytes, birth, end, kind, layer)


def curve_over(measurement: Measurement, track: Track, number: int, title: str) -> Curve:
    """Measured memory on the axis of what was predicted for the same step.

    What an operation allocates stands where the operation does. Where threads ran operations in
    another order than was predicted, the changes stand at even distances instead.

    Args:
        measurement: The step as it was measured.
        track: The step as it was predicted.
        number: The number of that track.
        title: What the curve is called.
    """
    places, is_placed = _places(measurement, track)
    return Curve(
        title if is_placed else f"{title}, in the order in which it ran",
        tuple(round(place, 2) for place in (0.0, *places)),
        (measurement.held_bytes, *(entry.in_use_bytes for entry in measurement.timeline)),
        number,
    )


def _places(measurement: Measurement, track: Track) -> tuple[list[float], bool]:
    """For each change its place on the axis, and whether it is that of the operation."""
    timeline = measurement.timeline
    known = {operation.name: operation.start for operation in track.operations}
    places: list[float] = []
    at, late, matched = 0.0, 0, 0
    for entry in timeline:
        place = known.get(shown(entry.operation))
        if entry.kind == "allocate" and place is not None:
            matched += 1
            late += place < at
            at = max(at, place)
        places.append(at)
    if matched and late <= _MOST_OUT_OF_ORDER * matched:
        return places, True
    step = track.moments / max(len(timeline), 1)
    return [number * step for number in range(1, len(timeline) + 1)], False
