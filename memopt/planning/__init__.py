"""Plans on numbers: which order, what to recompute, what to swap, under a budget. No graph."""
