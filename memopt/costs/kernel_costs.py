"""KernelCosts: the time of a node as TensorFlow's kernels take it, which is what plans go by."""

from __future__ import annotations

from memopt.costs.estimator.analytical_costs import AnalyticalCosts
from memopt.costs.kernel_rates import KERNEL_FORMULAS, kernel_price


class KernelCosts(AnalyticalCosts):
    """Grappler's analytical model with all ops of a step, and with rates of their kernels.

    Of steps as Grappler leaves them, what one kind of operation takes beside another is off by
    three to eleven times at most, where Grappler's own model is off by hundreds. It is for what is
    planned: the simulated timeline, and what is compared with Grappler, goes by `GrapplerCosts`.
    """

    def __init__(self) -> None:
        super().__init__(KERNEL_FORMULAS, kernel_price)
