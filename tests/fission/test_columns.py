"""Gradients of images from columns: what they need, their bits, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf
from support.one_pass import run_pass
from support.processors import adds_up_with_avx2
from support.products import as_products

from memopt.fission.columns import Columns, columns_of
from memopt.fission.kernel_trials import try_products
from memopt.fission.trial_records import Outcome, Setting
from memopt.fission.trials import Trials
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.item import GrapplerItem
from memopt.passes import Fission
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

KERNELS = [Setting(onednn=False, threads=threads) for threads in (1, 2)]
TRUSTING = Fission(try_kernels=False)


def convolution(
    images: tuple[int, ...] = (8, 16, 16, 48), read: int = 1, made: int = 24, **options: Any
) -> GrapplerItem:
    """The gradient of images, as a fetch of a graph of its own."""
    graph = tf.Graph()
    channels, dtype = options.pop("channels", images[3]), options.pop("dtype", tf.float32)
    options = {"strides": [1, 1, 1, 1], "padding": "SAME"} | options
    with graph.as_default():
        image = tf.raw_ops.Placeholder(dtype=dtype, shape=images)
        filters = tf.raw_ops.Placeholder(dtype=dtype, shape=(read, read, channels, made), name="f")
        output = tf.raw_ops.Conv2D(input=image, filter=filters, **options)
        gradient = tf.raw_ops.Placeholder(dtype=dtype, shape=output.shape, name="g")
        found = tf.raw_ops.Conv2DBackpropInput(
            input_sizes=images, filter=filters, out_backprop=gradient, name="x", **options
        )
        tf.raw_ops.Identity(input=found, name="n")
    return GrapplerItem(graph.as_graph_def(), feed=("f", "g"), fetch=("n",))


def found_in(item: GrapplerItem, threads: int = 2) -> Columns | str:
    graph = from_graph_def(item.graph_def)
    return columns_of(graph["x"], Properties.of(item).certain, threads)


CASES = {
    "pixels": convolution(),
    "pixels, no rest": convolution((8, 8, 8, 96), 1, 32),
    "pixels, a rest of one": convolution((8, 7, 7, 64), 1, 32),
    "pixels, a rest of three": convolution((8, 15, 15, 32), 1, 32),
    "some pixels": convolution((8, 16, 16, 32), 1, 32, strides=[1, 2, 2, 1]),
    "3 x 3": convolution((8, 16, 16, 16), 3, 16),
    "strides": convolution((8, 17, 16, 16), 3, 16, strides=[1, 2, 2, 1]),
    "side by side": convolution((8, 32, 32, 16), 2, 32, strides=[1, 2, 2, 1]),
    "no margins": convolution((8, 18, 18, 8), 3, 16, padding="VALID"),
    "even, unequal margins": convolution((6, 12, 8, 8), 4, 16),
    "an odd number of images": convolution((7, 16, 16, 16), 3, 16),
}


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with Trials(KERNELS) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_the_kernel(name: str) -> None:
    """To the last bits, which depend on how the processor adds up; every way, margins included."""
    item = CASES[name]
    gradient = found_in(item)
    assert isinstance(gradient, Columns)
    rng = np.random.default_rng(0)
    feeds = {
        f"{key}:0": rng.standard_normal(shape, np.float32)
        for key, shape in (("f", gradient.filters), ("g", gradient.gradient))
    }
    expected = _run(item.graph_def, feeds)
    for way in gradient.ways:
        np.testing.assert_allclose(_run(_written(item, way), feeds), expected, rtol=1e-3, atol=1e-4)


@adds_up_with_avx2
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_kernel(name: str, trials: Trials) -> None:
    gradient = found_in(CASES[name])
    assert isinstance(gradient, Columns)
    node = from_graph_def(CASES[name].graph_def)["x"]
    assert any(try_products(node, way, trials) is Outcome.EQUAL for way in gradient.ways)


def test_no_zero_is_negative() -> None:
    """The kernel adds to zeros: what is -0 by itself is 0 then."""
    item = convolution()
    gradient = found_in(item)
    assert isinstance(gradient, Columns)
    feeds = {
        "f:0": np.full(gradient.filters, -1, np.float32),
        "g:0": np.zeros(gradient.gradient, np.float32),
    }
    expected = _run(item.graph_def, feeds)
    for way in gradient.ways:
        assert _run(_written(item, way), feeds).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("pixels", "rest"),
    [
        ((16, 16), [174, 175, 254, 255]),
        ((7, 7), [48]),
        ((13, 13), [84]),
        ((15, 15), [222, 223, 224]),
        ((28, 28), []),
        ((12, 12), []),
        ((32, 32), [942, 943, 1022, 1023]),
    ],
)
def test_which_patches_the_kernel_adds_up_otherwise(
    pixels: tuple[int, int], rest: list[int]
) -> None:
    gradient = found_in(convolution((8, *pixels, 16), 1, 16))
    assert isinstance(gradient, Columns)
    assert [patch for each in gradient.rest for patch in each.patches] == rest
    assert all(each.is_fused == (pixels == (15, 15)) for each in gradient.rest)


@pytest.mark.parametrize("name", CASES)
def test_no_operation_needs_more_than_is_told(name: str) -> None:
    item = CASES[name]
    gradient = found_in(item)
    assert isinstance(gradient, Columns)
    for way in gradient.ways:
        _, need_bytes = as_products(item, "x", way)
        assert need_bytes <= way.need_bytes


@pytest.mark.parametrize(
    ("limit_bytes", "parts"), [(20 << 20, 1), (14 << 20, 2), (8 << 20, 4), (6 << 20, 8)]
)
def test_as_few_parts_as_are_enough(limit_bytes: int, parts: int) -> None:
    item = convolution((16, 32, 32, 32), 3, 32, strides=[1, 2, 2, 1])
    options = replace(TRUSTING, memory_limit=limit_bytes, planning_seconds=60.0)
    (edit,) = run_pass(item, options).edits
    assert (f"in {parts} parts of the images" in edit.reason) == (parts > 1)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (convolution(dtype=tf.float64), "its numbers or its padding"),
        (convolution(dilations=[1, 2, 2, 1], read=3), "its filters are dilated"),
        (convolution((8, 64, 64, 64), 3, 64), "it would need hardly less"),
        (convolution((1, 16, 16, 48)), "it would need hardly less"),
        (convolution((1 << 14, 1, 1, 256), made=256), "it would need hardly less"),
    ],
    ids=["double", "dilated", "much work for an image", "one image", "very many"],
)
def test_what_is_not_the_same_product_stays(item: GrapplerItem, why: str) -> None:
    found = found_in(item)
    assert isinstance(found, str)
    assert why in found


def _written(item: GrapplerItem, way: Columns) -> Any:
    graph, _ = as_products(item, "x", way)
    return to_graph_def(graph)


def _run(graph_def: Any, feeds: dict[str, Any]) -> Any:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(graph=graph) as session:
            return session.run("n:0", feeds)
