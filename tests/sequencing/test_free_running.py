"""The order of TensorFlow's executor: on small graphs by hand, on models against real runs."""

from __future__ import annotations

import pytest
from support.bad_inputs import graph_def_of
from support.small_buffers import Step as Row
from support.small_buffers import small_graph
from support.steps import tiny_step

import memopt
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.sequencing.free_running import free_running_sequence
from memopt.sequencing.step import Step
from memopt.sequencing.threads import run_on_threads
from memopt.shapes.properties import Properties

# Some processes run a small step in an order whose peak is lower by up to a fifth.
_MOST_RUNS = 4


def order_of(rows: list[Row]) -> list[str]:
    graph = small_graph(rows)
    return graph.names(free_running_sequence(graph.buffers, graph.precedence))


def test_what_is_made_ready_last_runs_first() -> None:
    rows = [
        Row("a", (), 8),
        Row("b", ("a",), 8),
        Row("c", ("a",), 8),
        Row("of_b", ("b",), 8),
        Row("of_c", ("c",), 8),
    ]
    assert order_of(rows) == ["a", "c", "of_c", "b", "of_b"]


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("CPU:0", ["x", "a", "c", "of_c", "b", "of_b", "end"]),
        ("GPU:0", ["x", "a", "b", "c", "of_b", "of_c", "end"]),
    ],
)
def test_on_a_gpu_what_is_made_ready_first_runs_first(device: str, expected: list[str]) -> None:
    """By one thread, however many there are."""
    rows = ["x = Placeholder() {dtype=float, shape=[64,64]}", "a = Sin(x) {T=float}"]
    rows += ["b = Sin(a) {T=float}", "c = Cos(a) {T=float}"]
    rows += [
        "of_b = Neg(b) {T=float}",
        "of_c = Neg(c) {T=float}",
        "end = Mul(of_b, of_c) {T=float}",
    ]
    text = "\n".join(f"{row} @/job:localhost/replica:0/task:0/device:{device}" for row in rows)
    item = GrapplerItem(graph_def_of(text), feed=("x:0",), fetch=("end:0",))
    step = Step.of(from_graph_def(item.graph_def), Properties.of(item), fed=["x"], fetched=["end"])
    nodes = step.buffer_graph.nodes
    found = free_running_sequence(step.buffer_graph, step.precedence)
    assert [nodes[number].name for number in found] == expected
    on_threads = run_on_threads(step.buffer_graph, step.precedence, step.times_ns, 4)
    assert ([nodes[number].name for number in on_threads.sequence] == expected) == (
        device == "GPU:0"
    )


@pytest.mark.parametrize("model", ["mlp", "unet"])
def test_the_peak_of_an_unchanged_step_is_that_of_a_real_run(model: str) -> None:
    """Within a few percent of one: in TensorFlow it differs from process to process."""
    step = tiny_step(model)
    item = GrapplerItem.from_concrete_function(step.function)
    timeline = Step.of(
        from_graph_def(item.graph_def),
        Properties.of(item),
        fed=[name.partition(":")[0] for name in item.feed],
        fetched=[name.partition(":")[0] for name in item.fetch],
    ).run_freely()
    peaks: list[int] = []
    for _ in range(_MOST_RUNS):
        measured = memopt.verify(
            step.function, item.graph_def, inputs=step.inputs, steps=1, timing_rounds=0
        )
        # Some small constants are counted that the allocator does not have.
        assert timeline.held_bytes == pytest.approx(measured.original.held_bytes, rel=0.03)
        peaks += [measured.original.step_peak_bytes, measured.rewritten.step_peak_bytes]
        if any(peak == pytest.approx(timeline.step_peak_bytes, rel=0.1) for peak in peaks):
            return
    pytest.fail(f"{timeline.step_peak_bytes} bytes are none of {peaks}")
