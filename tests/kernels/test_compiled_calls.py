"""What compiled calls need, by a rule: where it is known, and where it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from memopt.buffers.kernel_call import Runtime
from memopt.buffers.kernel_signature import is_compiled
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.kernels.choice import memory_of_kernels
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.buffers.kernel_call import KernelCall, KernelMemory, Measurements


class Notes:
    """Takes note of what is known of compiled calls.

    Attributes:
        scratch_bytes: By op of the call; `None` where nothing is known.
    """

    def __init__(self, known: Measurements) -> None:
        self.scratch_bytes: dict[str, int | None] = {}
        self._known = known

    def find(self, call: KernelCall) -> KernelMemory | None:
        """What is known."""
        found = self._known.find(call)
        if is_compiled(call.node):
            self.scratch_bytes[call.node.op] = None if found is None else found.scratch_bytes
        return found


def scratch_bytes(
    compiled: Callable[[Any, Any], Any],
    image: tuple[int, ...],
    filters: tuple[int, ...],
    dtype: str = "float32",
) -> dict[str, int | None]:
    """What is known of a call of a compiled function, and of that of its gradient."""
    import tensorflow as tf

    function = tf.function(compiled, jit_compile=True)
    weights = tf.Variable(tf.zeros(filters, dtype))

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(value: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(value)
            result = function(tf.tanh(value), weights)
            loss = tf.reduce_sum(result * result)
        return tape.gradient(loss, [value, weights])

    concrete = step.get_concrete_function(tf.TensorSpec(image, dtype))
    item = GrapplerItem.from_concrete_function(concrete)
    known = memory_of_kernels(None, item)
    assert known is not None
    notes = Notes(known)
    Step.of(
        from_graph_def(item.graph_def),
        Properties.of(item),
        fed=[name.partition(":")[0] for name in item.feed],
        fetched=[name.partition(":")[0] for name in item.fetch],
        runtime=replace(Runtime(), measurements=notes),
    )
    return notes.scratch_bytes


def convolve(value: Any, weights: Any, **options: Any) -> Any:
    import tensorflow as tf

    return tf.nn.convolution(value, weights, padding="SAME", **options)


def strided(value: Any, weights: Any) -> Any:
    return convolve(value, weights, strides=2)


FORWARD, BACKWARD = "StatefulPartitionedCall", "PartitionedCall"


@pytest.mark.parametrize(
    ("compiled", "image", "filters", "gradient_bytes"),
    [
        # Measured, each without 16 bytes for the addresses of the results.
        (convolve, (8, 32, 32, 48), (3, 3, 24, 48), 1614336),
        (strided, (8, 32, 32, 48), (3, 3, 24, 96), 869376),
        (convolve, (4, 32, 32, 64), (1, 1, 16, 64), 1052672),
        (convolve, (8, 64, 48), (3, 12, 96), 210432),
        (convolve, (4, 8, 8, 64), (7, 7, 1, 64), 1605632),
        (convolve, (8, 16, 16, 32), (3, 3, 1, 32), 299008),
        (convolve, (8, 16, 16, 32), (3, 3, 1, 64), 526592),
    ],
)
def test_what_was_measured_is_what_the_rule_says(
    compiled: Callable[[Any, Any], Any],
    image: tuple[int, ...],
    filters: tuple[int, ...],
    gradient_bytes: int,
) -> None:
    found = scratch_bytes(compiled, image, filters)
    assert found == {FORWARD: 0, BACKWARD: gradient_bytes}


def channels_first(value: Any, weights: Any) -> Any:
    return convolve(value, weights, data_format="NCDHW")


def activated(value: Any, weights: Any) -> Any:
    import tensorflow as tf

    return tf.tanh(convolve(value, weights))


def flattened(value: Any, weights: Any) -> Any:
    """Its gradient is that of a vector, and no filter to be seen."""
    import tensorflow as tf

    return convolve(value, tf.reshape(weights, (3, 3, 4, 8)))


@pytest.mark.parametrize(
    ("compiled", "image", "filters", "dtype"),
    [
        (channels_first, (2, 8, 4, 6, 6), (3, 3, 3, 4, 8), "float32"),
        (activated, (2, 8, 8, 8), (3, 3, 4, 8), "float32"),
        (convolve, (2, 8, 8, 8), (3, 3, 4, 8), "float16"),
        (flattened, (2, 8, 8, 8), (288,), "float32"),
    ],
)
def test_of_others_nothing_is_known(
    compiled: Callable[[Any, Any], Any],
    image: tuple[int, ...],
    filters: tuple[int, ...],
    dtype: str,
) -> None:
    assert scratch_bytes(compiled, image, filters, dtype)[BACKWARD] is None
