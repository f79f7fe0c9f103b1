"""Loops that run in segments: what they compute, what is left alone, and what a step then needs."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf
from support.one_pass import run_pass
from support.recurrent import BATCH, WIDTH, counting, gated, plain, random, recurrent_step, values

import memopt
from memopt.errors import OptionsError
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.loops.worth import Cut, Kept
from memopt.models import MODELS
from memopt.optimization.prepared import verify_item
from memopt.optimizer import MemoryOptimizer
from memopt.passes import CheckpointLoops, Context
from memopt.runtime.function import build_function
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from support.one_pass import Done
    from support.recurrent import Cell, RecurrentStep

    from memopt.passes import Pass


def run(step: RecurrentStep, pass_: Pass) -> Done:
    return run_pass(GrapplerItem.from_concrete_function(step.function), pass_)


@pytest.mark.parametrize("cell", [gated, plain])
@pytest.mark.parametrize(
    ("turns", "length"), [(12, 0), (12, 3), (13, 4), (12, 1), (12, 12), (2, 5)]
)
def test_a_step_computes_the_same_whatever_the_segments(
    cell: Cell, turns: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last segment may be shorter, a segment all turns, or one."""
    monkeypatch.setattr("memopt.passes.checkpoint_loops._WORTH_IT", 1e9)
    step = recurrent_step(turns, cell)
    done = run(step, CheckpointLoops(segment_turns=length))
    (edit,) = done.edits
    assert f"{turns} of {turns} turns run in segments of " in edit.reason
    assert values(step, done) == values(step)


@pytest.mark.parametrize("cell", [gated, plain])
@pytest.mark.parametrize("cut", [Cut(1, 3, 9), Cut(2, 4, 4), Cut(11, 1, 1), Cut(1, 11, 1)])
def test_a_step_computes_the_same_whatever_is_left_at_the_end(
    cell: Cell, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.passes.checkpoint_loops._WORTH_IT", 1e9)
    monkeypatch.setattr(Kept, "cut_within", lambda *_: cut)
    step = recurrent_step(12, cell)
    done = run(step, CheckpointLoops(enough_bytes=1))
    (edit,) = done.edits
    assert f"{12 - cut.last} of 12 turns run in segments of {cut.turns}" in edit.reason
    assert values(step, done) == values(step)


def test_lists_of_turns_are_gone_from_the_graph() -> None:
    """Kept are a counter, two states and what two variables hold."""
    step = recurrent_step(16)
    before = GrapplerItem.from_concrete_function(step.function).graph_def
    done = run(step, CheckpointLoops())
    forward, backward = (node for node in done.graph if node.op in ("While", "StatelessWhile"))
    old, _ = (node for node in before.node if node.op in ("While", "StatelessWhile"))
    pushed = sum(
        name.endswith("/accumulator") for name in (tensor.split(":")[0] for tensor in old.input)
    )
    kept = [tensor for tensor in forward.inputs if tensor.node.op == "EmptyTensorList"]
    assert pushed > len(kept) == 5
    assert {tensor.node for tensor in backward.inputs} >= {forward}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (random, "has effects or is random, and would run twice"),
        (counting, "uses a resource, and would do so twice"),
    ],
)
def test_what_cannot_run_twice_is_left_alone(cell: Cell, reason: str) -> None:
    done = run(recurrent_step(16, cell), CheckpointLoops())
    assert not done.edits
    assert reason in done.reasons


def test_a_loop_whose_turns_depend_on_the_batch_is_left_alone() -> None:
    done = run(recurrent_step(16, is_counted=False), CheckpointLoops())
    assert not done.edits
    assert "how often it turns is not known before the step" in done.reasons


def open_item(step: RecurrentStep, usual: int) -> GrapplerItem:
    """A step of which another number of turns is told in each call, as many in the usual one."""
    item = GrapplerItem.from_concrete_function(step.function)
    return replace(item, assumed_shapes={open_input(step): ((usual, BATCH, WIDTH),)})


def open_input(step: RecurrentStep) -> str:
    """The node that stands for the inputs of the turns."""
    name: str = step.function.inputs[0].op.name
    return name


