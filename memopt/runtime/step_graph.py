"""The graph of an item, prepared for a run: its variables, its needed part, its function form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from memopt.errors import InvalidGraphError, OptionsError
from memopt.runtime.graph_import import find_tensor, import_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    from memopt.item import GrapplerItem

    Kind = Literal["captured", "handle", "reference"]

_REFERENCE_OPS = frozenset({"Variable", "VariableV2"})
_HANDLE_OP = "VarHandleOp"
_NO_SHARED_NAME = frozenset({"", "cd2c89b7-88b7-44c8-ad83-06c2a9158347"})
"""The second is the one by which TensorFlow asks for a resource of its own."""


_ROOTS = frozenset({"Sqrt", "Rsqrt", "Log", "Log1p", "Pow"})
_KEEPS_SIGN = frozenset(
    {"ReadVariableOp", "Identity", "Cast", "Add", "AddV2", "Maximum", "Reshape", "Squeeze"}
)


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type.
        shape: Dimensions in elements, -1 for one that is not known; `None` when nothing is.
    """

    dtype: int
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class StepVariable:
    """A variable that a step reads or writes.

    Attributes:
        name: The node that stands for it; the first one where several do.
        nodes: All nodes that stand for it.
        kind: "captured" (a Placeholder of a function's graph), "handle" (VarHandleOp) or
            "reference" (VariableV2, the variables of TensorFlow 1).
        spec: Type and shape of its value.
    """

    name: str
    nodes: tuple[str, ...]
    kind: Kind
    spec: TensorSpec


def find_variables(item: GrapplerItem) -> tuple[StepVariable, ...]:
    """The variables of a step: all that are captured, and those that the fetches need.

    Raises:
        InvalidGraphError: A fetch or an input is no node of the graph.
    """
    captured = [
        StepVariable(name, (name,), "captured", TensorSpec(spec.dtype, spec.shape))
        for name, spec in item.variables.items()
    ]
    needed = needed_nodes(item.graph_def, item.fetch, item.feed)
    alike: dict[str, list[NodeDef]] = {}
    for node in item.graph_def.node:
        if node.name in needed and node.op in _REFERENCE_OPS | {_HANDLE_OP}:
            alike.setdefault(_shared_name(node), []).append(node)
    return (*captured, *(_variable_of(nodes) for nodes in alike.values()))


def positive_variables(graph_def: GraphDef) -> set[str]:
    """The nodes of variables whose values a root or a logarithm is taken of.

    A second moment or a variance has no negative numbers; with some, a step would compute only NaN.
    """
    nodes = {node.name: node for node in graph_def.node}
    pending = [
        node_name(node.input[0])
        for node in graph_def.node
        if node.op in _ROOTS and node.input and not node.input[0].startswith("^")
    ]
    seen: set[str] = set()
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        node = nodes[name]
        if node.op in _REFERENCE_OPS | {_HANDLE_OP, "Placeholder"}:
            found.add(name)
        elif node.op in _KEEPS_SIGN:
            pending.extend(node_name(text) for text in node.input if not text.startswith("^"))
    return found


def needed_nodes(graph_def: GraphDef, targets: Iterable[str], stops: Iterable[str]) -> set[str]:
    """Names of the nodes that `targets` (tensors or operations) need, up to the fed `stops`.

    Raises:
        InvalidGraphError: A target or an input is no node of the graph.
    """
    inputs = {node.name: node.input for node in graph_def.node}
    fed = {node_name(tensor) for tensor in stops}
    pending = [node_name(target) for target in targets]
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        if name not in inputs:
            raise InvalidGraphError(f"the graph has no node {name}", node=name)
        needed.add(name)
        if name not in fed:
            pending.extend(node_name(source) for source in inputs[name])
    return needed


def node_name(tensor: str) -> str:
    """The node behind `"x:0"`, `"^x"` or `"x"`."""
    return tensor.removeprefix("^").partition(":")[0]


def renamed(source: str, names: Mapping[str, str]) -> str:
    """`"x:0"`, `"^x"` or `"x"` by the new name of the node, where it has one."""
    caret = "^" if source.startswith("^") else ""
    name, colon, port = source.removeprefix("^").partition(":")
    return f"{caret}{names.get(name, name)}{colon}{port}"


def tensor_specs(graph_def: GraphDef, tensors: Iterable[str]) -> dict[str, TensorSpec]:
    """Types and shapes of tensors, by name.

    Raises:
        InvalidGraphError: There is no such tensor, or the graph cannot be imported.
    """
    placeholders = {node.name: node for node in graph_def.node if node.op == "Placeholder"}
    names = list(tensors)
    inferred = [name for name in names if node_name(name) not in placeholders]
    specs = _inferred_specs(graph_def, inferred) if inferred else {}
    for name in names:
        if name not in specs:
            node = placeholders[node_name(name)]
            specs[name] = TensorSpec(node.attr["dtype"].type, _shape(node.attr["shape"].shape))
    return {name: specs[name] for name in names}


