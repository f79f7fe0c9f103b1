"""What a report page shows is what the results hold: memory, kinds, layers, decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.pages import ACTIVATION_BYTES, training_report
from support.small_buffers import Step, small_graph

from memopt.analysis import analyze
from memopt.buffers.buffer_graph import simulate
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.planning.checker import judge, lives
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.report.page import predicted
from memopt.report.page.entry import page_of
from memopt.report.page.grouping import (
    BACKWARD,
    FORWARD,
    HELD,
    KEPT,
    OTHERS,
    RECOMPUTED,
    SCRATCH,
    Layers,
    find_backward,
)
from memopt.report.page.measured import curve_over, layers_of, track_of
from memopt.runtime.replay import Measurement, TimelineEntry
from memopt.runtime.verification import Verification

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.report.page.model import Tensor, Track
    from memopt.runtime.replay import Kind


def usage_of(track: Track) -> list[int]:
    """By moment the bytes in use, each tensor counted from its birth to its end."""
    return [
        sum(one.size_bytes for one in track.tensors if one.birth <= moment < one.end)
        for moment in range(track.moments)
    ]


def kinds_of(tensors: Sequence[Tensor]) -> dict[str, int]:
    return {tensor.name: tensor.kind for tensor in tensors}


def test_a_track_adds_up_to_the_timeline() -> None:
    runtime = training_report().runtime
    assert runtime is not None
    for timeline in (runtime.before, runtime.after):
        track = predicted.track_of(timeline, "", predicted.layers_of([timeline]))
        places = predicted.moments_of(timeline)
        assert usage_of(track) == [timeline.usage_bytes[place] for place in places]
        assert max(usage_of(track)) == track.peak_bytes == timeline.peak_bytes
        assert usage_of(track)[track.peak_at] == track.peak_bytes
        live = sum(tensor.size_bytes for tensor in track.live_at_peak())
        assert live == track.peak_bytes


def test_memory_that_is_taken_over_counts_once() -> None:
    steps = [Step("a", (), 8), Step("b", ("a",), 8, reuses=("a",)), Step("c", ("b",), 4)]
    timeline = simulate(small_graph(steps).buffers, range(3))
    assert timeline.reused
    track = predicted.track_of(timeline, "", predicted.layers_of([timeline]))
    assert usage_of(track) == timeline.usage_bytes == [8, 8, 12]
    assert [(tensor.name, tensor.birth, tensor.end) for tensor in track.tensors] == [
        ("a", 0, 1),
        ("b", 1, 3),
        ("c", 2, 3),
    ]


def test_what_threads_may_need_on_top_is_a_curve_of_its_own() -> None:
    """The table at the peak tells what is in use where the drawing is highest."""
    steps = [Step("a", (), 8), Step("b", ("a",), 8), Step("c", ("b",), 9)]
    drawn = simulate(small_graph(steps).buffers, range(3))
    raised = replace(drawn, usage_bytes=[20, *drawn.usage_bytes[1:]], peak_bytes=20)
    raised = replace(raised, peak_position=0)
    track = predicted.track_of(raised, "after", predicted.layers_of([raised]))
    assert (track.peak_bytes, track.peak_at) == (17, 2)
    curve = predicted.threads_curve(raised, track, 0)
    assert curve is not None
    assert curve.y == (20, 16, 17)
    assert predicted.threads_curve(drawn, track, 0) is None


def test_what_touches_no_memory_is_no_moment() -> None:
    steps = [Step("nothing"), Step("a", (), 8), Step("end", ("a",))]
    timeline = simulate(small_graph(steps).buffers, range(3))
    track = predicted.track_of(timeline, "", predicted.layers_of([timeline]))
    assert [operation.name for operation in track.operations] == ["a", "end"]
    assert track.tensors[0].readers == (1,)


def test_tensors_have_their_kinds() -> None:
    page = page_of(training_report(70, "net"))
    after, before = page.charts[0].tracks
    assert (after.title, before.title) == ("after", "before")
    kinds = kinds_of(after.tensors)
    assert kinds["net/layer_0/kernel"] == HELD
    assert kinds["net/layer_0/Relu"] == FORWARD
    assert kinds["gradient_tape/net/layer_0/ReluGrad"] == BACKWARD
    assert kinds["Recomputed/net/layer_1/Relu"] == RECOMPUTED
    assert kinds["scratch of net/layer_0/MatMul"] == SCRATCH
    assert RECOMPUTED not in kinds_of(before.tensors).values()


def test_what_stays_is_a_kind_of_its_own() -> None:
    steps = [Step("a", (), 8), Step("out", ("a",), 4, lasting=True)]
    timeline = simulate(small_graph(steps).buffers, range(2))
    track = predicted.track_of(timeline, "", predicted.layers_of([timeline]))
    assert kinds_of(track.tensors) == {"a": FORWARD, "out": KEPT}
    assert track.tensors[1].end == track.moments


def test_what_is_computed_from_gradients_is_backward() -> None:
    names = ["x", "y", "gradient_tape/y_grad", "AddN", "Recomputed/y", "gradient_tape/list", "loop"]
    read = [[], [0], [1], [2], [2], [], [1, 5]]
    found = find_backward(names, read, range(len(names)))
    backward = {name for name, is_so in zip(names, found, strict=True) if is_so}
    assert backward == {"gradient_tape/y_grad", "AddN", "gradient_tape/list"}


def test_layers_look_into_the_model_and_its_gradients() -> None:
    names = ["net/first/MatMul", "gradient_tape/net/first/MatMul", "Recomputed/net/second/Relu"]
    layers = Layers([(name, 10) for name in names])
    assert [layers.of(name) for name in names] == ["first", "first", "second"]
    assert layers.of("loss") == OTHERS


def test_many_layers_are_told_apart_by_what_they_begin_with() -> None:
    names = [f"net/conv{group}_block{number}/Conv" for group in (1, 2) for number in range(20)]
    layers = Layers([(name, 1) for name in names])
    assert {layers.of(name) for name in names} == {"conv1", "conv2"}


def test_decisions_are_those_of_the_report() -> None:
    report = training_report(70)
    page = page_of(report)
    edits = [edit for done in report.passes for edit in done.edits]
    declined = [one for done in report.passes for one in done.declined]
    decided = [one for edit in edits for one in edit.decisions]
    assert len(page.decisions) == len(edits) + len(declined) + len(decided)
    by_node = {one.node: one for one in page.decisions if one.what == "left alone"}
    assert by_node["model/layer_0/Relu"].reason.startswith("the limit is kept without")
    (edit,) = [one for one in page.decisions if one.number > 1]
    assert (edit.what, edit.by) == ("recomputed", "rematerialization")
    assert any(f"{ACTIVATION_BYTES / (1 << 20):.2f} MiB" in one.reason for one in page.decisions)


def test_what_runs_again_is_added_up_by_op() -> None:
    (repeated,) = page_of(training_report(70)).repeated
    assert (repeated.op, repeated.number) == ("Relu", 6)
    assert repeated.size_bytes == 6 * ACTIVATION_BYTES
    assert repeated.time_ns > 0


def test_budget_and_floor_are_lines() -> None:
    report = training_report(70)
    assert report.runtime is not None
    budget, floor = page_of(report).charts[0].lines
    assert (budget.title, budget.size_bytes) == ("budget", report.runtime.budget_bytes)
    assert floor.title == "floor"
    assert 0 < floor.size_bytes <= report.runtime.after.peak_bytes


def entry(
    when: int, kind: Kind, name: str, size: int, total: int, region: str = ""
) -> TimelineEntry:
    return TimelineEntry(when, kind, name, size, total, region)


MEASURED = Measurement(
    100,
    30,
    (
        entry(1000, "allocate", "net/a", 10, 110),
        entry(2000, "allocate", "net/b", 20, 130, "temp"),
        entry(3000, "free", "net/b", 20, 110, "temp"),
        entry(4000, "free", "variable v", 40, 70),
        entry(5000, "free", "net/a", 10, 60),
    ),
)


def test_a_measured_track_adds_up_to_the_measurement() -> None:
    track = track_of(MEASURED, "rewritten", layers_of([MEASURED]))
    assert usage_of(track) == [100, 110, 130, 110, 70, 60]
    assert (track.peak_bytes, track.peak_at) == (130, 2)
    assert track.times == (0.0, 0.001, 0.002, 0.003, 0.004, 0.005)
    kinds = kinds_of(track.tensors)
    assert (kinds["net/a"], kinds["net/b"], kinds["variable v"]) == (FORWARD, SCRATCH, HELD)


@pytest.mark.parametrize(("order", "places"), [("ab", (0, 0, 1, 1, 1, 1)), ("ba", None)])
def test_a_measured_curve_stands_where_operations_are_predicted(
    order: str, places: tuple[float, ...] | None
) -> None:
    """In another order than was predicted, changes stand at even distances, and it says so."""
    steps = [Step(f"net/{name}", (), 8) for name in order]
    timeline = simulate(small_graph(steps).buffers, range(2))
    track = predicted.track_of(timeline, "", predicted.layers_of([timeline]))
    curve = curve_over(MEASURED, track, 0, "after")
    assert curve.y == (100, 110, 130, 110, 70, 60)
    assert curve.x == (places or (0.0, 0.4, 0.8, 1.2, 1.6, 2.0))
    assert ("in the order in which it ran" in curve.title) == (places is None)


def test_a_verified_rewriting_shows_what_was_predicted_and_measured() -> None:
    verification = Verification((), MEASURED, MEASURED, None, "exact", 3)
    page = page_of(training_report(70), verification)
    predicted_chart, measured_chart = page.charts
    assert [curve.track for curve in predicted_chart.curves] == [0, 1]
    assert [track.title for track in measured_chart.tracks] == ["rewritten", "original"]
    facts = {fact.label: fact for fact in page.facts}
    assert (facts["results"].value, facts["results"].verdict) == ("equal", "good")
    assert facts["measured peak"].value == "130 B"
    assert page_of(verification).charts == (measured_chart,)


def test_an_analysis_adds_up_to_the_peak_of_each_device() -> None:
    graph = parse_graph(
        "x = Placeholder() {dtype=float, shape=[256,256]} @/gpu:0\n"
        "a = MatMul(x, x) {T=float} @/gpu:0\n"
        "b = Neg(a) {T=float} @/cpu:0\n"
    )
    devices = ["GPU:0=GPU:16GiB", "CPU:0=CPU"]
    analysis = analyze(to_graph_def(graph), devices=devices, fetch=["b:0"])
    page = page_of(analysis)
    peaks = {track.title: track.peak_bytes for chart in page.charts for track in chart.tracks}
    assert peaks == {name.rpartition("device:")[2]: n for name, n in analysis.peak_bytes.items()}
    for chart in page.charts:
        (track,) = chart.tracks
        assert usage_of(track)[track.peak_at] == track.peak_bytes
    kinds = kinds_of(page.charts[0].tracks[0].tensors)
    assert (kinds["x:0"], kinds["a:0"]) == (HELD, FORWARD)
    assert {operation.device for operation in page.charts[0].tracks[0].operations} >= {
        "GPU:0",
        "CPU:0",
    }


def test_lives_add_up_to_what_the_judge_says() -> None:
    graph = CostGraph.build(
        [
            Operation(1, (8,)),
            Operation(1, (4,), inputs=((0, 0),), scratch_bytes=2),
            Operation(1, (2,), inputs=((0, 0), (1, 0)), kept=(0,)),
        ]
    )
    sequence = [0, 1, 0, 2]
    in_use = [graph.held_bytes + graph.operations[op].scratch_bytes for op in sequence] + [0]
    for life in lives(graph, sequence):
        for step in range(life.step, life.end):
            in_use[step] += graph.operations[sequence[life.step]].output_bytes[life.output]
    assert tuple(in_use) == judge(graph, sequence).step_bytes
