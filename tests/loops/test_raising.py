"""Loops taken apart by TensorFlow, made functions again, and taken apart once more."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.one_pass import run_pass
from support.recurrent import gated, plain, recurrent_step

from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.loops.lowering import lower_loops
from memopt.loops.raising import RAISED, raise_loops
from memopt.optimization.prepared import verify_item
from memopt.passes import CheckpointLoops
from memopt.plugin.installing import install
from memopt.plugin.settled import settle_any
from memopt.runtime.function import build_function, interface_of
from memopt.runtime.grappler_off import without_grappler
from memopt.sequencing.frames import verify_loops

if TYPE_CHECKING:
    from support.recurrent import Cell, RecurrentStep
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def settled(step: RecurrentStep) -> ConcreteFunction:
    """What Grappler makes of a step: its loops are made of Switch and Merge."""
    install()
    function = settle_any(step.function)
    assert function is not None
    return function


def raised(graph_def: GraphDef) -> GraphDef:
    return raise_loops(graph_def, lambda _: None)


def ops_of(graph_def: GraphDef) -> set[str]:
    return {node.op for node in graph_def.node}


def values(step: RecurrentStep, function: ConcreteFunction) -> list[bytes]:
    return [value.tobytes() for value in step.run(without_grappler(function))]


@pytest.mark.parametrize("cell", [gated, plain])
def test_loops_compute_the_same_as_functions_and_lowered_again(cell: Cell) -> None:
    step = recurrent_step(9, cell)
    function = settled(step)
    graph_def = function.graph.as_graph_def()
    assert ops_of(graph_def) >= {"Enter", "Merge", "Switch", "NextIteration", "Exit"}

    as_functions = raised(graph_def)
    assert ops_of(as_functions) & {"Enter", "Merge", "Switch", "Exit"} == set()
    assert sum(node.op in ("While", "StatelessWhile") for node in as_functions.node) == 2
    again = lower_loops(as_functions)
    assert ops_of(again) & {"While", "StatelessWhile"} == set()

    expected = values(step, function)
    for changed in (as_functions, again):
        graph = from_graph_def(changed)
        verify_item(graph, GrapplerItem(changed))
        verify_loops(graph)
        rebuilt = build_function(changed, function, interface_of(function))
        assert values(step, rebuilt) == expected


def test_loops_inside_of_another_loop_run_in_segments_there() -> None:
    """What is added for them belongs to the frame of the loop around them, as Keras makes one."""
    import tensorflow as tf

    step = recurrent_step(12)

    def several(inputs: Any) -> Any:
        return tf.while_loop(
            lambda number, _: number < 3,
            lambda number, _: (number + 1, step.function(inputs)),
            (0, 0.0),
        )[1]

    shape = tf.TensorSpec(step.inputs.shape)
    outer = tf.function(several, autograph=False).get_concrete_function(shape)
    around = step._replace(function=outer)
    function = settled(around)
    item = GrapplerItem.from_concrete_function(function)
    as_functions = replace(item, graph_def=raised(item.graph_def))
    assert ops_of(as_functions.graph_def) >= {"Enter", "While"}
    done = run_pass(as_functions, CheckpointLoops())
    assert len(done.edits) == 1
    changed = lower_loops(done.graph_def)
    verify_loops(from_graph_def(changed))
    rebuilt = build_function(changed, function, interface_of(function))
    assert values(around, rebuilt) == values(around, function)


def test_operations_keep_names_devices_and_attributes() -> None:
    graph_def = settled(recurrent_step(9)).graph.as_graph_def()
    before = {node.name: node for node in graph_def.node if node.op in ("MatMul", "Tanh")}
    written = raised(graph_def)
    bodies = written.library.function
    after = {node.name: node for body in bodies for node in body.node_def if node.name in before}
    after |= {node.name: node for node in written.node if node.name in before}
    assert after.keys() == before.keys()
    for name, node in before.items():
        assert (after[name].op, after[name].device) == (node.op, node.device)
        assert after[name].attr["T"] == node.attr["T"]


def test_integers_that_every_turn_is_given_are_constants_in_the_function() -> None:
    """Shapes can be told from these; and a loop that sets elements is a loop with lists."""
    import tensorflow as tf

    def rows(x: Any) -> Any:
        filled = tf.TensorArray(tf.float32, size=4, element_shape=(2, 3))
        _, _, filled = tf.while_loop(
            lambda number, *_: number < 4,
            lambda number, sizes, found: (
                number + 1,
                sizes,
                found.write(number, tf.reshape(x[number], sizes)),
            ),
            (0, tf.constant([2, 3]), filled),
        )
        return filled.stack()

    function = tf.function(rows, autograph=False).get_concrete_function(tf.TensorSpec((4, 6)))
    graph_def = function.graph.as_graph_def()
    # Others than those that were raised are TensorFlow's to take apart.
    next(node for node in graph_def.node if "While" in node.op).attr[RAISED].b = True
    lowered = lower_loops(graph_def)
    assert ops_of(lowered) >= {"Enter", "Merge"}
    written = raised(lowered)
    assert ops_of(written) & {"Enter", "Merge"} == set()
    # The functions that the loop was before are there still, and have it as an argument.
    bodies = [each for each in written.library.function if "variable_0" in str(each.signature)]
    (body,) = (each for each in bodies if any(node.op == "Reshape" for node in each.node_def))
    by_name = {node.name: node for node in body.node_def}
    (source,) = (node for node in body.node_def if node.op == "Reshape")
    while source.op != "Const":
        source = by_name[source.input[-1].partition(":")[0]]
    assert tf.make_ndarray(source.attr["value"].tensor).tolist() == [2, 3]
    # What is fed may be something else.
    fed = {node.name for node in lowered.node if node.op == "Const"}
    functions = raise_loops(lowered, lambda _: None, fed).library.function
    assert "variable_3_value" in str(written.library.function)
    assert "variable_3_value" not in str(functions)
    rebuilt = build_function(written, function, interface_of(function))
    given = tf.reshape(tf.range(24.0), (4, 6))
    found, expected = (tf.nest.flatten(one(given))[0].numpy() for one in (rebuilt, function))
    assert found.tobytes() == expected.tobytes()


def test_a_graph_without_such_loops_stays_the_same_object() -> None:
    graph_def = recurrent_step(9).function.graph.as_graph_def()
    assert raised(graph_def) is graph_def
    assert lower_loops(graph_def) is graph_def


def test_the_same_comes_out_each_time() -> None:
    graph_def = settled(recurrent_step(9)).graph.as_graph_def()
    one, other = raised(graph_def), raised(graph_def)
    assert one == other
    assert lower_loops(one) == lower_loops(other)


def test_a_loop_with_branches_stays_as_it_is() -> None:
    """A turn that takes one side of a branch is no list of operations that all run."""
    import tensorflow as tf

    def sometimes(state: Any, value: Any, weights: list[Any]) -> Any:
        hidden, memory = gated(state, value, weights)
        sign = tf.reduce_sum(value) > 0
        return tf.cond(sign, lambda: tf.tanh(hidden), lambda: hidden * 2.0), memory

    graph_def = settled(recurrent_step(9, sometimes)).graph.as_graph_def()
    assert raised(graph_def) is graph_def


@pytest.mark.parametrize("change", ["leaves_by_itself", "other_condition", "entered_twice"])
def test_what_is_not_of_the_form_stays_as_it_is(change: str) -> None:
    graph_def = settled(recurrent_step(9)).graph.as_graph_def()
    conditions = [node for node in graph_def.node if node.op == "LoopCond"]
    for condition in conditions:
        if change == "other_condition":
            other = graph_def.node.add()
            other.CopyFrom(condition)
            other.name += "_other"
    if change == "leaves_by_itself":
        for node in graph_def.node:
            if node.op == "Exit":
                node.op = "Identity"
    if change == "entered_twice":
        for node in graph_def.node:
            if node.op == "Merge":
                node.input.append(node.input[0])
                node.attr["N"].i = 3
    assert raised(graph_def) is graph_def
