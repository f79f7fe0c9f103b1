"""The demonstration: training runs out of memory, and rewritten it runs to the end."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from memopt.allocator.training import AllocatorLimit
from memopt.api import optimize
from memopt.display import Displayed, Overview, bytes_text
from memopt.errors import OptionsError, OutOfMemoryError
from memopt.models import MODELS
from memopt.options import Budget, Level
from memopt.progress import task
from memopt.runtime.entry import as_program, verify
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings
from memopt.runtime.values import load_values

if TYPE_CHECKING:
    from memopt.result import OptimizationReport
    from memopt.runtime.program import Program
    from memopt.runtime.verification import Verification

BUDGET = "40%"
STEPS = 5
_ROOM = 1.25
"""The allocator's limit over the budget: it hands out memory in chunks that are larger than what
was asked for, and what is left between them is of no use for something large."""
_FAILURE_LENGTH = 160
_MEBIBYTE = 1 << 20


class Training(NamedTuple):
    """A training loop that was run for real.

    Attributes:
        losses: The loss of each step that ended.
        failure: Why it did not run to the end, "" if it did.
    """

    losses: tuple[float, ...]
    failure: str = ""

    def __str__(self) -> str:
        losses = ", ".join(f"{loss:.6f}" for loss in self.losses)
        if not self.failure:
            return f"losses {losses}"
        done = f"after {len(self.losses)} steps ({losses})" if losses else "in the first step"
        return f"OUT OF MEMORY {done}: {' '.join(self.failure.split())[:_FAILURE_LENGTH]}"


@dataclass(frozen=True, repr=False)
class Demonstration(Displayed):
    """What the demonstration did and measured.

    Attributes:
        report: How the step was made to keep to the budget.
        limit_bytes: What the allocator was allowed to use in the limited runs.
        unlimited: The original, without a limit.
        original: The original, with the limit.
        rewritten: The rewritten step, with the limit.
        verification: The original without a limit and the rewritten step with it, compared.
    """

    report: OptimizationReport
    limit_bytes: int
    unlimited: Training
    original: Training
    rewritten: Training
    verification: Verification

    def lines(self) -> list[str]:
        """What happened, for people; a line each."""
        limit = f"limit of {bytes_text(self.limit_bytes)}"
        return [
            f"original, no limit: {self.unlimited}",
            f"original, {limit}: {self.original}",
            f"rewritten, {limit}: {self.rewritten}",
        ]

    def _overview(self) -> Overview:
        return Overview("Demonstration", "training under a memory limit", (), tuple(self.lines()))


def run(model: str, budget: str = BUDGET, steps: int = STEPS) -> Demonstration:
    """Train a model under a memory limit that its step does not fit in, then rewritten.

    Each training loop runs in a process of its own, from the same variables and data.

    Args:
        model: One of `MODELS`.
        budget: What the rewritten step may use; the allocator's limit is somewhat higher.
        steps: Steps of the loop.

    Raises:
        OptionsError: There is no such model, or the budget is none.
        BudgetError: The budget cannot be kept.
        ExecutionError: A run failed otherwise than expected.
    """
    if model not in MODELS:
        raise OptionsError(f"there is no model {model!r}; the models: {', '.join(MODELS)}")
    step = MODELS[model]()
    ordered = optimize(step.function, level=Level.ORDERED).report.runtime
    if ordered is None:
        raise AssertionError("a step was ordered without looking at the memory")
    before = ordered.before
    budget_bytes = Budget.parse(budget).limit_bytes(before.held_bytes, before.step_peak_bytes)
    limit_bytes = ceil(budget_bytes * _ROOM / _MEBIBYTE) * _MEBIBYTE
    # What keeps to the budget by its sum may find no room under the limit in some step.
    spare_bytes = AllocatorLimit.with_spare(limit_bytes).spare_bytes
    room = f"rematerialization{{allocator_limit={limit_bytes},allocator_spare={spare_bytes}}}"
    result = optimize(step.function, budget=budget_bytes, pass_options=(room,))
    original = as_program(step.function, step.inputs)
    rewritten = original.replace_graph(result.graph_def)
    limited = Settings(memory_limit_bytes=limit_bytes)
    return Demonstration(
        report=result.report,
        limit_bytes=limit_bytes,
        unlimited=_train(original, Settings(), steps),
        original=_train(original, limited, steps),
        rewritten=_train(rewritten, limited, steps),
        verification=verify(
            original, rewritten, steps=steps, memory_limit_bytes=limit_bytes, timing_rounds=3
        ),
    )


def _train(program: Program, settings: Settings, steps: int) -> Training:
    """Run steps one after the other, each from where the last one left the variables."""
    losses: list[float] = []
    limited = "with the memory limit" if settings.memory_limit_bytes else "without a limit"
    try:
        with (
            step_process(program, settings) as process,
            task(f"training {limited}", steps) as under_way,
        ):
            for _ in range(steps):
                (outputs,) = process.run(1)
                values = load_values(outputs).values()
                losses.append(next(float(value) for value in values if not value.ndim))
                under_way.advance()
    except OutOfMemoryError as error:
        return Training(tuple(losses), str(error))
    return Training(tuple(losses))
