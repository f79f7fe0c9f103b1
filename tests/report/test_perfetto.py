"""A trace has what Perfetto shows: operations that are in order, memory that adds up, transfers."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from support.commands import assert_one_line, run
from support.pages import training_report

from memopt.analysis import analyze
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.io import save
from memopt.report.page.entry import page_of
from memopt.report.perfetto import trace_json

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef

TWO_DEVICES = """
x = Placeholder() {dtype=float, shape=[256,256]} @/gpu:0
a = MatMul(x, x) {T=float} @/gpu:0
b = Neg(a) {T=float} @/cpu:0
"""


def two_devices() -> GraphDef:
    return to_graph_def(parse_graph(TWO_DEVICES))


def events_of(trace: bytes) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    return events


def test_before_and_after_are_processes_with_all_operations() -> None:
    report = training_report(70)
    page = page_of(report)
    events = events_of(trace_json(page))
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "predicted, after", 2: "predicted, before"}
    ran = Counter(event["pid"] for event in events if event["ph"] == "X")
    assert [ran[1], ran[2]] == [len(track.operations) for track in page.charts[0].tracks]
    for process in names:
        starts = [e["ts"] for e in events if e["ph"] == "X" and e["pid"] == process]
        assert starts == sorted(starts)


def test_counters_add_up_to_the_peak() -> None:
    report = training_report(70)
    assert report.runtime is not None
    events = events_of(trace_json(page_of(report)))
    most = {
        process: max(sum(e["args"].values()) for e in events if _counts(e, process))
        for process in (1, 2)
    }
    assert most == {1: report.runtime.after.peak_bytes, 2: report.runtime.before.peak_bytes}


def _counts(event: dict[str, Any], process: int) -> bool:
    return (event["ph"], event["pid"]) == ("C", process)


def test_every_event_has_its_thread_and_every_flow_two_ends() -> None:
    analysis = analyze(two_devices(), devices=["GPU:0=GPU:16GiB", "CPU:0=CPU"], fetch=["b:0"])
    events = events_of(trace_json(page_of(analysis)))
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"simulated step"}
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert counters == {"bytes in use of GPU:0", "bytes in use of CPU:0"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"} <= threads
    ends = Counter((event["id"], event["ph"]) for event in events if event["ph"] in "sf")
    assert ends
    assert set(ends.values()) == {1}
    assert {identity for identity, _ in ends} == {i for i, phase in ends if phase == "s"}
    starts = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    assert all(starts[e["id"]] <= e["ts"] for e in events if e["ph"] == "f")


def test_the_same_report_has_the_same_trace() -> None:
    first, second = (trace_json(page_of(training_report(70))) for _ in range(2))
    assert first == second


def test_commands_write_traces(tmp_path: Path) -> None:
    graph, trace = tmp_path / "graph.pb", tmp_path / "trace.json"
    save(two_devices(), str(graph))
    assert run("analyze", graph, "--device", "CPU:0=CPU", "--trace", trace).status == 0
    assert events_of(trace.read_bytes())
    out = tmp_path / "out.pb"
    assert run("optimize", graph, "-o", out, "--level", "ordered", "--trace", trace).status == 0
    assert {e["name"] for e in events_of(trace.read_bytes())} >= {"a", "bytes in use"}
    ended = run("analyze", graph, "--trace", tmp_path / "none" / "trace.json")
    assert_one_line(ended, "none/trace.json: cannot be written")
