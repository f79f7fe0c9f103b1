"""Loops made serial on small graphs, each case a text before and after, and in functions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.buffers.kernel_call import Runtime
from memopt.context import Context
from memopt.errors import OptionsError
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.graph.verify import verify_graph
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.passes.serial_loops import SerialLoops
from memopt.shapes.function_calls import LOOPS
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.text_cases import TextCase

CASES = read_cases(Path(__file__).parent / "cases" / "serial_loops.txt")
PASS = SerialLoops()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, SerialLoops.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


def test_the_pass_has_nothing_to_do_a_second_time() -> None:
    for case in CASES:
        once = run_case(case, PASS)
        item = GrapplerItem(
            once.graph_def,
            feed=tuple(sorted(case.settings["fed"])),
            fetch=tuple(sorted(case.settings["fetched"])),
        )
        assert not run_pass(item, PASS).edits, case.name


def test_there_is_one_edit_for_each_loop_and_it_says_what_was_at_once() -> None:
    (functions,) = (case for case in CASES if case.name.startswith("a loop over functions"))
    edits = run_case(functions, PASS).edits
    assert [edit.changed for edit in edits] == [("a",), ("b",)]
    assert "up to 10 " in edits[0].reason
    assert "up to 32 " in edits[1].reason
    (frames,) = (case for case in CASES if case.name.startswith("all Enters"))
    edits = run_case(frames, PASS).edits
    assert [edit.changed for edit in edits] == [("enter",), ("inner",)]
    assert edits[0].reason.startswith("the frame 'outer'")


@pytest.mark.parametrize(
    ("threads", "options", "expected"),
    [(1, {}, 1), (2, {}, 2), (8, {}, 2), (8, {"at_once": 1}, 1), (8, {"at_once": 3}, 3)],
)
def test_few_turns_run_at_once_where_operations_may(
    threads: int, options: dict[str, int], expected: int, tiny_item: Callable[[str], GrapplerItem]
) -> None:
    graph = from_graph_def(tiny_item("lstm").graph_def)
    rewriter = Rewriter(graph)
    context = Context(Properties.unknown(), runtime=Runtime(inter_op_threads=threads))
    SerialLoops(**options).run(rewriter, context)
    loops = [node for node in graph if node.op in LOOPS]
    assert loops
    assert {node.attributes["parallel_iterations"].i for node in loops} == {expected}


def test_turns_of_a_frame_run_one_after_the_other_whatever_the_threads() -> None:
    (frames,) = (case for case in CASES if case.name.startswith("all Enters"))
    rewriter = Rewriter(parse_graph(frames.before))
    PASS.run(rewriter, Context(Properties.unknown(), runtime=Runtime(inter_op_threads=4)))
    assert rewriter.edits
    enters = [node for node in rewriter.graph if node.op == "Enter"]
    assert {node.attributes["parallel_iterations"].i for node in enters} == {1}


def test_no_turn_at_a_time_is_no_option() -> None:
    with pytest.raises(OptionsError, match="at_once is 0"):
        SerialLoops(at_once=0)


def test_every_loop_of_a_model_is_found_and_a_revert_gives_it_back(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    graph_def = tiny_item("lstm").graph_def
    graph = from_graph_def(graph_def)
    rewriter = Rewriter(graph)
    start = rewriter.checkpoint()
    PASS.run(rewriter, Context(Properties.unknown()))
    verify_graph(graph)
    loops = [node for node in graph if node.op in LOOPS]
    assert len(rewriter.edits) == len(loops) == 4
    assert all(node.attributes["parallel_iterations"].i == 1 for node in loops)
    rewriter.revert(start)
    assert to_graph_def(graph) == graph_def


def test_what_waits_is_found_in_functions_that_functions_call() -> None:
    """In the body's own call, and only for the loop that it belongs to."""
    import tensorflow as tf

    queue = tf.queue.FIFOQueue(3, [tf.float32], [()])

    def enqueue(value: Any) -> Any:
        queue.enqueue(value)
        return value * 2.0

    put = tf.function(enqueue, autograph=False)

    def step(x: Any) -> Any:
        first = tf.while_loop(lambda v: v < 9.0, lambda v: (put(v),), (x,))[0]
        return tf.while_loop(lambda v: v < 99.0, lambda v: (v * 3.0,), (first,))[0]

    signature = tf.TensorSpec((), tf.float32)
    concrete = tf.function(step, autograph=False).get_concrete_function(signature)
    graph = from_graph_def(concrete.graph.as_graph_def())
    assert isinstance(graph.library, Library)
    rewriter = Rewriter(graph)
    PASS.run(rewriter, Context(Properties.unknown()))
    first, second = (node for node in graph if node.op in LOOPS)
    assert [edit.changed for edit in rewriter.edits] == [(second.name,)]
    (declined,) = rewriter.declined
    assert declined.node == first.name
    assert "QueueEnqueueV2" in declined.reason


def test_a_loop_of_functions_that_are_only_declared_is_left_alone() -> None:
    """As TensorFlow hands over those that it calls by another name; others are looked at."""
    item = GrapplerItem.from_concrete_function(MODELS["lstm"](batch=2, steps=4).function)
    loops = [node for node in item.graph_def.node if node.op in LOOPS]
    declared = loops[0].attr["body"].func.name
    for function in item.graph_def.library.function:
        if function.signature.name == declared:
            del function.node_def[:]
            function.ret.clear()
    done = run_pass(item, PASS)
    assert f"what the function {declared!r} has, of which only the name is known" in done.reasons
    assert loops[0].name not in {name for edit in done.edits for name in edit.changed}
    assert len(done.edits) == len(loops) - 1
