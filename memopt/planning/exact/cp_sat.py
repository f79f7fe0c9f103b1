"""Runs CP-SAT so that it does the same every time: one thread, its own count of work."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from memopt.planning.exact.model import Found, Model


class Answer(NamedTuple):
    """What came of a model.

    Attributes:
        found: A solution, if there is one.
        least: No solution costs less.
        is_impossible: Whether it is proved that there is none.
        is_finished: Whether the clock did not stop it.
    """

    found: Found | None
    least: int
    is_impossible: bool
    is_finished: bool


def solve(model: Model, work: float, *, seed: int, deadline_s: float, proves: bool) -> Answer:
    """Solve a model as far as some work goes.

    Args:
        model: What is solved.
        work: How much is done at most; a unit takes some seconds.
        seed: Of the solver.
        deadline_s: When to stop at the latest, by `time.monotonic`.
        proves: Whether to prepare for a proof: variables are tried out, and relaxed.
    """
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        return Answer(None, 0, is_impossible=False, is_finished=False)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = seed % (1 << 31)
    parameters.max_deterministic_time = work
    if not proves:
        # Measured: half of the time for windows, and more found in them.
        parameters.cp_model_probing_level = 0
        parameters.symmetry_level = 0
        parameters.linearization_level = 0
        parameters.max_presolve_iterations = 1
    if left_s < math.inf:
        parameters.max_time_in_seconds = left_s
    status = solver.solve(model.model)
    is_solved = status in {cp_model.OPTIMAL, cp_model.FEASIBLE}
    is_decided = status in {cp_model.OPTIMAL, cp_model.INFEASIBLE, cp_model.MODEL_INVALID}
    return Answer(
        model.found(solver) if is_solved else None,
        # A bound on what is whole; the solver's is a little imprecise.
        max(0, math.ceil(solver.best_objective_bound - 1e-6)) if is_solved else 0,
        is_impossible=status == cp_model.INFEASIBLE,
        is_finished=is_decided or time.monotonic() < deadline_s,
    )
