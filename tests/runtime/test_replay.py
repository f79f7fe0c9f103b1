"""Allocation events add up to a peak, a live set and a timeline."""

from __future__ import annotations

import dataclasses
import json

import pytest

from memopt.errors import ExecutionError
from memopt.runtime.replay import AllocationEvent, Buffer, Measurement, Span, replay


class Allocator:
    """Makes the events that an allocator with chunks of 256 bytes would."""

    def __init__(self, name: str = "bfc_cpu") -> None:
        self.name = name
        self.in_use_bytes = 0
        self.sizes: dict[int, int] = {}

    def allocate(self, time_ns: int, address: int, size_bytes: int, what: str) -> AllocationEvent:
        self.sizes[address] = size_bytes
        return self._event(time_ns, address, what, size_bytes, 1)

    def free(self, time_ns: int, address: int) -> AllocationEvent:
        return self._event(time_ns, address, "", self.sizes[address], -1)

    def _event(
        self, time_ns: int, address: int, what: str, size_bytes: int, sign: int
    ) -> AllocationEvent:
        chunk_bytes = -(-size_bytes // 256) * 256
        self.in_use_bytes += sign * chunk_bytes
        return AllocationEvent(
            time_ns=time_ns,
            kind="allocate" if sign > 0 else "free",
            address=address,
            size_bytes=size_bytes,
            chunk_bytes=chunk_bytes,
            in_use_bytes=self.in_use_bytes,
            allocator=self.name,
            operation=what,
        )


_STEP = Span(100, 200)


def _events() -> list[AllocationEvent]:
    host = Allocator()
    return [
        host.allocate(10, 1, 1000, "variable v"),
        host.allocate(20, 2, 50, "earlier"),
        host.free(30, 2),
        host.allocate(110, 2, 300, "a"),
        host.allocate(120, 3, 40, "b"),
        host.free(130, 2),
        host.allocate(140, 4, 200, "c"),
        host.free(150, 1),
        host.allocate(250, 1, 9999, "later"),
    ]


def test_peak_counts_from_what_is_held() -> None:
    measurement = replay(_events(), _STEP)

    assert measurement.held_bytes == 1000
    assert measurement.step_peak_bytes == 340
    assert measurement.peak_bytes == 1340
    assert [(b.operation, b.size_bytes) for b in measurement.live_at_peak] == [
        ("variable v", 1000),
        ("a", 300),
        ("b", 40),
    ]
    assert [b.since_ns for b in measurement.live_at_peak] == [-90, 10, 20]


def test_timeline_names_what_is_freed() -> None:
    timeline = replay(_events(), _STEP).timeline

    assert [(e.when_ns, e.kind, e.operation, e.in_use_bytes) for e in timeline] == [
        (10, "allocate", "a", 1300),
        (20, "allocate", "b", 1340),
        (30, "free", "a", 1040),
        (40, "allocate", "c", 1240),
        (50, "free", "variable v", 240),
    ]


def test_order_of_the_events_does_not_matter() -> None:
    assert replay(_events()[::-1], _STEP) == replay(_events(), _STEP)


def test_what_lies_outside_is_held() -> None:
    measurement = replay(_events(), _STEP, [Buffer("input x", 500)])

    assert measurement.held_bytes == 1500
    assert measurement.step_peak_bytes == 340
    assert Buffer("input x", 500) in measurement.live_at_peak


def test_step_without_events_peaks_at_what_is_held() -> None:
    measurement = replay(_events(), Span(40, 50))
    assert (measurement.held_bytes, measurement.step_peak_bytes) == (1000, 0)
    assert len(measurement.live_at_peak) == 1


@pytest.mark.parametrize("lost", range(8))
def test_lost_event_is_an_error_not_a_wrong_peak(lost: int) -> None:
    events = _events()
    del events[lost]
    with pytest.raises(ExecutionError, match="not complete"):
        replay(events, _STEP)


def test_free_of_an_unknown_address_is_an_error() -> None:
    events = _events()
    events[2] = dataclasses.replace(events[2], address=77)
    with pytest.raises(ExecutionError, match="not complete"):
        replay(events, _STEP)


def test_memory_of_an_accelerator_counts_alone() -> None:
    accelerator = Allocator("GPU_0_bfc")
    events = [accelerator.allocate(105, 1, 70, "a"), accelerator.free(115, 1)]

    measurement = replay([*_events(), *events], _STEP)

    assert (measurement.held_bytes, measurement.step_peak_bytes) == (0, 70)


def test_json_holds_everything() -> None:
    measurement = replay(_events(), _STEP)
    plain = json.loads(json.dumps(measurement.to_json(timeline=True)))
    assert Measurement.from_json(plain) == measurement
    assert "timeline" not in measurement.to_json()
