"""Gradients of filters from patches: what they need, their bits, and what stays as it is."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf
from support.one_pass import run_pass
from support.processors import adds_up_with_avx2
from support.products import as_products

from memopt.buffers.kernel_call import Runtime
from memopt.context import Context
from memopt.errors import BudgetError
from memopt.fission.facts import Facts
from memopt.fission.kernel_trials import settings_of, try_products
from memopt.fission.patches import Patches, block_of, patches_of, product_sizes
from memopt.fission.trial_records import Outcome, Setting, Trial
from memopt.fission.trial_worker import results
from memopt.fission.trials import Trials
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.optimizer import MemoryOptimizer
from memopt.passes import Fission, fission
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from memopt.result import OptimizationResult

KERNELS = [Setting(onednn=False, threads=threads) for threads in (1, 2, 3)]
TRUSTING = Fission(try_kernels=False)


def convolution(
    images: tuple[int | None, ...] = (8, 32, 32, 8), read: int = 3, made: int = 16, **options: Any
) -> GrapplerItem:
    """The gradient of filters, as a fetch of a graph of its own."""
    graph = tf.Graph()
    sizes = (read if images[1] != 1 else 1, read, options.pop("channels", images[3]), made)
    dtype = options.pop("dtype", tf.float32)
    options = {"strides": [1, 1, 1, 1], "padding": "SAME"} | options
    with graph.as_default():
        image = tf.raw_ops.Placeholder(dtype=dtype, shape=images, name="x")
        filters = tf.raw_ops.Placeholder(dtype=dtype, shape=sizes, name="f")
        output = tf.raw_ops.Conv2D(input=image, filter=filters, **options)
        gradient = tf.raw_ops.Placeholder(dtype=dtype, shape=output.shape, name="g")
        found = tf.raw_ops.Conv2DBackpropFilter(
            input=image, filter_sizes=sizes, out_backprop=gradient, name="w", **options
        )
        tf.raw_ops.Neg(x=found, name="n")
    return GrapplerItem(graph.as_graph_def(), feed=("x", "g"), fetch=("n",))


def found_in(item: GrapplerItem) -> Patches | str:
    graph = from_graph_def(item.graph_def)
    return patches_of(graph["w"], Properties.of(item).certain)


CASES = {
    "3 x 3": convolution(),
    "even, unequal margins": convolution((4, 17, 12, 8), 4),
    "strides": convolution((4, 33, 33, 8), 3, strides=[1, 2, 2, 1]),
    "wide strides": convolution((4, 40, 40, 4), 8, 32, strides=[1, 4, 4, 1], padding="VALID"),
    "one row": convolution((8, 1, 64, 24), 3, 48),
    "pixels": convolution((8, 16, 16, 64), 1, 32),
    "some pixels": convolution((8, 16, 16, 64), 1, 32, strides=[1, 2, 2, 1]),
    "groups of images": convolution((32, 28, 28, 256), 1, 64),
    "few channels": convolution((8, 64, 64, 3), 3, 32),
}


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with Trials(KERNELS) as found:
        yield found


@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_the_kernel(name: str, trials: Trials) -> None:
    patches = found_in(CASES[name])
    assert isinstance(patches, Patches)
    assert patches.ways[0] == patches
    assert len(patches.products) == (2 if name == "groups of images" else 1)
    node = from_graph_def(CASES[name].graph_def)["w"]
    assert try_products(node, patches, trials) is Outcome.EQUAL


RUNS = {
    # The first product is of blocks of 320 patches, with 300 left over, the second one of 304.
    "groups of images": convolution((32, 32, 32, 32), 3, 32, padding="VALID"),
    "one group": convolution((16, 40, 40, 32), 3, 32),
    "turned": convolution((8, 64, 64, 32), 3, 16),
}


@adds_up_with_avx2
@pytest.mark.parametrize("name", RUNS)
def test_runs_of_patches_have_the_bits_of_the_kernel(name: str) -> None:
    """With two threads: one adds up other blocks."""
    patches = found_in(RUNS[name])
    assert isinstance(patches, Patches)
    node = from_graph_def(RUNS[name].graph_def)["w"]
    runs = [way for way in patches.variants if way.runs]
    assert {way.is_turned for way in runs} == ({True, False} if name == "turned" else {False})
    with Trials(KERNELS[1:2]) as trials:
        assert {try_products(node, way, trials) for way in runs} == {Outcome.EQUAL}


@pytest.mark.parametrize(
    ("patches", "sizes"),
    [
        (24_300, [(150, 160), (2, 150)]),
        (4_500, [(28, 152), (1, 244)]),
        (640, [(4, 160)]),
        (301, [(1, 151), (1, 150)]),
        (200, [(1, 200)]),
    ],
)
def test_of_how_many_patches_products_are(patches: int, sizes: list[tuple[int, int]]) -> None:
    found = product_sizes(patches, block_of(patches))
    assert found == sizes
    assert sum(count * size for count, size in found) == patches


class Noted(Trials):
    """Makes no trial, and notes the last one."""

    trial: Trial

    def outcome(self, trial: Trial) -> Outcome:
        self.trial = trial
        return Outcome.OTHER


@pytest.mark.parametrize("images", [(8, 32, 32, 8), (8, 64, 64, 64), (8, 1, 64, 24)])
def test_parts_of_filters_make_the_same_gradient(images: tuple[int, ...]) -> None:
    """Whether to the last bit depends on how the processor shares small products."""
    item = convolution(images)
    patches = found_in(item)
    assert isinstance(patches, Patches)
    assert prod(patches.filters[:2]) in {way.parts for way in patches.ways}
    assert any(way.runs for way in patches.ways) == (images[1] > 1)
    trials = Noted(())
    for way in patches.ways:
        try_products(from_graph_def(item.graph_def)["w"], way, trials)
        for expected, found in results(trials.trial, 2):
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("limit_bytes", "seconds", "parts"),
    [
        *[(6 << 20, 60.0, 1), (9 << 19, 60.0, 3), (3 << 20, 60.0, 9)],
        # With all the time that it takes, more is left to what else there is.
        *[(12 << 20, 0.0, 1), (6 << 20, 0.0, 3)],
    ],
)
def test_as_few_parts_of_filters_as_are_enough(
    limit_bytes: int, seconds: float, parts: int
) -> None:
    options = replace(TRUSTING, memory_limit=limit_bytes, planning_seconds=seconds)
    done = run_pass(convolution(), options)
    (edit,) = done.edits
    assert ("parts of filters" in edit.reason) == (parts > 1)
    made = [node.op for node in done.graph if node.name.startswith("Patches/")]
    assert made.count("MatMul") == parts


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (convolution((None, 32, 32, 8)), "shapes of what it reads and makes are not known"),
        (convolution(dtype=tf.float64), "its numbers or its padding"),
        (
            convolution(padding="EXPLICIT", explicit_paddings=[0, 0, 1, 1, 1, 1, 0, 0]),
            "its numbers or its padding",
        ),
        (convolution(dilations=[1, 2, 2, 1]), "its filters are dilated"),
        (convolution(channels=4), "read some channels each"),
        (convolution((8, 16, 16, 1), 1), "a product of a vector"),
        (convolution((256, 56, 56, 64), 1, 64), "it would need hardly less"),
    ],
    ids=["open", "double", "explicit", "dilated", "groups", "vector", "many images"],
)
def test_what_is_not_the_same_product_stays(item: GrapplerItem, why: str) -> None:
    found = found_in(item)
    assert isinstance(found, str)
    assert why in found
    assert not run_pass(item, TRUSTING).edits


@pytest.mark.parametrize("name", CASES)
def test_no_operation_needs_more_than_is_told(name: str) -> None:
    patches = found_in(CASES[name])
    assert isinstance(patches, Patches)
    for way in patches.ways:
        _, need_bytes = as_products(CASES[name], "w", way)
        assert need_bytes <= way.need_bytes


def test_what_is_assumed_of_others_changes_nothing() -> None:
    """The shapes of what is added are known where others are only those of one call."""
    graph_def = convolution().graph_def
    other = graph_def.node.add(name="open", op="Placeholder")
    other.attr["dtype"].type = tf.float32.as_datatype_enum
    feed = ("x", "g", "open")
    item = GrapplerItem(graph_def, feed=feed, fetch=("n",), assumed_shapes={"open": ((3,),)})
    assert run_pass(item, TRUSTING).edits


@pytest.mark.parametrize("outcome", [Outcome.OTHER, Outcome.EQUAL])
def test_what_needs_much_less_than_another_that_stays_is_not_changed(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No plan gets below what needs most: to split the others takes time and saves nothing."""
    monkeypatch.setattr(
        fission, "try_products", lambda node, *_: outcome if node.name == "w" else Outcome.EQUAL
    )
    large, small = convolution(), convolution((2, 16, 16, 4), made=64)
    of_large, of_small = found_in(large), found_in(small)
    assert isinstance(of_large, Patches)
    assert isinstance(of_small, Patches)
    assert of_small.kernel_bytes < 0.6 * of_large.kernel_bytes
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(large.graph_def, name="")
        tf.import_graph_def(small.graph_def, name="few")
    feed = ("x", "g", "few/x", "few/g")
    item = GrapplerItem(graph.as_graph_def(), feed=feed, fetch=("n", "few/n"))
    done = run_pass(item, Fission(memory_limit=6 << 20, planning_seconds=60.0))
    changed = {name for edit in done.edits for name in edit.changed}
    assert changed == (set() if outcome is Outcome.OTHER else {"w", "few/w"})


