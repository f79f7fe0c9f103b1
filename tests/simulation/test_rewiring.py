"""A simulation after an edit is what a simulation from scratch gives."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from support.native_simulation import GPU, gpu
from support.random_graphs import random_training_graph

from memopt.cluster import VirtualCluster
from memopt.costs.estimator import GrapplerCosts
from memopt.graph.graph import Graph
from memopt.graph.graphdef import from_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.traversal import Numbering
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.simulation.graph_memory import GraphMemory
from memopt.simulation.rewiring import rewire
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.simulation.simulation import Simulation

EDITS = 12
REQUEST = Request(("train",), frozenset())


class Edited:
    """A random graph with a scheduler, and random edits of it."""

    def __init__(self, seed: int) -> None:
        graph_def = random_training_graph(seed)
        for node in graph_def.node:
            node.device = ""
        self.choice = random.Random(seed)
        self.graph = from_graph_def(graph_def)
        self.properties = Properties.of(GrapplerItem(graph_def, fetch=("train",)))
        cluster = VirtualCluster([gpu()])
        self.scheduler = VirtualScheduler(cluster, GrapplerCosts(), self.properties)

    def edit(self) -> None:
        """One edit of a random kind; later nodes read from earlier ones, so there is no cycle."""
        numbering = Numbering.of(self.graph)
        order = [numbering.nodes[place] for place in numbering.order]
        early, late = sorted(self.choice.sample(range(len(order)), 2))
        source, reader = order[early], order[late]
        rewriter = Rewriter(self.graph)
        with rewriter.edit("at random"):
            kind = self.choice.randrange(3)
            if kind == 0 and reader.inputs:
                self._insert_copy(rewriter, reader)
            elif kind == 1 and reader.inputs and self.properties.outputs(source.name):
                slot = self.choice.randrange(len(reader.inputs))
                rewriter.set_input(reader, slot, source.output(0))
            else:
                rewriter.add_control_input(reader, source)

    def _insert_copy(self, rewriter: Rewriter, reader: Node) -> None:
        slot = self.choice.randrange(len(reader.inputs))
        tensor = reader.inputs[slot]
        copy = rewriter.add_node(
            f"copy{len(self.graph)}",
            "Identity",
            inputs=[tensor],
            attributes={"T": tensor.node.attributes["T"]} if "T" in tensor.node.attributes else {},
        )
        outputs = self.properties.outputs(tensor.node.name)
        self.properties.add(copy.name, outputs[tensor.port : tensor.port + 1])
        rewriter.set_input(reader, slot, copy.output(0))


def seen(simulation: Simulation) -> object:
    """All that a simulation says, by names."""
    wiring = simulation.wiring
    return (
        [
            (wiring.name(number), simulation.starts_ns[number], simulation.ends_ns[number])
            for number in simulation.executed
        ],
        simulation.temporary_peak_bytes(GPU),
        GraphMemory(simulation).peak(GPU),
    )


@pytest.mark.parametrize("seed", range(20))
def test_edits_give_what_a_new_simulation_gives(seed: int) -> None:
    edited = Edited(seed)
    simulation = edited.scheduler.run(edited.graph, REQUEST)
    for _ in range(EDITS):
        version = edited.graph.version
        edited.edit()
        touched = edited.graph.touched_since(version)
        assert touched is not None
        simulation = edited.scheduler.run_again(simulation, edited.graph, REQUEST, touched)
        assert seen(simulation) == seen(edited.scheduler.run(edited.graph, REQUEST))


def test_most_edits_need_no_new_wiring() -> None:
    """The comparison above is not of two simulations from scratch."""
    kept = total = 0
    for seed in range(10):
        edited = Edited(seed)
        simulation = edited.scheduler.run(edited.graph, REQUEST)
        for _ in range(EDITS):
            version = edited.graph.version
            edited.edit()
            touched = edited.graph.touched_since(version)
            assert touched is not None
            wiring = simulation.wiring
            simulation = edited.scheduler.run_again(simulation, edited.graph, REQUEST, touched)
            kept += simulation.wiring is wiring
            total += 1
    assert kept > total / 2


def test_a_node_that_is_taken_out_needs_a_new_wiring() -> None:
    edited = Edited(0)
    simulation = edited.scheduler.run(edited.graph, REQUEST)
    rewriter = Rewriter(edited.graph)
    with rewriter.edit("a node that nobody reads"):
        extra = rewriter.add_node("extra", "NoOp")
    version = edited.graph.version
    with rewriter.edit("and out again"):
        rewriter.remove_node(extra)
    touched = edited.graph.touched_since(version)
    assert touched == (extra,)
    assert rewire(simulation.wiring, edited.graph, REQUEST, touched) is None


def test_a_graph_remembers_what_was_touched_since_it_was_loaded() -> None:
    graph = Graph()
    node = graph.add_node("a", "NoOp", attributes={})
    assert graph.touched_since(0) == (node,)
    graph.mark_loaded()
    loaded = graph.version
    assert graph.touched_since(loaded) == ()
    assert graph.touched_since(0) is None
    graph.set_state(node, node.state._replace(device="/device:CPU:0"))
    graph.set_state(node, node.state._replace(device=""))
    assert graph.touched_since(loaded) == (node,)
    assert graph.version > loaded
