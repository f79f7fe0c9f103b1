"""A step that calls functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def nested_step() -> ConcreteFunction:
    """A step that calls functions, one of which reads what another one wrote."""
    import tensorflow as tf

    total = tf.Variable([[1.0, 2.0], [3.0, 4.0]])

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def scale(value: Any) -> Any:
        return value * 3.0

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def update(value: Any) -> Any:
        before = total.read_value()
        total.assign_add(scale(value))
        return before, tf.tanh(value)

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(value: Any) -> Any:
        first, small = update(value)
        second, _ = update(small)
        return first + 10.0 * second + 100.0 * total

    function = step.get_concrete_function(tf.TensorSpec((2, 2)))
    function.kept_alive = total
    return function


def calls_itself(graph_def: GraphDef) -> str:
    """Let the function `scale` of `nested_step` call itself, which cannot be traced, but written.

    Returns:
        Its name.
    """
    (scale,) = (f for f in graph_def.library.function if "scale" in f.signature.name)
    (product,) = (node for node in scale.node_def if node.op == "Mul")
    product.op = "PartitionedCall"
    del product.input[1:]
    product.ClearField("attr")
    product.attr["f"].func.name = scale.signature.name
    for name in ("Tin", "Tout"):
        product.attr[name].list.type.append(1)
    for node in scale.node_def:
        node.input[:] = [source.replace(":z:", ":output:") for source in node.input]
    for key, source in scale.ret.items():
        scale.ret[key] = source.replace(":z:", ":output:")
    return str(scale.signature.name)