def test_with_onednn_it_stays() -> None:
    item = convolution()
    graph = from_graph_def(item.graph_def)
    context = Context.of_item(item, Properties.of(item))
    facts = Facts(graph, replace(context, runtime=Runtime(2, onednn=True)))
    assert facts.products(graph["w"]) == "oneDNN's kernel needs no columns of images"
    assert not facts.can_need_less(graph["w"])


def test_a_budget_that_a_gradient_exceeds_is_kept() -> None:
    """Its kernel has memory for the columns of 124 images, though there are 8."""
    weights = tf.Variable(tf.ones((3, 3, 8, 16)))

    def step(images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.conv2d(images, weights, 1, "SAME") ** 2)
        return tape.gradient(loss, weights)

    function = tf.function(step, autograph=False)
    concrete = function.get_concrete_function(tf.TensorSpec((8, 32, 32, 8)))
    item = GrapplerItem.from_concrete_function(concrete)

    def within_budget(fission: str) -> OptimizationResult:
        runtime = Runtime(2, onednn=False)
        options = (f"fission{{{fission}}}",)
        optimizer = MemoryOptimizer("ordered", budget="30%", runtime=runtime, pass_options=options)
        return optimizer.optimize(None, item)

    with pytest.raises(BudgetError, match="Conv2DBackpropFilter"):
        within_budget("most_parts=1")
    memory = within_budget("try_kernels=false").report.runtime
    assert memory is not None
    assert memory.keeps_budget


@pytest.mark.parametrize(("switch", "kinds"), [("0", {False}), ("1", {False, True})])
def test_who_runs_without_onednn_can_say_so(
    switch: str, kinds: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", switch)
    assert {setting.onednn for setting in settings_of(None, 2)} == kinds
