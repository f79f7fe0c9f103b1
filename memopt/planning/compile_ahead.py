"""Compiles the planner for other processes: `python -m memopt.planning.compile_ahead`."""

from __future__ import annotations

from memopt.compilation.ahead import compile_ahead
from memopt.compilation.jit import compile_for
from memopt.planning.annealing import compile_annealing, new_best, search_slice
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.edits import remove, undo
from memopt.planning.initial_plans import unchanged
from memopt.planning.problem import problem_of
from memopt.planning.searches import steps_of
from memopt.planning.sequence_state import fill, new_state


def start_compiling() -> None:
    """Have a process of its own compile the planner, if that was not done on this machine."""
    compile_ahead(__name__, search_slice)


def compile_planner() -> None:
    """Compile what is not in the cache folder yet: what plans need last first.

    A process that plans begins at the other end, and waits for what this one is at.
    """
    graph = CostGraph.build([Operation(1), Operation(1, inputs=((0, 0),))])
    problem = problem_of(graph)
    state = new_state(problem, 0, 0)
    compile_annealing(problem, state)
    compile_for(undo, problem, state, 0)
    compile_for(remove, problem, state, 0)
    for steps in (unchanged(graph.order), steps_of(new_best(state))):
        compile_for(fill, problem, state, *steps)


if __name__ == "__main__":
    compile_planner()
