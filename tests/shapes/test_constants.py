"""The numbers in small constants, however TensorFlow packs them."""

from __future__ import annotations

import numpy as np
import pytest

from memopt.graph.graphdef import from_graph_def
from memopt.shapes.constants import constant_numbers


def numbers(value: object, dtype: str = "int32") -> tuple[int, ...] | None:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        tf.constant(value, dtype, name="c")
    return constant_numbers(from_graph_def(graph.as_graph_def())["c"])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_numbers_of_all_shapes(dtype: str) -> None:
    assert numbers(7, dtype) == (7,)
    assert numbers(0, dtype) == (0,)
    assert numbers([3, -1, 2], dtype) == (3, -1, 2)
    assert numbers([[1, 2], [3, 4]], dtype) == (1, 2, 3, 4)
    assert numbers(np.zeros(0), dtype) == ()


def test_one_number_that_stands_for_many() -> None:
    assert numbers(np.full(5, 9)) == (9,) * 5
    assert numbers(np.zeros(4)) == (0,) * 4


def test_what_is_no_small_list_of_integers_is_not_told() -> None:
    assert numbers([1.5], "float32") is None
    assert numbers(np.arange(65)) is None
