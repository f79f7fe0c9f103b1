"""Functions of a SavedModel that XLA compiles, rewritten by asking XLA's own compiler here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.options import Budget
from memopt.runtime.program import Program
from memopt.xla.entry import PLANNING_SECONDS, CompiledOptions, rewrite_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.item import GrapplerItem
    from memopt.plugin.policy import Policy

COMPILED = "XLA compiles it"
"""What the reasons of all that is done here begin with."""
_OTHER_BITS = (
    f"{COMPILED}, and the nearest form that was found would compute other last bits: XLA rounds a "
    "product and a sum once where it computes both in one kernel, and twice where it does not; "
    "with XLA_FLAGS=--xla_cpu_max_isa=AVX, here and where the model runs, always twice on a CPU"
)
_NOT_WON = f"{COMPILED}, and no form was found that needs less"


class CompiledStep(NamedTuple):
    """What became of a function that XLA compiles.

    Attributes:
        graph_def: The form that was found; `None` for the original.
        reason: What was done, or why nothing was.
        held_bytes: What is there before the step: arguments and variables.
        before_bytes: The peak of the original, everything included, as the compiler has it.
        after_bytes: The same of what it is now.
        budget_bytes: What was asked for; 0 for no budget.
    """

    graph_def: GraphDef | None
    reason: str
    held_bytes: int
    before_bytes: int
    after_bytes: int
    budget_bytes: int


def rewrite_compiled_item(
    item: GrapplerItem, policy: Policy, variables: Mapping[str, npt.NDArray[Any]]
) -> CompiledStep:
    """The form of a step that keeps a budget, or comes nearest, once XLA has compiled it.

    Forms are compiled in a process of their own with this process's XLA flags. The one that is
    found and the original run for some steps, from the values that the model's variables have and
    on inputs that are made up, and have to compute the same bits.

    Args:
        item: The step, with all shapes known.
        policy: What is to be done.
        variables: Values of variables by node name; others are made up.

    Raises:
        OptionsError: A value cannot be made up, as of a table.
        ExecutionError: XLA does not compile it.
    """
    budget = None if policy.budget is None else Budget.parse(policy.budget)
    options = CompiledOptions(
        budget=budget,
        nearest=True,
        algorithm=policy.algorithm,
        scheduler=policy.scheduler,
        planning_seconds=policy.planning_seconds or PLANNING_SECONDS,
    )
    found = rewrite_program(
        Program.from_item(replace(item, compiled=True), variables=variables), options
    )
    original = found.search.original
    held_bytes = original.compiled.memory.argument_bytes
    is_won = found.form is not original
    edits = sum(len(report.edits) for report in found.form.reports)
    reason = f"{COMPILED}: {edits} edits, {len(found.search.forms)} forms compiled"
    if not is_won:
        reason = _OTHER_BITS if found.equal is False else _NOT_WON
    return CompiledStep(
        found.form.compiled.graph_def if is_won else None,
        reason,
        held_bytes,
        held_bytes + original.step_bytes,
        held_bytes + found.form.step_bytes,
        held_bytes + found.limit_bytes if found.limit_bytes else 0,
    )
