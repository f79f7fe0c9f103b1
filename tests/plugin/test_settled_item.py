"""Graph files rewritten as Grappler leaves them: functions and sessions, equal under defaults."""

from __future__ import annotations

import pytest
import tensorflow as tf

import memopt
from memopt.errors import OptionsError
from memopt.graph.final import is_final
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS, TINY


def _item(name: str) -> GrapplerItem:
    if name in MODELS:
        return GrapplerItem.from_concrete_function(MODELS[name](**TINY[name]).function)
    step = SESSION_MODELS[name](**TINY[name])
    return GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)


@pytest.mark.parametrize(
    "name", ["mlp", pytest.param("bert", marks=pytest.mark.slow), "convnet_v1"]
)
def test_the_result_is_equal_under_defaults(name: str) -> None:
    item = _item(name)
    result = memopt.optimize(item, level="ordered", after_grappler=True)
    assert is_final(result.graph_def)
    verification = memopt.verify(item, result.graph_def, timing_rounds=0)
    assert verification.mode == "as-is"
    assert verification.equal
    assert not verification.grappler_changes


def test_what_the_step_does_not_need_stays() -> None:
    step = SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    result = memopt.optimize(item, level="ordered", after_grappler=True)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(result.graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(step.initializer)
            feed = dict(zip(step.feed, step.inputs, strict=True))
            assert session.run(step.fetch[0], feed) > 0


def test_a_final_graph_stays_what_it_is() -> None:
    once = memopt.optimize(_item("mlp"), level="ordered", after_grappler=True)
    item = _item("mlp")
    again = GrapplerItem(once.graph_def, item.feed, item.fetch, variables=item.variables)
    twice = memopt.optimize(again, level="ordered", after_grappler=True)
    assert {node.name for node in twice.graph_def.node} == {
        node.name for node in once.graph_def.node
    }


def test_where_grappler_is_off_there_is_nothing_to_rewrite() -> None:
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        with pytest.raises(OptionsError, match="after_grappler: Grappler is off"):
            memopt.optimize(_item("mlp"), after_grappler=True)
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
