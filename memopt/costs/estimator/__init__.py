"""Grappler's analytical cost model: what operations compute and move, and how fast."""

from memopt.costs.estimator.grappler_costs import GrapplerCosts as GrapplerCosts
