"""Shapes as values: which are certain, and what small integer operations make of them."""
