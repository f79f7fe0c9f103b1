"""Simulations that passes share: one for each state of a graph, whoever asks how often."""

from __future__ import annotations

from support.small_steps import TableCosts, sized

from memopt.cluster import VirtualCluster
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import parse_graph
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request


def test_a_graph_is_simulated_once_until_it_changes() -> None:
    graph = parse_graph("x = Placeholder()\na = Neg(x)\nb = Neg(a)\nc = Neg(b)")
    scheduler = VirtualScheduler(
        VirtualCluster(["CPU:0=CPU"]), TableCosts({}), sized(dict.fromkeys("xabc", 8))
    )
    simulated = SimulatedMemory(graph, scheduler, Request(("c",), frozenset({"x"})))
    assert simulated.count == 0
    first = simulated.simulation()
    simulated.peak_bytes()
    simulated.memory()
    assert simulated.simulation() is first
    assert simulated.count == 1

    rewriter = Rewriter(graph)
    with rewriter.edit("c waits for x"):
        rewriter.add_control_input(graph["c"], graph["x"])
    assert simulated.simulation() is not first
    simulated.peak_bytes()
    assert simulated.count == 2
