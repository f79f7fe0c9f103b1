"""Calls of functions in a GraphDef, and the bodies that they call as GraphDefs of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.nodedef import spell_inputs, write_node_def
from memopt.graph.op_types import DT_RESOURCE, DT_VARIANT
from memopt.item import COMPILED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.versions_pb2 import VersionDef

    from memopt.graph.functiondef import Library
    from memopt.graph.graph import Graph
    from memopt.shapes.tensor_properties import TensorProperties

LOOPS = frozenset({"While", "StatelessWhile"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
HANDLES = frozenset({DT_RESOURCE, DT_VARIANT})
"""Types that refer to something whose type and shape the shape functions follow as well."""


def compiled_functions(graph_def: GraphDef) -> Iterator[str]:
    """The functions that a graph has XLA compile, by their names in the graph."""
    for node in graph_def.node:
        if node.op in CALLS and COMPILED in node.attr and node.attr[COMPILED].b:
            yield node.attr["f"].func.name


class Argument(NamedTuple):
    """What a call gives for one argument, as tensors of the caller (`node:port`).

    Attributes:
        tensor: What is given in the first turn.
        lasting: What has a shape that holds in every turn: for loops the loop's output.
    """

    tensor: str
    lasting: str


class Call(NamedTuple):
    """A call of a function."""

    function: str
    arguments: tuple[Argument, ...]


def find_calls(nodes: Iterable[NodeDef], library: Library) -> Iterator[Call]:
    """The calls of the library's functions whose arguments correspond to the functions'."""
    functions = frozenset(library.names())
    if not functions:
        return
    known = functions | LOOPS | BRANCHES | CALLS
    for node in nodes:
        if node.op in known:
            for name in _functions(node):
                if name in functions:
                    yield Call(name, _arguments(node))


def _functions(node: NodeDef) -> list[str]:
    if node.op in LOOPS:
        keys = ["cond", "body"]
    elif node.op in BRANCHES:
        keys = ["then_branch", "else_branch", "branches"]
    elif node.op in CALLS:
        keys = ["f"]
    else:
        return [node.op]
    values = [node.attr[key] for key in keys if key in node.attr]
    return [call.name for value in values for call in value.list.func or [value.func]]


def _arguments(node: NodeDef) -> tuple[Argument, ...]:
    tensors = [tensor_name(name) for name in node.input if not name.startswith("^")]
    if node.op in LOOPS:
        lasting = [f"{node.name}:{port}" for port in range(len(tensors))]
        return tuple(map(Argument, tensors, lasting))
    if node.op in BRANCHES:
        tensors = tensors[1:]
    return tuple(map(Argument, tensors, tensors))


def tensor_name(name: str) -> str:
    """A data input with its port spelled out."""
    return name if ":" in name else f"{name}:0"


def has_loops(graph_def: GraphDef) -> bool:
    """Whether a node is a loop over functions."""
    return any(node.op in LOOPS for node in graph_def.node)


def has_loops_anywhere(graph_def: GraphDef) -> bool:
    """Whether a node of the graph, or of one of its functions, is a loop over functions."""
    functions = graph_def.library.function
    return has_loops(graph_def) or any(
        node.op in LOOPS for function in functions for node in function.node_def
    )


def bypass_loops(graph_def: GraphDef) -> None:
    """Let readers of a handle or tensor list that comes out of a loop read what went in.

    A loop keeps which variable a handle means and what the elements of a list are, but TensorFlow's
    shape function of a loop does not say so. For shapes alone, the way around it is as good.
    """
    if not has_loops(graph_def):
        return
    entered: dict[str, str] = {}
    for node in graph_def.node:
        if node.op in LOOPS:
            for port, dtype in enumerate(node.attr["T"].list.type):
                if dtype in HANDLES and port < len(node.input):
                    entered[f"{node.name}:{port}" if port else node.name] = node.input[port]
    for name in entered:
        _follow(entered, name)
    for node in graph_def.node:
        for slot, name in enumerate(node.input):
            if name in entered:
                node.input[slot] = entered[name]


def _follow(entered: dict[str, str], name: str) -> None:
    """Let loops in a row lead to what went into the first."""
    path = {name: None}
    source = entered[name]
    # A graph may be broken, so not for ever.
    while source in entered and source not in path:
        path[source] = None
        source = entered[source]
    entered.update(dict.fromkeys(path, source))


def body_graph_def(body: Graph, arguments: Sequence[NodeDef], versions: VersionDef) -> GraphDef:
    """A body as a GraphDef, without results.

    Args:
        body: The body.
        arguments: For each argument by number the node that stands for it, of the same name.
        versions: Those of the main graph.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef()
    graph_def.versions.CopyFrom(versions)
    graph_def.node.extend(arguments)
    for node in body:
        if node.op in (ARGUMENT, RESULT):
            continue
        node_def = graph_def.node.add()
        write_node_def(node_def, node, spell_inputs)
        # A body spells its inputs in its own way; in a graph they have ports.
        del node_def.input[:]
        node_def.input.extend(spell_inputs(node))
        # What a node is colocated with may be outside; it says nothing of shapes.
        if "_class" in node_def.attr:
            del node_def.attr["_class"]
    return graph_def


def placeholder(name: str, tensor: TensorProperties) -> NodeDef:
    """An input of a tensor's type and shape."""
    from tensorflow.core.framework import node_def_pb2

    node: NodeDef = node_def_pb2.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = tensor.dtype
    shape = node.attr["shape"].shape
    shape.unknown_rank = tensor.shape is None
    for size in tensor.shape or ():
        shape.dim.add().size = size
    return node


def identity(name: str, dtype: int, read: str) -> NodeDef:
    """A node that passes on a tensor of that type."""
    from tensorflow.core.framework import node_def_pb2

    node: NodeDef = node_def_pb2.NodeDef(name=name, op="Identity", input=[read])
    node.attr["T"].type = dtype
    return node


def unused_name(taken: Graph | Container[str], name: str) -> str:
    """A name that is not taken."""
    while name in taken:
        name += "_"
    return name