@pytest.mark.parametrize("cell", [gated, plain])
@pytest.mark.parametrize("cut", [None, Cut(1, 3, 9), Cut(2, 4, 4), Cut(11, 1, 1)])
def test_a_step_computes_the_same_however_often_its_loop_turns(
    cell: Cell, cut: Cut | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.passes.checkpoint_loops._WORTH_IT", 1e9)
    monkeypatch.setattr(Kept, "cut_within", lambda *_: cut)
    step = recurrent_step(40, cell, is_counted=False)
    done = run_pass(open_item(step, 12), CheckpointLoops(enough_bytes=1))
    (edit,) = done.edits
    assert "in calls with more or fewer turns as large a part of them" in edit.reason
    for turns in (0, 1, 2, 11, 12, 13, 40):
        call = step._replace(inputs=step.inputs[:turns])
        assert values(call, done) == values(call)


def test_as_large_a_part_of_the_turns_runs_in_segments_in_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Kept, "cut_within", lambda *_: Cut(2, 4, 4))
    step = recurrent_step(40, is_counted=False)
    done = run_pass(open_item(step, 12), CheckpointLoops(enough_bytes=1))
    (most,) = (node.output() for node in done.graph if node.op == "FloorDiv")
    inputs = step.inputs.numpy()
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.graph_util.import_graph_def(done.graph_def, name="")
        for turns, segments in ((12, 2), (6, 1), (7, 2), (36, 6)):
            fed = {f"{open_input(step)}:0": inputs[:turns]}
            assert session.run(graph.get_tensor_by_name(most.name), fed) == segments


def test_a_loop_that_reads_what_it_writes_is_left_alone() -> None:
    done = run(recurrent_step(16, reads_back=True), CheckpointLoops())
    assert not done.edits
    assert "a turn changes a list that the next one reads" in done.reasons


def placed_item(*devices: str) -> GrapplerItem:
    """A recurrent step whose functions run on one device after the other."""
    item = GrapplerItem.from_concrete_function(recurrent_step(16).function)
    for function in item.graph_def.library.function:
        for number, node in enumerate(function.node_def):
            node.device = devices[number % len(devices)]
    return item


@pytest.mark.parametrize("devices", [("/device:GPU:0",), ("/device:GPU:0", "/device:CPU:0")])
def test_a_loop_on_one_gpu_runs_in_segments_where_it_ran(devices: tuple[str, ...]) -> None:
    done = run_pass(placed_item(*devices), CheckpointLoops())
    (edit,) = done.edits
    assert "turns run in segments of " in edit.reason
    functions = done.graph_def.library.function
    placed = [node.device for each in functions for node in each.node_def if node.op == "MatMul"]
    assert placed
    assert set(placed) <= set(devices)


@pytest.mark.parametrize("devices", [("/device:GPU:0", "/device:GPU:1"), ("/device:TPU:0",)])
def test_a_loop_on_several_devices_is_left_alone(devices: tuple[str, ...]) -> None:
    done = run_pass(placed_item(*devices), CheckpointLoops())
    assert not done.edits
    assert f"is on {devices[-1]}; only loops on the host and one GPU are split" in done.reasons


def test_a_loop_that_would_keep_hardly_less_is_left_alone() -> None:
    done = run(recurrent_step(2), CheckpointLoops())
    assert not done.edits
    assert "in segments they would keep" in done.reasons


def test_a_loop_of_which_a_tensor_is_fetched_is_left_alone() -> None:
    item = GrapplerItem.from_concrete_function(recurrent_step(16).function)
    loop = next(node.name for node in item.graph_def.node if node.op == "While")
    done = run_pass(replace(item, fetch=(*item.fetch, f"{loop}:0")), CheckpointLoops())
    assert not done.edits
    assert f"a tensor of {loop!r} is fetched" in done.reasons
    # To run it for its effects is another thing.
    assert run_pass(replace(item, fetch=(*item.fetch, loop)), CheckpointLoops()).edits


def test_what_is_undone_leaves_no_function_behind() -> None:
    item = GrapplerItem.from_concrete_function(recurrent_step(16).function)
    graph = from_graph_def(item.graph_def)
    before = to_graph_def(graph)
    rewriter = Rewriter(graph)
    start = rewriter.checkpoint()
    CheckpointLoops().run(rewriter, Context.of_item(item, Properties.of(item)))
    assert isinstance(graph.library, Library)
    added = set(graph.library.names()) - {f.signature.name for f in before.library.function}
    assert len(added) == 10
    verify_item(graph, item)
    rewriter.revert(start)
    assert to_graph_def(graph) == before


def test_only_as_many_loops_as_are_enough_are_rewritten() -> None:
    """The one that saves most first."""
    step = MODELS["lstm"](batch=4, steps=20, width=16, vocabulary=20)
    item = GrapplerItem.from_concrete_function(step.function)
    assert len(run_pass(item, CheckpointLoops()).edits) == 2
    done = run_pass(item, CheckpointLoops(enough_bytes=1))
    assert len(done.edits) == 1
    assert "the loops that keep more are enough" in done.reasons