def fed_specs(item: GrapplerItem) -> dict[str, TensorSpec]:
    """Types and shapes of what a step is fed, by name; in one call, where that is known.

    Raises:
        InvalidGraphError: There is no such tensor, or the graph cannot be imported.
    """
    assumed = {
        f"{node}:{port}": shape
        for node, shapes in item.assumed_shapes.items()
        for port, shape in enumerate(shapes)
    }
    return {
        name: replace(spec, shape=assumed.get(name, spec.shape))
        for name, spec in tensor_specs(item.graph_def, item.feed).items()
    }


def as_function_graph(item: GrapplerItem) -> GraphDef:
    """The part of the graph that the fetches need, as the body of a function.

    Feeds and variables become Placeholders, the only inputs that a function can have. The rest of
    the graph (initialisers, savers) is left out: a function could run it for its effects.

    Raises:
        InvalidGraphError: A fetch or feed is missing.
        OptionsError: A feed is not the first output of its node.
    """
    variables = find_variables(item)
    needed = needed_nodes(item.graph_def, (*item.fetch, *item.feed), item.feed)
    needed |= {name for variable in variables for name in variable.nodes}
    body = type(item.graph_def)()
    body.CopyFrom(item.graph_def)
    del body.node[:]
    body.node.extend(node for node in item.graph_def.node if node.name in needed)
    nodes = {node.name: node for node in body.node}
    _turn_feeds_into_placeholders(nodes, item)
    for variable in variables:
        if variable.kind == "handle":
            _turn_handle_into_placeholder(nodes, variable)
    return body


def with_named_variables(graph_def: GraphDef) -> GraphDef:
    """A copy in which every VarHandleOp shares its variable by name, as a session needs it.

    In a session all variables without a shared name would be one, and those that ask for a
    resource of their own would get a new one in every step.
    """
    named = type(graph_def)()
    named.CopyFrom(graph_def)
    for node in named.node:
        if node.op == _HANDLE_OP and node.attr["shared_name"].s.decode() in _NO_SHARED_NAME:
            node.attr["shared_name"].s = node.name.encode()
    return named


def _variable_of(alike: list[NodeDef]) -> StepVariable:
    first = alike[0]
    return StepVariable(
        name=first.name,
        nodes=tuple(node.name for node in alike),
        kind="handle" if first.op == _HANDLE_OP else "reference",
        spec=TensorSpec(first.attr["dtype"].type, _shape(first.attr["shape"].shape)),
    )


def _shape(shape: TensorShapeProto) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(int(dimension.size) for dimension in shape.dim)


def _shared_name(node: NodeDef) -> str:
    """What two nodes for the same variable have in common."""
    shared = _text(node, "shared_name")
    if shared in _NO_SHARED_NAME:
        return f"node {node.name}"
    return f"{_text(node, 'container')}/{shared}"


def _text(node: NodeDef, attribute: str) -> str:
    """A text among the attributes, "" if it is not there; only looking it up would add it."""
    return node.attr[attribute].s.decode() if attribute in node.attr else ""


def _inferred_specs(graph_def: GraphDef, names: list[str]) -> dict[str, TensorSpec]:
    import tensorflow as tf

    graph = tf.Graph()
    import_graph(graph_def, graph)
    tensors = [find_tensor(graph, name, "tensor") for name in names]
    return {
        name: TensorSpec(tensor.dtype.as_datatype_enum, _shape(tensor.shape.as_proto()))
        for name, tensor in zip(names, tensors, strict=True)
    }


def _turn_feeds_into_placeholders(nodes: dict[str, NodeDef], item: GrapplerItem) -> None:
    foreign = [tensor for tensor in item.feed if nodes[node_name(tensor)].op != "Placeholder"]
    for tensor, spec in tensor_specs(item.graph_def, foreign).items():
        if not tensor.endswith(":0"):
            raise OptionsError(f"{tensor} cannot be fed: only the first output of a node can")
        _turn_into_placeholder(nodes[node_name(tensor)], spec.dtype)


def _turn_handle_into_placeholder(nodes: dict[str, NodeDef], variable: StepVariable) -> None:
    from tensorflow.core.framework import types_pb2

    first, *others = variable.nodes
    _turn_into_placeholder(nodes[first], types_pb2.DT_RESOURCE)
    # A function captures a variable once; further nodes for it pass the same handle on.
    for name in others:
        node = nodes[name]
        control = [source for source in node.input if source.startswith("^")]
        node.Clear()
        node.name, node.op = name, "Identity"
        node.input.extend([f"{first}:0", *control])
        node.attr["T"].type = types_pb2.DT_RESOURCE


def _turn_into_placeholder(node: NodeDef, dtype: int) -> None:
    from tensorflow.core.framework import types_pb2

    name, device = node.name, node.device
    node.Clear()
    node.name, node.op, node.device = name, "Placeholder", device
    node.attr["dtype"].type = types_pb2.DataType.ValueType(dtype)
    node.attr["shape"].shape.unknown_rank = True
