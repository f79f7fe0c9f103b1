"""Values for a step's inputs and variables: those that are given, the rest made up."""

from __future__ import annotations

import hashlib
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from memopt.errors import OptionsError
from memopt.runtime.values import copy_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    import numpy.typing as npt

    from memopt.runtime.step_graph import TensorSpec

    Array = npt.NDArray[Any]

_POSITIVE = re.compile(r"variance|velocity|second_moment|accumulator|rms|adam_1", re.IGNORECASE)
_SCALE = 0.05


def complete_values(
    role: str,
    specs: Mapping[str, TensorSpec],
    given: Mapping[str, Any],
    seed: int,
    positive: Container[str] = frozenset(),
) -> Mapping[str, Array]:
    """A value for each of `specs`: the given one, or one made up from the seed and the name.

    Args:
        role: What the values are ("input", "variable"), for messages.
        specs: Types and shapes by name.
        given: Values by name.
        seed: What the made-up values come from.
        positive: Names of those that are made up without negative numbers.

    Raises:
        OptionsError: A given value is for nothing in `specs` or does not fit, or a value must be
            given because a dimension is not known.
    """
    unknown = sorted(set(given) - set(specs))
    if unknown:
        raise OptionsError(f"a value is given for {', '.join(unknown)}, which is no {role}")
    values = {
        name: _fitting(role, name, spec, given[name])
        if name in given
        else _made_up(role, name, spec, seed, positive=name in positive)
        for name, spec in specs.items()
    }
    return MappingProxyType(values)


def make_up(
    name: str, dtype: np.dtype[Any], shape: Sequence[int], seed: int, *, positive: bool = False
) -> Array:
    """A value that depends on the seed and the name alone.

    Floating-point numbers are small and normal, positive for scalars (rates, factors) and where
    the name says that it is a variance or another mean of squares. Integers and booleans are 0 or
    1, which are valid classes and indices almost everywhere; scalars of those types are 1.

    Args:
        name: Name of the tensor or variable.
        dtype: The element type.
        shape: Dimensions in elements.
        seed: What distinguishes one set of values from another.
        positive: Whether floating-point numbers must not be negative.

    Raises:
        OptionsError: There is nothing sensible of that type.
    """
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    random = np.random.default_rng(int.from_bytes(digest, "little"))
    if dtype.kind in "iub":
        drawn = random.integers(0, 2, shape) if shape else np.ones(())
        return np.asarray(drawn).astype(dtype)
    numeric = dtype.kind in "fc" or (dtype.kind == "V" and dtype.names is None)
    if not numeric or dtype.hasobject:
        raise OptionsError(f"no value can be made up for {name} of type {dtype.name}: give one")
    normal = np.asarray(random.standard_normal(shape) * _SCALE)
    if positive or not shape or _POSITIVE.search(name):
        normal = np.abs(normal) + _SCALE
    return normal.astype(dtype)


def _fitting(role: str, name: str, spec: TensorSpec, value: Any) -> Array:
    dtype = _numpy_dtype(spec)
    array = copy_of(np.asarray(value, object) if dtype.hasobject else value)
    # Python's own numbers and lists have no type to insist on.
    if not hasattr(value, "dtype"):
        array = array.astype(dtype)
    if not dtype.hasobject and array.dtype != dtype:
        raise OptionsError(
            f"{role} {name} is of type {dtype.name}, but its value of {array.dtype.name}"
        )
    if not _shape_fits(array.shape, spec.shape):
        raise OptionsError(
            f"{role} {name} has shape {_spell(spec.shape)}, but its value {_spell(array.shape)}"
        )
    return _as_bytes(array) if dtype.hasobject else array


def _as_bytes(texts: Array) -> Array:
    """Texts as TensorFlow returns them."""
    encoded = [text.encode() if isinstance(text, str) else bytes(text) for text in texts.flat]
    return np.array(encoded, object).reshape(texts.shape)


def _made_up(role: str, name: str, spec: TensorSpec, seed: int, *, positive: bool) -> Array:
    if spec.shape is None or -1 in spec.shape:
        raise OptionsError(
            f"the shape of {role} {name} is not fully known, {_spell(spec.shape)}:"
            f" give its value, {role}s={{{name!r}: array}}"
        )
    return make_up(name, _numpy_dtype(spec), spec.shape, seed, positive=positive)


def _numpy_dtype(spec: TensorSpec) -> np.dtype[Any]:
    import tensorflow as tf

    dtype: np.dtype[Any] = np.dtype(tf.dtypes.as_dtype(spec.dtype).as_numpy_dtype)
    return dtype


def _shape_fits(shape: tuple[int, ...], wanted: tuple[int, ...] | None) -> bool:
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(
        known in {-1, size} for size, known in zip(shape, wanted, strict=True)
    )


def _spell(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "(unknown)"
    return f"({', '.join('?' if size == -1 else str(size) for size in shape)})"
