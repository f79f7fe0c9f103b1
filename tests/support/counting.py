"""A step that counts its calls, and takes from an iterator what it works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def counting_step(*, is_optional: bool = False) -> ConcreteFunction:
    """The step; an element that may be missing is taken in another way."""
    import tensorflow as tf

    iterator = iter(tf.data.Dataset.from_tensors(tf.zeros(4)))
    count = tf.Variable(0)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step() -> Any:
        given = iterator.get_next_as_optional().get_value() if is_optional else next(iterator)
        count.assign_add(1)
        return given + 1.0

    function = step.get_concrete_function()
    function.kept_alive = iterator, count
    return function
