"""Infers shapes and types by TensorFlow's own shape functions, bodies of functions included."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.tensor_properties import TensorProperties
from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.nodedef import spell_inputs, write_node_def
from memopt.graph.op_types import DT_RESOURCE, DT_STRING, DT_VARIANT, REF_TYPE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.costs.tensor_properties import NodeProperties
    from memopt.graph.graph import Graph
    from memopt.item import GrapplerItem

_DATA_ELSEWHERE = frozenset({DT_STRING, DT_VARIANT})
"""Types whose elements point to memory that the shape says nothing of."""

_LOOPS = frozenset({"While", "StatelessWhile"})
_BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


def infer_properties(item: GrapplerItem) -> dict[str, NodeProperties]:
    """The properties of every output of every node, by function; the main graph is "".

    Captured variables arrive as Placeholders whose shape functions know nothing; they are replaced
    by variable handles, so that reads of them, and all that follows, have shapes. Where the item
    does not say what a captured resource holds, what depends on it stays unknown. A body is
    inferred from the arguments of the first call that is found; a body that no call of a known kind
    reaches is left out, and so unknown.

    Raises:
        InvalidGraphError: TensorFlow cannot import the graph; the message is TensorFlow's.
    """
    library = Library(item.graph_def.library)
    main = _import(item.with_variable_handles(), {})
    found = {"": _properties_of(main)}
    pending = [main]
    while pending:
        for call in _calls(pending.pop(), library):
            signature = library.op_def(call.function)
            if signature is None or call.function in found:
                continue
            if len(signature.input_arg) != len(call.arguments):
                raise InvalidGraphError(
                    f"function {call.function!r} takes {len(signature.input_arg)} arguments, "
                    f"a call of it gives {len(call.arguments)}"
                )
            body = _import_body(library.graph(call.function), item.graph_def, call.arguments)
            found[call.function] = _properties_of(body)
            pending.append(body)
    return found


class _Call(NamedTuple):
    """A call of a function, and what is known of its arguments."""

    function: str
    arguments: Sequence[_Argument]


class _Argument(NamedTuple):
    """An argument: the caller's tensor, and a shape that holds for every call."""

    tensor: tf.Tensor
    shape: tf.TensorShape


def _calls(graph: tf.Graph, library: Library) -> Iterator[_Call]:
    """The calls in a graph whose arguments correspond to those of the functions."""
    for operation in graph.get_operations():
        inputs = operation.inputs
        if operation.type in _LOOPS:
            # What comes out has the shape that holds in every turn.
            shapes = [output.shape for output in operation.outputs]
            arguments = [_Argument(*pair) for pair in zip(inputs, shapes, strict=True)]
            names = [operation.get_attr("cond").name, operation.get_attr("body").name]
        elif operation.type in _BRANCHES:
            arguments = [_Argument(tensor, tensor.shape) for tensor in inputs[1:]]
            names = _branches(operation)
        elif operation.type in _CALLS or library.op_def(operation.type) is not None:
            arguments = [_Argument(tensor, tensor.shape) for tensor in inputs]
            is_call = operation.type in _CALLS
            names = [operation.get_attr("f").name if is_call else operation.type]
        else:
            continue
        yield from (_Call(name, arguments) for name in names)


def _branches(operation: tf.Operation) -> list[str]:
    if "Case" in operation.type:
        return [branch.name for branch in operation.get_attr("branches")]
    return [operation.get_attr(name).name for name in ("then_branch", "else_branch")]


def _import_body(body: Graph, main: GraphDef, arguments: Sequence[_Argument]) -> tf.Graph:
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef()
    graph_def.versions.CopyFrom(main.versions)
    graph_def.library.CopyFrom(main.library)
    named: dict[str, _Argument] = {}
    for node in body:
        if node.op == ARGUMENT:
            named[node.name] = arguments[node.attributes["index"].i]
        elif node.op != RESULT:
            node_def = graph_def.node.add()
            write_node_def(node_def, node, spell_inputs)
            # A body spells its inputs in its own way; in a graph they have ports. That a node waits
            # for an argument says nothing of shapes.
            del node_def.input[:]
            node_def.input.extend(
                name for name in spell_inputs(node) if not _waits_for_argument(body, name)
            )
    return _import(graph_def, named)


def _waits_for_argument(body: Graph, name: str) -> bool:
    return name.startswith("^") and body[name[1:]].op == ARGUMENT


def _import(graph_def: GraphDef, arguments: Mapping[str, _Argument]) -> tf.Graph:
    """The graph with placeholders for arguments, as much known of them as of the arguments.

    The message is changed on the way.
    """
    import tensorflow as tf
    from tensorflow.python.ops import handle_data_util

    _bypass_loops(graph_def)
    graph = tf.Graph()
    try:
        with graph.as_default():
            given = {}
            for name, argument in arguments.items():
                placeholder = tf.compat.v1.placeholder(
                    argument.tensor.dtype.base_dtype, argument.shape, name=name
                )
                handle_data_util.copy_handle_data(argument.tensor, placeholder)
                given[f"{name}:0"] = placeholder
            read = {name for node in graph_def.node for name in node.input}
            given = {name: given[name] for name in given if name.partition(":")[0] in read}
            tf.graph_util.import_graph_def(graph_def, input_map=given, name="")
    except Exception as error:  # A broken graph raises whatever TensorFlow's layers raise.
        reason = " ".join(str(error).split())
        raise InvalidGraphError(f"TensorFlow cannot import the graph: {reason}") from error
    return graph


def _bypass_loops(graph_def: GraphDef) -> None:
    """Let readers of a handle or tensor list that comes out of a loop read what went in.

    A loop keeps which variable a handle means and what the elements of a list are, but TensorFlow's
    shape function of a loop does not say so. For shapes alone, the way around it is as good.
    """
    entered: dict[str, str] = {}
    for node in graph_def.node:
        if node.op in _LOOPS:
            for port, dtype in enumerate(node.attr["T"].list.type):
                if dtype in (DT_RESOURCE, DT_VARIANT):
                    entered[f"{node.name}:{port}" if port else node.name] = node.input[port]
    if not entered:
        return
    for node in graph_def.node:
        for slot, name in enumerate(node.input):
            source = name
            for _ in entered:  # Loops in a row; a graph may be broken, so not for ever.
                source = entered.get(source, source)
            if source != name:
                node.input[slot] = source


def _properties_of(graph: tf.Graph) -> NodeProperties:
    return {
        operation.name: tuple(_properties(tensor) for tensor in operation.outputs)
        for operation in graph.get_operations()
    }


def _properties(tensor: tf.Tensor) -> TensorProperties:
    dtype = int(tensor.dtype.as_datatype_enum) % REF_TYPE_OFFSET
    rank = tensor.shape.rank
    if rank is None:
        return TensorProperties(dtype, None, 0 if dtype == DT_RESOURCE else None)
    shape = tuple(-1 if size is None else int(size) for size in tensor.shape)
    return TensorProperties(dtype, shape, _size_bytes(dtype, shape, tensor.dtype.size))


def _size_bytes(dtype: int, shape: tuple[int, ...], element_bytes: int) -> int | None:
    if dtype == DT_RESOURCE:
        return 0  # A handle; the variable behind it is no tensor of the graph.
    if -1 in shape or dtype in _DATA_ELSEWHERE:
        return None
    elements = 1
    for size in shape:
        elements *= size
    return elements * element_bytes