def test_it_can_be_switched_off() -> None:
    step = recurrent_step(16)
    assert run(step, CheckpointLoops()).edits
    done = run(step, CheckpointLoops(run_again=False))
    assert not done.edits
    assert not done.declined


def test_a_negative_length_is_no_option() -> None:
    with pytest.raises(OptionsError, match="segment_turns is -1"):
        CheckpointLoops(segment_turns=-1)


@pytest.mark.parametrize("turns", [1, 7, 100, 1000])
@pytest.mark.parametrize(("turn_bytes", "state_bytes"), [(100, 1), (10, 10), (1, 0), (3, 50)])
def test_no_other_length_keeps_much_less(turns: int, turn_bytes: int, state_bytes: int) -> None:
    kept = Kept(turns, turn_bytes, state_bytes)
    least = min(kept.after(kept.cut_by(length)) for length in range(1, turns + 1))
    assert kept.after(kept.least_cut()) <= 1.15 * least + turn_bytes


@pytest.mark.parametrize("turns", [2, 7, 30, 61])
@pytest.mark.parametrize(("turn_bytes", "state_bytes"), [(100, 1), (10, 10), (1, 0), (3, 50)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.95])
def test_no_other_cut_runs_fewer_turns_again(
    turns: int, turn_bytes: int, state_bytes: int, share: float
) -> None:
    """Of all in which no more is kept than may be, and some turns are left at the end."""
    kept = Kept(turns, turn_bytes, state_bytes)
    limit_bytes = int(share * kept.whole_bytes)
    cuts = [
        Cut(segments, length, turns - segments * length)
        for length in range(1, turns)
        for segments in range(1, (turns - 1) // length + 1)
    ]
    within = [cut for cut in cuts if kept.after(cut) <= limit_bytes]
    found = kept.cut_within(limit_bytes)
    if not within:
        assert found is None
        return
    assert found in within
    assert kept.again(found) == min(map(kept.again, within))


@pytest.mark.parametrize("least", [1, 2, 5])
def test_there_are_as_many_segments_as_are_asked_for(least: int) -> None:
    step = recurrent_step(24)
    (edit,) = run(step, CheckpointLoops(enough_bytes=1, least_segments=least)).edits
    again, turns = map(int, re.findall(r"(\d+) of 24 turns .* segments of (\d+)", edit.reason)[0])
    assert again == least * turns < 24


def test_a_budget_below_all_orders_is_kept_by_segments() -> None:
    """And one that an order keeps is kept without them."""
    step = MODELS["lstm"](batch=8, steps=24, width=32, vocabulary=20)
    item = GrapplerItem.from_concrete_function(step.function)
    low = MemoryOptimizer("ordered", budget="40%").optimize(None, item).report
    high = MemoryOptimizer("ordered", budget="95%").optimize(None, item).report
    assert low.passes[0].name.startswith("checkpoint-loops")
    assert not any(done.name.startswith("checkpoint-loops") for done in high.passes)
    assert len(low.passes[0].edits) == 2
    assert low.runtime is not None
    assert low.runtime.keeps_budget


def test_loops_in_functions_that_functions_call_run_in_segments() -> None:
    import tensorflow as tf

    step = recurrent_step(24)
    shape = tf.TensorSpec(step.inputs.shape)
    outer = tf.function(lambda inputs: step.function(inputs) * 2.0).get_concrete_function(shape)
    item = GrapplerItem.from_concrete_function(outer)
    result = MemoryOptimizer("ordered", budget="45%").optimize(None, item)
    (edited,) = (
        graph
        for graph in result.report.graphs
        if any(done.name.startswith("checkpoint-loops") and done.edits for done in graph.passes)
    )
    assert edited.function
    rewritten = step._replace(function=build_function(result.graph_def, outer))
    original = step._replace(function=outer)
    assert values(rewritten) == values(original)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [pytest.param("50%", marks=pytest.mark.exhaustive), "30%"])
def test_a_recurrent_step_needs_as_much_as_is_predicted(budget: str) -> None:
    step = MODELS["lstm"](batch=16, steps=40, width=128, vocabulary=100)
    result = memopt.optimize(step.function, budget=budget)
    verification = memopt.verify(
        step.function, result.graph_def, inputs=step.inputs, mode="exact", timing_rounds=0
    )
    runtime = result.report.runtime
    assert runtime is not None
    assert runtime.keeps_budget
    assert verification.equal
    assert verification.rewritten.peak_bytes == pytest.approx(runtime.after.peak_bytes, rel=0.01)
