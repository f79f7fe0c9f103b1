"""Loops that are given what their lists would hold: the same bits, and lists that are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.one_pass import run_pass
from support.recurrent import counting, gated, plain, random, recurrent_step, values

from memopt.item import GrapplerItem
from memopt.passes import LeanLoops

if TYPE_CHECKING:
    from support.one_pass import Done
    from support.recurrent import Cell, RecurrentStep

    from memopt.graph.graph import Node

LOOPS = ("While", "StatelessWhile")


def run(step: RecurrentStep) -> Done:
    return run_pass(GrapplerItem.from_concrete_function(step.function), LeanLoops())


def lists_of(done: Done) -> set[str]:
    """What the lists that the first loop fills are called, without where they stand."""
    loop: Node = next(node for node in done.graph if node.op in LOOPS)
    made = (tensor.node for tensor in loop.inputs)
    return {node.name.split("/")[-2] for node in made if node.op == "EmptyTensorList"}


@pytest.mark.parametrize("cell", [gated, plain, random, counting])
def test_a_step_computes_the_same(cell: Cell) -> None:
    step = recurrent_step(12, cell)
    done = run(step)
    assert done.edits
    if cell is not random:
        assert values(step, done) == values(step)


def test_what_turns_are_given_is_in_no_list() -> None:
    """Weights and samples are not; what turns compute is, and the number of a turn."""
    step = recurrent_step(12)
    before = GrapplerItem.from_concrete_function(step.function).graph_def
    done = run(step)
    pushed = lists_of(run_pass(GrapplerItem(before, fetch=("none",))))
    assert pushed - lists_of(done) == {"ReadVariableOp_0", "strided_slice_0"}
    assert len(lists_of(done)) > 4


def test_variables_are_read_before_the_loop_unless_turns_change_them() -> None:
    for cell, reads in ((gated, 2), (counting, 2)):
        graph = run(recurrent_step(12, cell)).graph
        loop = next(node for node in graph if node.op in LOOPS)
        assert sum(tensor.node.op == "ReadVariableOp" for tensor in loop.inputs) == reads


def test_a_loop_that_is_fed_or_fetched_stays() -> None:
    item = GrapplerItem.from_concrete_function(recurrent_step(12).function)
    loop = next(node.name for node in item.graph_def.node if node.op == "While")
    for other, reason in (
        (replace(item, fetch=(*item.fetch, f"{loop}:0")), f"a tensor of {loop!r} is fetched"),
        (replace(item, feed=(*item.feed, f"{loop}:0")), f"{loop!r} is fed, so it does not run"),
    ):
        done = run_pass(other, LeanLoops())
        assert not done.edits
        assert reason in done.reasons
