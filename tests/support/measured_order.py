"""A step in an order: as it is simulated, and as it runs in a fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import memopt
from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import MemoryTimeline, check_sequence, simulate
from memopt.graph.graphdef import from_graph_def
from memopt.graph.traversal import Numbering
from memopt.runtime.process import step_process
from memopt.runtime.program import Program
from memopt.runtime.step_graph import needed_nodes
from memopt.shapes.properties import Properties
from support.total_order import chained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.buffers.kernel_call import Runtime
    from memopt.result import RuntimeMemory
    from memopt.runtime.replay import Measurement
    from memopt.runtime.settings import Settings


def measure_ordered(
    function: ConcreteFunction, arguments: Sequence[Any]
) -> tuple[RuntimeMemory, Measurement]:
    """A function at level `ordered`: as predicted, and measured in the third of its steps."""
    program = Program.from_concrete_function(function, arguments)
    result = memopt.optimize(function, level="ordered")
    with step_process(program.replace_graph(result.graph_def)) as process:
        process.run(2)
        measured = process.measure()
    assert result.report.runtime is not None
    return result.report.runtime, measured


def measure_in_order(
    program: Program, settings: Settings | None = None, runtime: Runtime | None = None
) -> tuple[MemoryTimeline, Measurement]:
    """The nodes one after the other, simulated, and measured in the second of two steps.

    Args:
        program: The step; it is put into order.
        settings: How it runs.
        runtime: What its kernels are simulated on.
    """
    graph_def, order = chained(program.item.graph_def)
    program = program.replace_graph(graph_def)
    with step_process(program, settings) as process:
        process.run(2)
        measurement = process.measure()
    graph, item = from_graph_def(graph_def), program.item
    buffer_graph = buffer_graph_of(
        graph, Properties.of(item), fed=item.feed, fetched=item.fetch, runtime=runtime
    )
    needed = needed_nodes(graph_def, item.fetch, ())
    numbering = Numbering.of(graph)
    sequence = [numbering.place(graph[name]) for name in order if name in needed]
    check_sequence(buffer_graph, sequence)
    return simulate(buffer_graph, sequence), measurement
