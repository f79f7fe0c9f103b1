"""The passes, in the order in which the optimizer runs them."""

from memopt.passes.base import Context, Pass
from memopt.passes.recomputation import Recomputation

PASSES: tuple[type[Pass], ...] = (
    # First: it reads the graph as the user wrote it, and adds what later passes have to place.
    Recomputation,
)

__all__ = ["PASSES", "Context", "Pass", "Recomputation"]
