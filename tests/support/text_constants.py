"""Constants as lines of a graph's text."""

from __future__ import annotations


def numbers(name: str, *values: int) -> str:
    """A vector of integers."""
    listed = " ".join(f"int_val: {value}" for value in values)
    return _constant(name, f"dim {{ size: {len(values)} }}", listed)


def number(name: str, value: int) -> str:
    """One integer."""
    return _constant(name, "", f"int_val: {value}")


def _constant(name: str, dimensions: str, values: str) -> str:
    tensor = f"dtype: DT_INT32 tensor_shape {{ {dimensions} }} {values}"
    return f"{name} = Const() {{dtype=int32, value=<tensor {{ {tensor} }}>}}"
