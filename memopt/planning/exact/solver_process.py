"""CP-SAT in a process of its own: beside TensorFlow's libraries it ends the process by a fault."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from memopt.errors import MemoptError
from memopt.interpreter import command_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.planning.bounds import Bounds
    from memopt.planning.exact.refinement import Refined
    from memopt.planning.problem import Problem


class Call(NamedTuple):
    """What the process is asked for; see `Refining`.

    Attributes:
        problem: What is planned.
        bounds: Its bounds.
        seed: Of the solver and of the windows.
        left_s: Seconds until it has to stop.
        operations: A sequence without the end of the step.
        swapped: For each of its steps, 1 if it is a swap in.
        room: The budget, without what is held throughout.
        spare_cost: What the sequence costs on top of computing everything once; `None` if it is
            over the budget.
        least_cost: What every plan costs at least on top of that.
    """

    problem: Problem
    bounds: Bounds
    seed: int
    left_s: float
    operations: Sequence[int]
    swapped: Sequence[int]
    room: int
    spare_cost: int | None
    least_cost: int


def refine_apart(call: Call) -> Refined:
    """Let a fresh process refine a sequence.

    Raises:
        MemoptError: The process did not come to its end.
    """
    ended = subprocess.run(  # noqa: S603 - this interpreter and a module of our own
        command_for(__name__),
        input=pickle.dumps(call),
        capture_output=True,
        check=False,
    )
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        why = lines[-1] if lines else f"exit status {ended.returncode}"
        raise MemoptError(f"the process of the exact planner ended early: {why}")
    # What it wrote is an answer of our own to our own question.
    refined: Refined = pickle.loads(ended.stdout)  # noqa: S301
    return refined


def serve() -> None:
    """Answer the call on the standard input."""
    from memopt.planning.exact.refinement import Refining

    call: Call = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this one
    deadline_s = time.monotonic() + call.left_s if call.left_s < math.inf else math.inf
    refined = Refining(call.problem, call.bounds, call.seed, deadline_s).refine(
        call.operations,
        call.swapped,
        call.room,
        spare_cost=call.spare_cost,
        least_cost=call.least_cost,
    )
    sys.stdout.buffer.write(pickle.dumps(refined))


if __name__ == "__main__":
    serve()
