"""Cost models by name or file, as options give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator import GrapplerCosts
from memopt.costs.fixed import FixedCosts
from memopt.costs.kernel_costs import KernelCosts
from memopt.costs.native import NativeCosts
from memopt.costs.profiled import ProfiledCosts

if TYPE_CHECKING:
    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem

AUTO = "auto"
"""Grappler's model where a step is simulated as Grappler does it, `KernelCosts` for plans."""
GRAPPLER = "grappler"
NATIVE = "native"


def choose_costs(choice: CostModel | str, item: GrapplerItem) -> CostModel:
    """The cost model of the simulated timeline that an option means for an item.

    Args:
        choice: A model; "auto" or "grappler", Grappler's model; "native", the same numbers asked
            from TensorFlow; or a file: a table of times (.json), or a profile of the step
            (RunMetadata).
        item: The graph and its use.

    Raises:
        FileError: There is no such file, or it holds neither.
    """
    if not isinstance(choice, str):
        return choice
    if choice in (AUTO, GRAPPLER):
        return GrapplerCosts()
    if choice == NATIVE:
        return NativeCosts(item, GrapplerCosts())
    if choice.endswith(".json"):
        return FixedCosts.load(choice, KernelCosts())
    return ProfiledCosts([choice], item, KernelCosts())


def choose_planning_costs(choice: CostModel | str, item: GrapplerItem) -> CostModel:
    """The cost model by which an option has an item planned: how long operations really take.

    The same as that of the simulated timeline, but for "auto".

    Args:
        choice: As for `choose_costs`.
        item: The graph and its use.

    Raises:
        FileError: There is no such file, or it holds neither.
    """
    return KernelCosts() if choice == AUTO else choose_costs(choice, item)
