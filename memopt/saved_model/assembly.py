"""A rewritten graph as a function of a library again, which may have to run without Grappler."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.attributes import type_attribute
from memopt.graph.functiondef import ARGUMENT, RESULT, Library, from_function_def, to_function_def
from memopt.graph.graphdef import from_graph_def
from memopt.graph.verify import verify_graph
from memopt.runtime.graph_import import import_graph
from memopt.runtime.library import called_by, rename_changed_functions
from memopt.saved_model.bodies import reached
from memopt.shapes.function_calls import unused_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.saved_model.bodies import Body

CALL = "StatefulPartitionedCall"
_KEPT_WHOLE = "_noinline"
_LEFT_BY_SESSIONS = "_tf_data_function"
"""Grappler leaves a session's functions with this attribute to who runs them."""
_DIGEST_BYTES = 6


def with_graph(body: Body, graph_def: GraphDef) -> tuple[FunctionDef, list[FunctionDef]]:
    """A function with a rewritten body, and further functions that only that calls.

    Functions that the body calls and that were rewritten with it get names of their own, since
    others may call those that were there before.

    Args:
        body: The function as it was.
        graph_def: The rewritten graph of its item.

    Raises:
        InvalidGraphError: The graph is not the body of such a function.
    """
    before = body.callees
    named = rename_changed_functions(graph_def, lambda one: before.get(one.signature.name) != one)
    content = type(named)()
    content.CopyFrom(named)
    _give_arguments_and_results(content, body)
    function = to_function_def(from_graph_def(content), body.function)
    _let_device_be_chosen(function, body)
    _check(function, content, named)
    functions = {one.signature.name: one for one in content.library.function}
    called = [name for node in function.node_def for name in called_by(node)]
    return function, [functions[name] for name in reached(called, functions) if name not in before]


def without_grappler(
    function: FunctionDef, taken: Collection[str]
) -> tuple[FunctionDef, FunctionDef]:
    """A function whose body runs with Grappler off, whoever runs it and whatever they set.

    The body becomes a function of its own that is not inlined, and the call of it carries the
    configuration. What runs it (a loader of Python's, a session of any language) compiles it by
    that.

    Args:
        function: The function.
        taken: Names of functions that there are.

    Returns:
        The function that has the name, and that with the body.
    """
    from tensorflow.core.framework import function_pb2
    from tensorflow.core.protobuf import config_pb2

    content = function.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
    inner: FunctionDef = function_pb2.FunctionDef()
    inner.CopyFrom(function)
    inner.signature.name = unused_name(taken, f"{function.signature.name}_memopt_{digest}")
    for attribute in (_KEPT_WHOLE, _LEFT_BY_SESSIONS):
        inner.attr[attribute].b = True
    outer: FunctionDef = function_pb2.FunctionDef()
    outer.CopyFrom(function)
    outer.ClearField("node_def")
    arguments = [argument.name for argument in outer.signature.input_arg]
    effects = sorted(set(outer.control_ret.values()))
    name = unused_name((*arguments, *effects), CALL)
    call = outer.node_def.add(name=name, op=CALL, input=arguments)
    call.attr["Tin"].list.type.extend(one.type for one in outer.signature.input_arg)
    call.attr["Tout"].list.type.extend(one.type for one in outer.signature.output_arg)
    call.attr["f"].func.name = inner.signature.name
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    call.attr["config_proto"].s = config.SerializeToString(deterministic=True)
    for number, result in enumerate(outer.signature.output_arg):
        outer.ret[result.name] = f"{call.name}:output:{number}"
    # Loaders want a node of its own for each effect.
    for effect in effects:
        outer.node_def.add(name=effect, op="NoOp", input=[f"^{name}"])
    return outer, inner


def _give_arguments_and_results(graph_def: GraphDef, body: Body) -> None:
    """Turn the Placeholders of arguments into `_Arg` nodes, and add a `_Retval` for each result.

    Raises:
        InvalidGraphError: An argument is missing.
    """
    signature = body.function.signature
    nodes = {node.name: node for node in graph_def.node}
    for number, argument in enumerate(signature.input_arg):
        node = nodes.get(argument.name)
        if node is None or node.op != "Placeholder":
            raise InvalidGraphError(f"the argument {argument.name!r} is lost", argument.name)
        _make_port(node, argument.name, ARGUMENT, argument.type, number)
    for number, result in enumerate(signature.output_arg):
        name = unused_name(nodes, f"{result.name}_RetVal")
        node = nodes[name] = graph_def.node.add()
        _make_port(node, name, RESULT, result.type, number)
        node.input.append(body.results[number])


def _make_port(node: NodeDef, name: str, op: str, dtype: int, number: int) -> None:
    node.Clear()
    node.name, node.op = name, op
    node.attr["T"].CopyFrom(type_attribute(dtype))
    node.attr["index"].i = number


def _let_device_be_chosen(function: FunctionDef, body: Body) -> None:
    """Take devices away that only Grappler, here, has put where the function names none."""
    functions = (body.function, *body.callees.values())
    if any(node.device for one in functions for node in one.node_def):
        return
    for node in function.node_def:
        node.device = ""


def _check(function: FunctionDef, content: GraphDef, graph_def: GraphDef) -> None:
    """Check that TensorFlow can take a function: all that can be told without running it.

    Raises:
        InvalidGraphError: It cannot.
    """
    import tensorflow as tf

    graph = from_function_def(function, Library(content.library))
    verify_graph(graph)
    missing = sorted(name for name in function.control_ret.values() if name not in graph)
    if missing:
        raise InvalidGraphError(f"what runs for its effects is lost: {missing[0]!r}", missing[0])
    import_graph(graph_def, tf.Graph())
