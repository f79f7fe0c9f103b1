"""Shapes as values: which are certain."""
