"""Values are compared bit for bit, and against what Grappler alone changes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from memopt.runtime.comparison import GRAPPLER_FACTOR, Difference, compare_values, tolerate


def _compare(original: Any, other: Any) -> list[Difference]:
    return compare_values("output", 0, {"x:0": np.asarray(original)}, {"x:0": np.asarray(other)})


def _change(name: str, largest: float | None, magnitude: float = 1.0) -> Difference:
    return Difference(name, "variable", 3, 1, 4, largest, magnitude)


@pytest.mark.parametrize(
    "value", [[1.0, math.nan], [], 3, True, np.array([b"a"], object), np.float16(2)]
)
def test_same_bits_are_no_difference(value: Any) -> None:
    assert _compare(value, value) == []


def test_difference_is_counted_and_measured() -> None:
    (difference,) = _compare([[1.0, -8.0], [3.0, 4.0]], [[1.0, -8.5], [3.0, 3.75]])

    assert difference == Difference("x:0", "output", 0, 2, 4, 0.5, 8.0)
    assert not difference.tolerated


@pytest.mark.parametrize(
    ("original", "other", "largest"),
    [
        (0.0, -0.0, 0.0),
        (math.nan, 1.0, math.inf),
        (math.inf, 1.0, math.inf),
        (np.array([1, 2], np.int64), np.array([1, 5], np.int64), 3.0),
        (np.array([1 + 1j]), np.array([1 - 1j]), 2.0),
        (np.zeros(2, np.float32), np.zeros(3, np.float32), None),
        (np.zeros(2, np.float32), np.zeros(2, np.float64), None),
        (np.array([b"a"], object), np.array([b"b"], object), None),
    ],
)
def test_largest_difference(original: Any, other: Any, largest: float | None) -> None:
    (difference,) = _compare(original, other)
    assert difference.max_abs_difference == largest


def test_nans_with_other_bits_differ() -> None:
    quiet = np.array([0x7FC00000], np.uint32).view(np.float32)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    (difference,) = _compare(quiet, other)
    assert difference.differing_elements == 1


def test_tensor_that_one_side_lacks_differs() -> None:
    (difference,) = compare_values("variable", 3, {"v": np.zeros(4)}, {})
    assert (difference.differing_elements, difference.max_abs_difference) == (4, None)


def test_without_grappler_nothing_is_tolerated() -> None:
    (difference,) = tolerate([_change("v", 1e-30)], [])
    assert not difference.tolerated


def test_own_change_is_tolerated_with_the_factor() -> None:
    changes = [_change("v", 0.01), _change("v", 0.5), _change("w", 0.0)]
    within, beyond = tolerate(
        [_change("v", 0.5 * GRAPPLER_FACTOR), _change("v", 0.51 * GRAPPLER_FACTOR)], changes
    )
    assert within.tolerated
    assert not beyond.tolerated


def test_tensor_that_grappler_left_alone_may_change_as_others_typically_do() -> None:
    changes = [_change("a", 1e-6, 10.0), _change("b", 1e-6, 1.0), _change("c", 1.0, 1.0)]
    near, far = tolerate([_change("v", 3e-6, 1.0), _change("v", 5e-6, 1.0)], changes)
    assert near.tolerated
    assert not far.tolerated


@pytest.mark.parametrize("largest", [None, math.inf])
def test_what_is_no_rounding_is_never_tolerated(largest: float | None) -> None:
    (difference,) = tolerate([_change("v", largest)], [_change("v", math.inf), _change("v", 1e9)])
    assert not difference.tolerated


@pytest.mark.parametrize("largest", [None, math.inf, 0.5])
def test_json_is_valid(largest: float | None) -> None:
    plain = json.loads(json.dumps(_change("v", largest).to_json(), allow_nan=False))
    assert plain["name"] == "v"
    assert plain["tolerated"] is False
