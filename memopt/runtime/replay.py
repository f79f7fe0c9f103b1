"""What a step's allocation events add up to: its peak, what is live then, its timeline."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from memopt.display import Displayed, Overview, Table, bytes_text
from memopt.errors import ExecutionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Kind = Literal["allocate", "free"]

_ACCELERATOR_PREFIX = "GPU_"


@dataclass(frozen=True, slots=True)
class AllocationEvent:
    """One call of TensorFlow's allocator.

    Attributes:
        time_ns: When, by the clock of the trace.
        kind: "allocate" or "free".
        address: Where the buffer lies.
        size_bytes: What was asked for.
        chunk_bytes: What the allocator took for it, which is more.
        in_use_bytes: Chunk bytes that this allocator has in use after the event.
        allocator: The allocator's name.
        operation: The operation that ran; for a free it is often not known.
        region: What the buffer is for: "output", "temp", "persist" or "".
        shape: The tensor's shape as TensorFlow spells it, or "".
    """

    time_ns: int
    kind: Kind
    address: int
    size_bytes: int
    chunk_bytes: int
    in_use_bytes: int
    allocator: str
    operation: str = ""
    region: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time, both ends included."""

    start_ns: int
    end_ns: int

    def holds(self, time_ns: int) -> bool:
        """Whether the moment lies in it."""
        return self.start_ns <= time_ns <= self.end_ns


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory that is in use.

    Attributes:
        operation: What allocated it; "variable NAME" and "input NAME" for values put there before
            the first step.
        size_bytes: Its size.
        region: What it is for: "output", "temp", "persist" or "".
        shape: The tensor's shape as TensorFlow spells it, or "".
        since_ns: When it was allocated, counted from the step's start; negative if before.
    """

    operation: str
    size_bytes: int
    region: str = ""
    shape: str = ""
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One change of what is in use during a step.

    Attributes:
        when_ns: When, counted from the step's start.
        kind: "allocate" or "free".
        operation: What allocated the buffer, for a free too.
        size_bytes: Size of the buffer.
        in_use_bytes: All that is in use after the change.
        region: What the buffer is for: "output", "temp", "persist" or "".
        shape: The tensor's shape as TensorFlow spells it, or "".
    """

    when_ns: int
    kind: Kind
    operation: str
    size_bytes: int
    in_use_bytes: int
    region: str = ""
    shape: str = ""


@dataclass(frozen=True, repr=False)
class Measurement(Displayed):
    """The memory of one step, exact: requested bytes, no rounding by the allocator.

    Attributes:
        held_bytes: In use when the step starts: variables, constants, inputs, handles.
        step_peak_bytes: The most that the step has in use on top of that.
        timeline: Every change during the step, in order.
        live_at_peak: The buffers in use when the peak is first reached, largest first.
    """

    held_bytes: int
    step_peak_bytes: int
    timeline: tuple[TimelineEntry, ...] = ()
    live_at_peak: tuple[Buffer, ...] = ()

    @property
    def peak_bytes(self) -> int:
        """The most that is in use at any moment of the step, everything included."""
        return self.held_bytes + self.step_peak_bytes

    def to_json(self, *, timeline: bool = False) -> dict[str, Any]:
        """Plain data, with the timeline on request."""
        plain: dict[str, Any] = {
            "held_bytes": self.held_bytes,
            "step_peak_bytes": self.step_peak_bytes,
            "peak_bytes": self.peak_bytes,
            "live_at_peak": [dataclasses.asdict(buffer) for buffer in self.live_at_peak],
        }
        if timeline:
            plain["timeline"] = [dataclasses.asdict(entry) for entry in self.timeline]
        return plain

    def _overview(self) -> Overview:
        outcome = (
            f"peak {bytes_text(self.peak_bytes)}, {bytes_text(self.held_bytes)} of it held before "
            "the step"
        )
        columns = ("live at the peak", "size", "region", "shape")
        return Overview(
            "Measurement", outcome, (Table.of(columns, self.live_at_peak, _buffer_row),)
        )

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Measurement:
        """The measurement that `to_json` described."""
        return cls(
            held_bytes=plain["held_bytes"],
            step_peak_bytes=plain["step_peak_bytes"],
            timeline=tuple(TimelineEntry(**entry) for entry in plain.get("timeline", ())),
            live_at_peak=tuple(Buffer(**buffer) for buffer in plain["live_at_peak"]),
        )


