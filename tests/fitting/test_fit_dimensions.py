"""Open dimensions: found, named, given sizes; what cannot be is refused with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tensorflow as tf

from memopt.errors import OptionsError
from memopt.fitting.dimensions import Dimension, find_dimensions, with_size
from memopt.item import GrapplerItem
from memopt.models import MODELS, TINY
from memopt.shapes.properties import Properties


def item_of(*shapes: tuple[int | None, ...] | None) -> GrapplerItem:
    def step(*values: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(value * 2.0) for value in values])

    signature = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    return GrapplerItem.from_concrete_function(tf.function(step).get_concrete_function(*signature))


def names(item: GrapplerItem) -> list[str]:
    return [name.partition(":")[0] for name in item.feed]


def test_the_batch_is_the_first_open_dimension_of_everything() -> None:
    item = item_of((None, 3), (7,), (2, None), ())
    first, _, third, _ = names(item)
    assert find_dimensions(item) == (Dimension(first, 0), Dimension(third, 1))


def test_sizes_are_known_everywhere_and_the_original_is_left_alone() -> None:
    item = item_of((None, 3), (2, None))
    before = item.graph_def.SerializeToString(deterministic=True)
    sized = with_size(item, find_dimensions(item), 5)
    assert item.graph_def.SerializeToString(deterministic=True) == before
    properties = Properties.of(sized)
    assert list(properties.unknown_sizes()) == []
    shapes = [properties.outputs(name)[0].shape for name in names(item)]
    assert shapes == [(5, 3), (2, 5)]


@pytest.mark.parametrize("model", ["mlp", "bert", "unet"])
def test_what_a_model_needs_at_a_size_is_what_the_same_model_has_that_is_built_for_it(
    model: str,
) -> None:
    """Every variable and every gradient that both have has the same size."""
    sizes = dict(TINY[model])
    batch = sizes.pop("batch")
    fixed = GrapplerItem.from_concrete_function(MODELS[model](batch=batch, **sizes).function)
    function = MODELS[model](batch=None, **sizes).function
    item = GrapplerItem.from_concrete_function(function)
    sized = with_size(item, find_dimensions(item), batch)
    one, other = Properties.of(fixed), Properties.of(sized)
    ops = {node.name: node.op for node in sized.graph_def.node}
    common = [
        node.name
        for node in fixed.graph_def.node
        if ops.get(node.name) == node.op and node.op in ("MatMul", "Conv2D", "Relu", "BiasAdd")
    ]
    assert len(common) > 3
    for name in common:
        assert one.outputs(name)[0].size_bytes == other.outputs(name)[0].size_bytes, name


def test_a_second_dimension_has_to_be_named_or_given() -> None:
    item = item_of((None, None), (None, 4))
    first, second = names(item)
    with pytest.raises(OptionsError, match=f"{first}:1 is open as well"):
        find_dimensions(item)
    both = find_dimensions(item, [f"{first}:0", f"{first}:1", f"{second}:0"])
    assert [dimension.size for dimension in both] == [0, 0, 0]
    known = find_dimensions(item, [f"{first}:1=6"])
    assert set(known) == {Dimension(first, 1, 6), Dimension(first, 0), Dimension(second, 0)}
    properties = Properties.of(with_size(item, known, 9))
    assert properties.outputs(first)[0].shape == (9, 6)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("elsewhere:0", "is not fed; what is"),
        ("{first}:2", "has 2 dimensions"),
        ("{first}:1", "is 3 in the graph, and other numbers in it may rest on that"),
        ("{first}", "is no dimension"),
        ("{first}:0=0", "is no dimension"),
        ("{first}:0=", "is no dimension"),
        (":0", "is no dimension"),
    ],
)
def test_what_is_no_open_dimension_is_refused(named: str, message: str) -> None:
    item = item_of((None, 3))
    with pytest.raises(OptionsError, match=message):
        find_dimensions(item, [named.format(first=names(item)[0])])


def test_a_step_without_open_dimensions_is_told_how_to_get_one() -> None:
    with pytest.raises(OptionsError, match=r"tf\.TensorSpec\(\(None, 784\)"):
        find_dimensions(item_of((4, 3)))
    item = item_of((None, 3))
    with pytest.raises(OptionsError, match="no open dimension"):
        find_dimensions(item, [f"{names(item)[0]}:0=5"])
    with pytest.raises(OptionsError, match="named twice"):
        find_dimensions(item, [f"{names(item)[0]}:0"] * 2)


def test_a_shape_of_which_nothing_is_known_is_refused() -> None:
    with pytest.raises(OptionsError, match="not even the number of dimensions"):
        find_dimensions(item_of(None))


def test_what_is_not_fed_is_not_looked_at() -> None:
    item = item_of((None, 3), (None, 3))
    first, second = names(item)
    assert find_dimensions(replace(item, feed=(f"{second}:0",))) == (Dimension(second, 0),)
    assert find_dimensions(item)[0] == Dimension(first, 0)
