"""Plans on numbers: which order, what to compute again, what to swap, under a budget. No graph."""