def _buffer_row(buffer: Buffer) -> tuple[str, ...]:
    return buffer.operation, bytes_text(buffer.size_bytes), buffer.region, buffer.shape


def replay(
    events: Iterable[AllocationEvent], step: Span, outside: Sequence[Buffer] = ()
) -> Measurement:
    """Follow the allocator from an empty memory through one step.

    Args:
        events: Everything that the allocators did since the process started.
        step: The step to measure.
        outside: Buffers that are held throughout the step and that no allocator knows.

    Raises:
        ExecutionError: The events do not add up to the allocator's own count: some are missing.
    """
    ordered = sorted(_device_events(list(events)), key=lambda event: event.time_ns)
    _check_complete(ordered)
    before = [event for event in ordered if event.time_ns < step.start_ns]
    during = [event for event in ordered if step.holds(event.time_ns)]
    live = _live_after(before, step.start_ns)
    held_bytes = sum(b.size_bytes for b in (*live.values(), *outside))
    timeline = _timeline(live, during, held_bytes, step.start_ns)
    totals = [held_bytes, *(entry.in_use_bytes for entry in timeline)]
    peak_bytes = max(totals)
    at_peak = _live_after([*before, *during[: totals.index(peak_bytes)]], step.start_ns)
    return Measurement(
        held_bytes=held_bytes,
        step_peak_bytes=peak_bytes - held_bytes,
        timeline=tuple(timeline),
        live_at_peak=tuple(
            sorted((*at_peak.values(), *outside), key=lambda buffer: -buffer.size_bytes)
        ),
    )


def _device_events(events: list[AllocationEvent]) -> list[AllocationEvent]:
    """The events of the memory that counts: the accelerator's if one is used, else the host's."""
    return on_device(events, "GPU") or events


def on_device(events: Iterable[AllocationEvent], device_type: str) -> list[AllocationEvent]:
    """The events of the allocators of a type of device ("CPU", "GPU")."""
    is_host = device_type == "CPU"
    return [event for event in events if event.allocator.startswith(_ACCELERATOR_PREFIX) != is_host]


def _check_complete(events: Iterable[AllocationEvent]) -> None:
    """Compare with the running total that every event carries."""
    in_use_bytes: Counter[str] = Counter()
    live: set[tuple[str, int]] = set()
    for event in events:
        key = (event.allocator, event.address)
        if event.kind == "allocate":
            in_use_bytes[event.allocator] += event.chunk_bytes
            live.add(key)
        else:
            in_use_bytes[event.allocator] -= event.chunk_bytes
        missing = event.kind == "free" and key not in live
        if missing or in_use_bytes[event.allocator] != event.in_use_bytes:
            raise ExecutionError(
                f"the trace of {event.allocator} is not complete: {event.in_use_bytes} bytes are in"
                f" use, but its events add up to {in_use_bytes[event.allocator]}"
            )
        if event.kind == "free":
            live.remove(key)


def _live_after(events: Iterable[AllocationEvent], start_ns: int) -> dict[tuple[str, int], Buffer]:
    live: dict[tuple[str, int], Buffer] = {}
    for event in events:
        _apply(live, event, start_ns)
    return live


def _apply(live: dict[tuple[str, int], Buffer], event: AllocationEvent, start_ns: int) -> Buffer:
    """Bring `live` up to date; return the buffer that came or went."""
    key = (event.allocator, event.address)
    if event.kind == "free":
        return live.pop(key)
    live[key] = Buffer(
        event.operation, event.size_bytes, event.region, event.shape, event.time_ns - start_ns
    )
    return live[key]


def _timeline(
    live: Mapping[tuple[str, int], Buffer],
    events: Iterable[AllocationEvent],
    held_bytes: int,
    start_ns: int,
) -> list[TimelineEntry]:
    live = dict(live)
    in_use_bytes = held_bytes
    timeline = []
    for event in events:
        buffer = _apply(live, event, start_ns)
        in_use_bytes += buffer.size_bytes if event.kind == "allocate" else -buffer.size_bytes
        timeline.append(
            TimelineEntry(
                when_ns=event.time_ns - start_ns,
                kind=event.kind,
                operation=buffer.operation,
                size_bytes=buffer.size_bytes,
                in_use_bytes=in_use_bytes,
                region=buffer.region,
                shape=buffer.shape,
            )
        )
    return timeline
