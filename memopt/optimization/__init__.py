"""How passes are run on a graph, what is tried for a budget, and what a refusal says."""
