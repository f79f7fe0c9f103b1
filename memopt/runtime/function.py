"""A rewritten GraphDef as a ConcreteFunction that is called like the original."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.graph.final import is_final
from memopt.runtime.graph_import import find_operation, find_tensor, import_graph
from memopt.runtime.grappler_off import without_grappler
from memopt.runtime.library import register_functions, rename_changed_functions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.python.framework.func_graph import FuncGraph


@dataclass(frozen=True)
class Interface:
    """What a function takes and gives, by the names in its graph.

    Attributes:
        arguments: Tensors that each call gives, in order.
        captures: Tensors that stand for something outside, with that something.
        outputs: Tensors that a call returns, in order.
        control_outputs: Operations that run for their effects.
    """

    arguments: Sequence[str]
    captures: Sequence[tuple[str, tf.Tensor]]
    outputs: Sequence[str]
    control_outputs: Sequence[str]


def build_function(
    graph_def: GraphDef,
    like: ConcreteFunction,
    interface: Interface | None = None,
    attributes: Mapping[str, Any] = MappingProxyType({}),
) -> ConcreteFunction:
    """A function with `graph_def` as its body and everything else as `like` has it.

    Kept are the call signature, the structure of the outputs, the captured tensors and variables
    (the same objects, so both functions see each other's updates), the control outputs and the
    function's attributes. It can be differentiated too; only where `like` has been differentiated
    through a while loop, TensorFlow refuses, since it would name both derivatives alike.

    Args:
        graph_def: A rewritten `like.graph.as_graph_def()`.
        like: The function that was rewritten.
        interface: What in the graph takes the place of its inputs, captures, outputs and control
            outputs; by default what is called as in `like`.
        attributes: What the function is declared with on top of what `like` is.

    Returns:
        A function to call, export or rewrite again in place of `like`.

    Raises:
        InvalidGraphError: The graph cannot be imported, or an input, capture, output or control
            output of `like` is missing from it or has another type or shape.
    """
    import tensorflow as tf

    original = like.graph
    if original.deferred_external_captures:
        raise InvalidGraphError(
            f"function {original.name} captures values that are computed at each call;"
            " such a function cannot be built again"
        )
    graph = import_function_graph(graph_def, interface or interface_of(like), original.name)
    _copy_known_shapes(original, graph)
    graph.structured_input_signature = original.structured_input_signature
    graph.structured_outputs = tf.nest.pack_sequence_as(
        original.structured_outputs, graph.outputs, expand_composites=True
    )
    graph.variables = original.variables
    declared = {**attributes_of(like), **attributes}
    function = _concrete_function(graph, like.function_type, declared)
    # A call that leaves out arguments with defaults goes by these, which `get_concrete_function`
    # sets and `from_func_graph` does not.
    function._arg_keywords = like._arg_keywords  # noqa: SLF001 - there is no public way
    function._num_positional_args = like._num_positional_args  # noqa: SLF001 - likewise
    return without_grappler(function) if is_final(graph_def) else function


def build_plain_function(
    graph_def: GraphDef, interface: Interface, attributes: Mapping[str, Any] | None = None
) -> ConcreteFunction:
    """A function with positional arguments only, which returns a list of its outputs.

    Args:
        graph_def: Its body.
        interface: What it takes and gives.
        attributes: What it is declared with.

    Raises:
        InvalidGraphError: The graph cannot be imported or lacks something that `interface` names.
    """
    import tensorflow as tf
    from tensorflow.core.function.polymorphism import function_type

    graph = import_function_graph(graph_def, interface, "step")
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in graph.inputs[: len(interface.arguments)]]
    graph.structured_input_signature = (tuple(specs), {})
    graph.structured_outputs = list(graph.outputs)
    signature = function_type.from_structured_signature(
        graph.structured_input_signature,
        graph.structured_outputs,
        graph.function_captures.capture_types,
    )
    function = _concrete_function(graph, signature, attributes or {})
    return without_grappler(function) if is_final(graph_def) else function


def import_function_graph(graph_def: GraphDef, interface: Interface, name: str) -> FuncGraph:
    """The graph of a function, with its inputs, captures and outputs marked.

    Raises:
        InvalidGraphError: The graph cannot be imported or lacks something that `interface` names.
    """
    from tensorflow.python.framework import func_graph

    graph = func_graph.FuncGraph(name)
    own = rename_changed_functions(graph_def)
    import_graph(own, graph)
    register_functions(own)
    graph.inputs = [find_tensor(graph, tensor, "input") for tensor in interface.arguments]
    for tensor, outside in interface.captures:
        graph.add_capture(outside, find_tensor(graph, tensor, "captured input"))
    graph.outputs = [find_tensor(graph, tensor, "output") for tensor in interface.outputs]
    graph.control_outputs = [
        find_operation(graph, operation, "control output")
        for operation in interface.control_outputs
    ]
    return graph


def _copy_known_shapes(original: FuncGraph, graph: FuncGraph) -> None:
    """Tell the new inputs and outputs what importing forgets, above all of variables' handles."""
    from tensorflow.python.ops import handle_data_util

    before = [*original.inputs, *original.outputs]
    for old, new in zip(before, [*graph.inputs, *graph.outputs], strict=True):
        if new.dtype != old.dtype or not new.shape.is_compatible_with(old.shape):
            raise InvalidGraphError(
                f"{old.name} is {new.dtype.name} {new.shape}, but must be {old.dtype.name}"
                f" {old.shape} as before",
                node=old.op.name,
            )
        new.set_shape(old.shape)
        handle_data_util.copy_handle_data(old, new)


def interface_of(function: ConcreteFunction) -> Interface:
    """What a function takes and gives."""
    graph = function.graph
    captured = function.captured_inputs
    first_capture = len(graph.inputs) - len(captured)
    names = [tensor.name for tensor in graph.inputs]
    return Interface(
        arguments=names[:first_capture],
        captures=list(zip(names[first_capture:], captured, strict=True)),
        outputs=[tensor.name for tensor in graph.outputs],
        control_outputs=[operation.name for operation in graph.control_outputs],
    )


def attributes_of(function: ConcreteFunction) -> dict[str, Any]:
    """What the function was declared with (such as "compile this"), less its gradient's name."""
    from tensorflow.python.eager.polymorphic_function import attributes

    tied_to_the_original = {attributes.FORWARD_FUNCTION, attributes.BACKWARD_FUNCTION}
    known = attributes.MONOMORPHIC_FUNCTION_ALLOWLIST - tied_to_the_original
    declared = function.inference_fn.attributes
    return {name: value for name, value in declared.items() if name in known}


def _concrete_function(
    graph: FuncGraph, signature: Any, attributes: Mapping[str, Any]
) -> ConcreteFunction:
    from tensorflow.python.eager.polymorphic_function import concrete_function

    try:
        return concrete_function.ConcreteFunction.from_func_graph(graph, signature, attributes)
    except ValueError as error:
        raise InvalidGraphError(f"TensorFlow refuses the function: {error}") from error
