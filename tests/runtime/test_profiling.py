"""Profiles of real steps: what they know, what they leave alone, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf
from support.bad_inputs import graph_def_of
from support.steps import tiny_step

from memopt.cluster import Device
from memopt.costs.cost_model import Cost
from memopt.costs.profiled import ProfiledCosts
from memopt.errors import ExecutionError, OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.models import SESSION_MODELS, TINY
from memopt.runtime.profiling import profile
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.graph.graph import Graph, Node

CPU = Device.parse("CPU:0=CPU")
UNKNOWN = Cost(0, 0, 0, inaccurate=True)


class Unknown:
    """A fallback that knows nothing."""

    def cost(self, _node: Node, _device: Device, _properties: Properties) -> Cost:
        return UNKNOWN


def executed(graph: Graph, fetch: tuple[str, ...]) -> set[str]:
    """The names of all nodes that lead to a fetch."""
    found: set[str] = set()
    pending = [graph[name.partition(":")[0]] for name in fetch]
    while pending:
        node = pending.pop()
        if node.name not in found:
            found.add(node.name)
            pending += [tensor.node for tensor in node.inputs]
            pending += node.control_inputs
    return found


@pytest.mark.parametrize("model", ["mlp", "lstm", "gpt"])
def test_a_profile_knows_every_node_that_runs(model: str) -> None:
    """Loops as well, which TensorFlow dissolves."""
    function = tiny_step(model).function
    item = GrapplerItem.from_concrete_function(function)
    graph, properties = from_graph_def(item.graph_def), Properties.of(item)
    profiles = profile(function, steps=3)
    assert len(profiles) == 3
    costs = ProfiledCosts(profiles, item, Unknown())
    running = executed(graph, item.fetch)
    assert running - set(costs.times_ns("CPU")) == set()
    assert len(running) > 200
    for name in running:
        cost = costs.cost(graph[name], CPU, properties)
        assert cost.execution_ns > 0
        assert not cost.inaccurate


def test_a_loop_takes_the_time_of_its_body() -> None:
    function = tiny_step("lstm").function
    item = GrapplerItem.from_concrete_function(function)
    times_ns = ProfiledCosts(profile(function, steps=3), item, Unknown()).times_ns("CPU")
    loops = [node.name for node in item.graph_def.node if "While" in node.op]
    assert len(loops) > 1
    others = [time for name, time in times_ns.items() if name not in loops]
    assert min(times_ns[name] for name in loops) > sorted(others)[len(others) // 2] * 10


def test_a_session_step_is_profiled_with_its_initializer() -> None:
    step = SESSION_MODELS["convnet_v1"](**TINY["convnet_v1"])
    item = GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)
    program = Program.from_item(item, initializer=step.initializer)
    profiles = profile(program, steps=1)
    times_ns = ProfiledCosts(profiles, item, Unknown()).times_ns("CPU")
    assert executed(from_graph_def(item.graph_def), item.fetch) - set(times_ns) == set()


def test_the_callers_variables_stay_as_they_are() -> None:
    variable = tf.Variable(tf.zeros([4]))

    function = tf.function(variable.assign_add).get_concrete_function(tf.TensorSpec([4]))
    profile(function, steps=2, inputs=[np.ones(4, np.float32)])
    assert variable.numpy().tolist() == [0, 0, 0, 0]


def test_given_inputs_are_those_that_run() -> None:
    """A step that fails for some inputs shows it."""
    graph_def = graph_def_of(
        "rows = Placeholder() {dtype=float, shape=[?]}\n"
        'checked = CheckNumerics(rows) {T=float, message="seen"}\n'
    )
    good, bad = np.ones(3, np.float32), np.full(3, np.nan, np.float32)
    metadata = profile(graph_def, steps=1, inputs={"rows:0": good}, fetch=["checked:0"])
    names = [n.node_name for d in metadata[0].step_stats.dev_stats for n in d.node_stats]
    assert "checked" in names
    with pytest.raises(ExecutionError, match=r"^the step cannot be run: .*seen"):
        profile(graph_def, steps=1, inputs={"rows:0": bad}, fetch=["checked:0"])


def test_what_gives_no_profile_is_refused() -> None:
    graph_def = graph_def_of("x = Placeholder() {dtype=float, shape=[?]}\ny = Relu(x) {T=float}")
    with pytest.raises(OptionsError, match=r"^0 steps give no profile"):
        profile(graph_def, steps=0)
    with pytest.raises(OptionsError, match="the shape of input x:0 is not fully known"):
        profile(graph_def)
