"""The demonstration: a real training step, rewritten and run for real."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.errors import OptionsError
from memopt.models import MODELS
from memopt.optimizer import optimize
from memopt.runtime.entry import verify

if TYPE_CHECKING:
    from memopt.result import OptimizationReport
    from memopt.runtime.verification import Verification


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration did and measured."""

    report: OptimizationReport
    verification: Verification


def run(model: str) -> Demonstration:
    """Build a model's training step, recompute in its gradients, run both forms and compare.

    Raises:
        OptionsError: There is no such model.
    """
    if model not in MODELS:
        raise OptionsError(f"there is no model {model!r}; the models: {', '.join(MODELS)}")
    step = MODELS[model]()
    result = optimize(step.function, target_scope="auto")
    verification = verify(step.function, result.graph_def, inputs=step.inputs)
    return Demonstration(result.report, verification)
