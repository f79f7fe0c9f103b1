"""Traces for Perfetto and Chrome: operations by device, memory as a counter, transfers as flows.

The JSON of the Trace Event Format, which https://ui.perfetto.dev and chrome://tracing open. Each
run of a step is a process, such as "before" and "after", each of its devices a thread.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from memopt.files.whole_files import write_bytes
from memopt.report.page.entry import page_of
from memopt.report.page.grouping import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.report.page.model import Chart, Page, Track

_US_PER_UNIT = {"": 1.0, "ms": 1000.0}
"""How long a unit of a chart's axis is in a trace; an operation without a time takes 1 us."""
_FLOW = "transfer"


def write_trace(path: str, shown: Any, *others: Any) -> None:
    """Write the trace of a result to a file, whole or not at all.

    Args:
        path: The file; anywhere that `tf.io.gfile` or fsspec reaches.
        shown: An OptimizationResult or its report, a MemoryAnalysis or a Verification.
        others: What belongs to it: the Verification of a rewriting.

    Raises:
        FileError: The place cannot be written to. What was there before is still there.
        OptionsError: There is no trace of such a thing.
    """
    write_bytes(path, trace_json(page_of(shown, *others)))


def trace_json(page: Page) -> bytes:
    """What a page shows as a trace. The same page has the same bytes."""
    events: list[dict[str, Any]] = []
    processes: dict[int, int] = {}
    for chart in page.charts:
        for track in chart.tracks:
            # Devices of one simulated step share what runs.
            run = id(track.operations)
            is_new = run not in processes
            process = processes.setdefault(run, len(processes) + 1)
            events += _events(process, chart, track, is_new=is_new)
    plain = {"displayTimeUnit": "ns", "otherData": {"title": page.title}, "traceEvents": events}
    return json.dumps(plain, separators=(",", ":")).encode()


def _events(process: int, chart: Chart, track: Track, *, is_new: bool) -> Iterator[dict[str, Any]]:
    scale, is_device = _US_PER_UNIT[chart.unit], track.title == chart.title
    devices = dict.fromkeys(operation.device for operation in track.operations)
    threads = {name: thread for thread, name in enumerate(devices)}
    if is_new:
        title = "simulated step" if is_device else f"{chart.title}, {track.title}"
        yield _named("process_name", process, 0, title)
        for name, thread in threads.items():
            yield _named("thread_name", process, thread, name or "operations")
        yield from _slices(process, track, threads, scale)
    counter = f"bytes in use of {track.title}" if is_device else "bytes in use"
    yield from _counters(process, track, scale, counter)
    yield from _flows(process, track, threads, scale)


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _slices(
    process: int, track: Track, threads: dict[str, int], scale: float
) -> Iterator[dict[str, Any]]:
    for one in track.operations:
        yield {
            "ph": "X",
            "name": one.name,
            "cat": one.op or "operation",
            "pid": process,
            "tid": threads[one.device],
            "ts": round(one.start * scale, 3),
            "dur": round((one.end - one.start) * scale, 3),
            "args": {"op": one.op, "makes": KINDS[one.kind]},
        }


def _counters(process: int, track: Track, scale: float, name: str) -> Iterator[dict[str, Any]]:
    """The bytes in use of each kind that there is, at each moment at which one of them changes."""
    kinds = sorted({tensor.kind for tensor in track.tensors})
    changes = {kind: [0] * (track.moments + 1) for kind in kinds}
    for tensor in track.tensors:
        changes[tensor.kind][tensor.birth] += tensor.size_bytes
        changes[tensor.kind][tensor.end] -= tensor.size_bytes
    usage = {kind: list(accumulate(of)) for kind, of in changes.items()}
    for moment in range(track.moments):
        if moment and not any(changes[kind][moment] for kind in kinds):
            continue
        time = moment if track.times is None else track.times[moment]
        yield {
            "ph": "C",
            "name": name,
            "pid": process,
            "ts": round(time * scale, 3),
            "args": {KINDS[kind]: usage[kind][moment] for kind in kinds},
        }


def _flows(
    process: int, track: Track, threads: dict[str, int], scale: float
) -> Iterator[dict[str, Any]]:
    """An arrow from who makes a tensor to the first who reads it on each other device."""
    for number, tensor in enumerate(track.tensors):
        if tensor.maker < 0:
            continue
        maker = track.operations[tensor.maker]
        seen = {maker.device}
        for reader in (track.operations[at] for at in tensor.readers):
            if reader.device in seen:
                continue
            seen.add(reader.device)
            identity = f"{process}.{track.title}.{number}.{threads[reader.device]}"
            common = {"name": _FLOW, "cat": _FLOW, "id": identity, "pid": process}
            start, end = round(maker.start * scale, 3), round(reader.start * scale, 3)
            yield {"ph": "s", **common, "tid": threads[maker.device], "ts": start}
            yield {"ph": "f", "bp": "e", **common, "tid": threads[reader.device], "ts": end}
