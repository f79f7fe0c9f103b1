"""GrapplerCosts: the time of a node as Grappler's analytical estimator predicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator.analytical_costs import AnalyticalCosts
from memopt.costs.estimator.registry import FORMULAS

if TYPE_CHECKING:
    from memopt.costs.cost_model import Cost
    from memopt.costs.estimator.device_rates import DeviceRates
    from memopt.costs.estimator.op_info import Work


class GrapplerCosts(AnalyticalCosts):
    """TensorFlow's `OpLevelCostEstimator`: arithmetic and memory traffic by the device's rates.

    The same nanoseconds as TensorFlow 2.21, but for sizes beyond 63 bits, where its integers
    overflow, and for a Softmax over a number of rows that is not known, which it takes for a
    negative number of its own.
    """

    def __init__(self) -> None:
        super().__init__(FORMULAS, _price)


def _price(_op: str, work: Work, rates: DeviceRates) -> Cost:
    return rates.cost(work)
