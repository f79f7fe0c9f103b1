"""Cost models by name or file, as options give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator import GrapplerCosts
from memopt.costs.fixed import FixedCosts
from memopt.costs.native import NativeCosts
from memopt.costs.profiled import ProfiledCosts

if TYPE_CHECKING:
    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem

GRAPPLER = "grappler"
NATIVE = "native"


def choose_costs(choice: CostModel | str, item: GrapplerItem) -> CostModel:
    """The cost model that an option means for an item.

    Args:
        choice: A model; "grappler", the analytical model; "native", the same numbers asked from
            TensorFlow; or a file: a table of times (.json), or a profile of the step (RunMetadata).
        item: The graph and its use.

    Raises:
        FileError: There is no such file, or it holds neither.
    """
    if not isinstance(choice, str):
        return choice
    analytical = GrapplerCosts()
    if choice == GRAPPLER:
        return analytical
    if choice == NATIVE:
        return NativeCosts(item, analytical)
    if choice.endswith(".json"):
        return FixedCosts.load(choice, analytical)
    return ProfiledCosts([choice], item, analytical)
