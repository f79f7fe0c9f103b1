"""The profiler's record, read into allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from memopt.runtime.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Mapping


def record(facts: Mapping[str, int | str]) -> XSpace:
    """One allocation, of which this is told."""
    space = XSpace()
    plane = space.planes.add()
    plane.event_metadata[1].name = "MemoryAllocation"
    event = plane.lines.add().events.add(metadata_id=1)
    for number, (name, value) in enumerate(facts.items(), start=1):
        plane.stat_metadata[number].name = name
        stat = event.stats.add(metadata_id=number)
        if isinstance(value, int):
            stat.int64_value = value
        else:
            reference = 100 + number
            plane.stat_metadata[reference].name = value
            stat.ref_value = reference
    return space


ADDRESS = {"addr": 7, "requested_bytes": 5, "allocation_bytes": 256, "bytes_allocated": 256}


@pytest.mark.parametrize("told", [{}, {"tf_op": "(null)", "region_type": "(null)", "shape": ""}])
def test_what_the_profiler_does_not_know_is_empty(told: Mapping[str, str]) -> None:
    (event,) = read_trace(record({**ADDRESS, "allocator_name": "host", **told})).events
    assert (event.operation, event.region, event.shape) == ("", "", "")
    assert (event.allocator, event.size_bytes, event.chunk_bytes) == ("host", 5, 256)


def test_names_are_kept() -> None:
    told = {"tf_op": "MatMul", "region_type": "output", "shape": "[5]"}
    (event,) = read_trace(record({**ADDRESS, "allocator_name": "host", **told})).events
    assert (event.operation, event.region, event.shape) == ("MatMul", "output", "[5]")
