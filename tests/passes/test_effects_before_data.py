"""Effects that the end of data does not keep from running: texts before and after, real steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.counting import counting_step
from support.one_pass import run_case, run_pass
from support.text_cases import read_cases

from memopt.item import GrapplerItem
from memopt.passes.effects_before_data import EffectsBeforeData

if TYPE_CHECKING:
    from support.text_cases import TextCase
    from tensorflow.core.framework.graph_pb2 import GraphDef

CASES = read_cases(Path(__file__).parent / "cases" / "effects_before_data.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run_case(case, EffectsBeforeData.parse(case.spec))
    assert done.text == case.after
    assert done.reasons == case.declined


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pass_has_nothing_to_do_a_second_time(case: TextCase) -> None:
    done = run_case(case, EffectsBeforeData())
    again = run_pass(_item(done.graph_def, case), EffectsBeforeData())
    assert not again.edits


def test_where_data_does_not_end_only_what_is_small_comes_before_it() -> None:
    """A count whose size is not known is not small, what is taken off a weight of 16 bytes is."""
    case = CASES[0]
    item = replace(_item(run_case(case, EffectsBeforeData()).graph_def, case), data_ends=False)
    for node in item.graph_def.node:
        if node.op == "QueueDequeueV2":
            del node.input[1:]
    small = run_pass(item, EffectsBeforeData())
    (edit,) = small.edits
    assert edit.reason.startswith("1 effects")
    assert not run_pass(item, EffectsBeforeData(small_bytes=0)).edits


@pytest.mark.parametrize("is_optional", [False, True])
def test_an_element_that_may_be_missing_fails_nothing(*, is_optional: bool) -> None:
    item = GrapplerItem.from_concrete_function(counting_step(is_optional=is_optional))
    done = run_pass(item, EffectsBeforeData())
    assert len(done.edits) == (not is_optional)


def _item(graph_def: GraphDef, case: TextCase) -> GrapplerItem:
    return GrapplerItem(
        graph_def,
        feed=tuple(sorted(case.settings["fed"])),
        fetch=tuple(sorted(case.settings["fetched"])),
    )
