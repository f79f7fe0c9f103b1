"""Two runs of a step, compared bit for bit, and how far apart they may be."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from memopt.display import DisplayedFields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Role = Literal["output", "variable"]

GRAPPLER_FACTOR = 4
"""How many times Grappler's own change a tensor may differ.

A rewrite changes which of Grappler's rewrites apply, so its change is of the same kind and size,
but not the same: one that Grappler makes and one that it no longer makes add up, and a maximum
over few steps is itself uncertain.
"""


@dataclass(frozen=True, repr=False)
class Difference(DisplayedFields):
    """A tensor that is not the same in two runs.

    Attributes:
        name: The output (`"loss:0"`) or the variable's node.
        role: "output" or "variable".
        step: The step whose output it is, from 0; for variables how many steps were run.
        differing_elements: Elements with other bits.
        elements: All elements.
        max_abs_difference: The largest difference between two elements; infinite where one of them
            is not a number, `None` where there are no numbers or the shapes differ.
        magnitude: The largest finite absolute value in the original.
        tolerance: The largest difference that is accepted; 0 where bits are compared.
    """

    name: str
    role: Role
    step: int
    differing_elements: int
    elements: int
    max_abs_difference: float | None
    magnitude: float
    tolerance: float = 0.0

    @property
    def tolerated(self) -> bool:
        """Whether the difference is within its tolerance."""
        return self.max_abs_difference is not None and self.max_abs_difference <= self.tolerance

    def __str__(self) -> str:
        where = f"{self.role} {self.name} (step {self.step})"
        elements = f"{self.differing_elements} of {self.elements} elements differ"
        return f"{where}: {elements}, by at most {self.max_abs_difference}"

    def to_json(self) -> dict[str, Any]:
        """Plain data; a difference that is not finite becomes text, which JSON can carry."""
        plain = dataclasses.asdict(self) | {"tolerated": self.tolerated}
        largest = self.max_abs_difference
        if largest is not None and not math.isfinite(largest):
            plain["max_abs_difference"] = str(largest)
        return plain


def compare_values(
    role: Role, step: int, original: Mapping[str, Array], other: Mapping[str, Array]
) -> list[Difference]:
    """The tensors of one step (or the variables after all) that are not the same to the bit.

    A tensor that one side lacks counts as different in every element.
    """
    found = []
    for name in dict.fromkeys((*original, *other)):
        difference = _compare(role, step, name, original.get(name), other.get(name))
        if difference is not None:
            found.append(difference)
    return found


def tolerate(
    differences: Iterable[Difference], grappler_changes: Iterable[Difference]
) -> list[Difference]:
    """The differences, each with what it may be, given what Grappler alone changes.

    A tensor may differ by `GRAPPLER_FACTOR` times the largest of

    1. what Grappler alone changes in the same tensor, in any step, and
    2. the relative change that Grappler typically makes (the median over the tensors that it
       changes) times the tensor's own magnitude.

    What is no floating-point change (a NaN or infinity against a number, another shape, a text)
    is never accepted.
    """
    finite = [change for change in grappler_changes if _is_finite(change)]
    own: dict[str, float] = {}
    for change in finite:
        assert change.max_abs_difference is not None
        own[change.name] = max(own.get(change.name, 0.0), change.max_abs_difference)
    relative = [_relative(change) for change in finite if change.magnitude > 0]
    typical = float(np.median(relative)) if relative else 0.0
    return [
        dataclasses.replace(
            difference,
            tolerance=GRAPPLER_FACTOR
            * max(own.get(difference.name, 0.0), typical * difference.magnitude),
        )
        for difference in differences
    ]


def _compare(
    role: Role, step: int, name: str, original: Array | None, other: Array | None
) -> Difference | None:
    if original is None or other is None:
        elements = original.size if original is not None else other.size if other is not None else 0
        return Difference(name, role, step, elements, elements, None, 0.0)
    if original.dtype != other.dtype or original.shape != other.shape:
        return Difference(name, role, step, original.size, original.size, None, 0.0)
    differing = _differing_elements(original, other)
    count = int(np.count_nonzero(differing))
    if not count:
        return None
    return Difference(
        name=name,
        role=role,
        step=step,
        differing_elements=count,
        elements=original.size,
        max_abs_difference=_max_abs_difference(original[differing], other[differing]),
        magnitude=_magnitude(original),
    )


def _differing_elements(original: Array, other: Array) -> Array:
    if original.dtype.hasobject:
        return np.asarray(original != other)
    if original.tobytes() == other.tobytes():
        return np.zeros(original.shape, bool)
    differing: Array = (_bits(original) != _bits(other)).any(axis=-1)
    return differing.reshape(original.shape)


def _bits(value: Array) -> Array:
    flat = np.ascontiguousarray(value).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, value.dtype.itemsize)


def _max_abs_difference(original: Array, other: Array) -> float | None:
    """Of arrays that differ in every element."""
    if original.dtype.hasobject:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(np.abs(_wide(original) - _wide(other)).max())
    return math.inf if math.isnan(largest) else largest


def _magnitude(value: Array) -> float:
    if value.dtype.hasobject or not value.size:
        return 0.0
    sizes = np.abs(_wide(value))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def _wide(value: Array) -> Array:
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _is_finite(difference: Difference) -> bool:
    largest = difference.max_abs_difference
    return largest is not None and math.isfinite(largest)


def _relative(difference: Difference) -> float:
    assert difference.max_abs_difference is not None
    return difference.max_abs_difference / difference.magnitude
