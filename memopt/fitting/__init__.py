"""Fitting a step into memory: the largest size of an open dimension whose plan fits, and proof."""
