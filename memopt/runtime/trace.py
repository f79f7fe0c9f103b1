"""TensorFlow's profiler as a recorder of every allocation of the process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from memopt.errors import ExecutionError
from memopt.runtime.replay import AllocationEvent, Span

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XEvent, XPlane, XSpace

_STEP = "memopt_step"
_VALUE = "memopt_value"
_KINDS: dict[str, Literal["allocate", "free"]] = {
    "MemoryAllocation": "allocate",
    "MemoryDeallocation": "free",
}
_COPY = "DeepCopy"
"""The operation that puts values into the allocator's memory; it knows no better name for them."""
_UNKNOWN = "(null)"
"""What TensorFlow 2.18 writes for a fact that it does not know; later releases write nothing."""


@dataclass(frozen=True)
class Trace:
    """What was recorded.

    Attributes:
        events: Every allocation and free, in order of time.
        steps: When each marked step ran, in order of time.
    """

    events: tuple[AllocationEvent, ...]
    steps: tuple[Span, ...]


class TraceRecorder:
    """Records from `start` to `stop`. There can be one at a time in a process.

    Only allocators of the "best fit with coalescing" kind are recorded; on the host TensorFlow
    uses one when `TF_CPU_ALLOCATOR_USE_BFC` is set before it is imported.

    Args:
        directory: Where TensorFlow may write its files, which nobody else needs.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self) -> None:
        """Begin, before the first operation if nothing is to be missed."""
        import tensorflow as tf

        options = tf.profiler.experimental.ProfilerOptions(
            host_tracer_level=2, python_tracer_level=0, device_tracer_level=0
        )
        tf.profiler.experimental.start(str(self._directory), options=options)

    def stop(self) -> Trace:
        """End and read what was recorded.

        Raises:
            ExecutionError: The profiler wrote nothing.
        """
        import tensorflow as tf
        from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

        tf.profiler.experimental.stop()
        files = list(self._directory.rglob("*.xplane.pb"))
        if not files:
            raise ExecutionError("TensorFlow's profiler wrote no trace")
        return read_trace(XSpace.FromString(files[0].read_bytes()))


def step_marker(number: int) -> AbstractContextManager[Any]:
    """Marks what runs inside it as one step."""
    import tensorflow as tf

    marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(_STEP, step_num=number)
    return marker


def value_marker(name: str) -> AbstractContextManager[Any]:
    """Gives a value that is copied inside it a name, such as "variable NAME"."""
    import tensorflow as tf

    marker: AbstractContextManager[Any] = tf.profiler.experimental.Trace(_VALUE, holds=name)
    return marker


def read_trace(space: XSpace) -> Trace:
    """The allocations and steps in the profiler's own record."""
    events: list[AllocationEvent] = []
    steps: list[Span] = []
    values: list[tuple[Span, str]] = []
    for plane in space.planes:
        for name, span, facts in _entries(plane):
            if name == _STEP:
                steps.append(span)
            elif name == _VALUE:
                values.append((span, str(facts["holds"])))
            else:
                events.append(_allocation_event(_KINDS[name], span.start_ns, facts))
    events.sort(key=lambda event: event.time_ns)
    steps.sort(key=lambda span: span.start_ns)
    return Trace(tuple(_named(events, values)), tuple(steps))


def _entries(plane: XPlane) -> Iterator[tuple[str, Span, dict[str, Any]]]:
    names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
    wanted = {key for key, name in names.items() if name in {*_KINDS, _STEP, _VALUE}}
    if not wanted:
        return
    facts = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id not in wanted:
                continue
            # The profiler counts picoseconds, but its clock ticks in nanoseconds.
            start_ns = line.timestamp_ns + event.offset_ps // 1000
            span = Span(start_ns, start_ns + event.duration_ps // 1000)
            yield names[event.metadata_id], span, _facts(event, facts)


def _facts(event: XEvent, names: dict[int, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stat in event.stats:
        field = stat.WhichOneof("value")
        if field is None:
            continue
        value = getattr(stat, field)
        found[names[stat.metadata_id]] = names[value] if field == "ref_value" else value
    return {name: value for name, value in found.items() if value != _UNKNOWN}


def _allocation_event(
    kind: Literal["allocate", "free"], time_ns: int, facts: dict[str, Any]
) -> AllocationEvent:
    return AllocationEvent(
        time_ns=time_ns,
        kind=kind,
        address=int(facts["addr"]),
        size_bytes=int(facts["requested_bytes"]),
        chunk_bytes=int(facts["allocation_bytes"]),
        in_use_bytes=int(facts["bytes_allocated"]),
        allocator=str(facts["allocator_name"]),
        operation=str(facts.get("tf_op", "")),
        region=str(facts.get("region_type", "")),
        shape=str(facts.get("shape", "")),
    )


def _named(
    events: list[AllocationEvent], values: list[tuple[Span, str]]
) -> Iterator[AllocationEvent]:
    """The events, with copies of named values called by those names."""
    pending = sorted(values, key=lambda value: value[0].start_ns, reverse=True)
    for event in events:
        while pending and pending[-1][0].end_ns < event.time_ns:
            pending.pop()
        named = pending and event.operation == _COPY and pending[-1][0].holds(event.time_ns)
        yield dataclasses.replace(event, operation=pending[-1][1]) if named else event
