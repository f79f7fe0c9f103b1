"""What Grappler's own inference (`GraphProperties`) says of a graph, no more and no less."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import Library
from memopt.graph.op_types import DT_FLOAT
from memopt.shapes.function_calls import (
    body_graph_def,
    find_calls,
    placeholder,
    tensor_name,
    unused_name,
)
from memopt.shapes.recursion import refuse_recursion
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import NodeProperties, TensorProperties

PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_SCALARS_ARE_UNKNOWN = 21
"""Up to this version of graphs, a Placeholder of shape [] is one of unknown shape."""
_LARGE_VALUE_BYTES = 1 << 16
"""A larger constant says nothing of shapes by its value."""


class GrapplerInference:
    """What native Grappler assumes when it simulates a step or rewrites AddN.

    Exactly `GraphProperties::InferStatically(assume_valid_feeds, aggressive=false)`, called through
    TensorFlow's Python binding, on the graph with captured variables as handles. It differs from
    `FullInference`:

    1. Constants are followed through few ops (shapes, Pack, StridedSlice, Concat and the like), not
       computed: behind InvertPermutation, Range or Prod, dimensions are not known.
    2. What a loop over functions (While) does to variables and tensor lists is not known.
    3. A node whose shapes do not fit has outputs of unknown shape; the graph is not refused.
    4. A PlaceholderWithDefault has the shape of its default, whatever may be fed.
    5. In bodies, arguments have the shapes that the function declares for them, whatever a call
       gives, and nothing is known of variables behind arguments.

    Args:
        item: The graph and what is fed.
        feeds_known: Whether what is fed has the shape that the graph says (`assume_valid_feeds`).
            If not, nothing is known of the shape of fed tensors and of Placeholders, which Grappler
            takes to be fed; something only where their readers need it. So it is when
            Grappler's passes ask for shapes. In a body, the arguments are fed.
    """

    def __init__(self, item: GrapplerItem, *, feeds_known: bool = True) -> None:
        self._item = item
        self._feeds_known = feeds_known
        self._bodies: dict[str, NodeProperties] = {}

    def nodes(self, function: str) -> NodeProperties:
        """See `Inference`."""
        if not function:
            return self._main
        if function not in self._bodies:
            self._bodies[function] = self._body(function)
        return self._bodies[function]

    @cached_property
    def _main(self) -> NodeProperties:
        item = self._item
        graph_def = item.with_variable_handles() if item.variables else item.graph_def
        return infer_by_grappler(graph_def, None if self._feeds_known else item.feed)

    @cached_property
    def _library(self) -> Library:
        return Library(self._item.graph_def.library)

    def _body(self, function: str) -> NodeProperties:
        signature = self._library.op_def(function)
        if signature is None:
            return {}
        body = self._library.graph(function)
        arguments = [
            placeholder(argument.name, _declared(body.envelope, number))
            for number, argument in enumerate(signature.input_arg)
        ]
        whole = self._item.graph_def
        graph_def = body_graph_def(body, arguments, whole.versions)
        if any(find_calls(graph_def.node, self._library)):
            graph_def.library.CopyFrom(whole.library)
        return infer_by_grappler(graph_def, None if self._feeds_known else ())


def _declared(function: FunctionDef, number: int) -> TensorProperties:
    """What a function declares of an argument."""
    dtype = function.signature.input_arg[number].type
    attributes = function.arg_attr[number].attr if number in function.arg_attr else {}
    declared = attributes.get("_output_shapes")
    shapes = [] if declared is None else declared.list.shape
    if not shapes or shapes[0].unknown_rank:
        return tensor_properties(dtype, None)
    return tensor_properties(dtype, tuple(dim.size for dim in shapes[0].dim))


def infer_by_grappler(graph_def: GraphDef, fed: Iterable[str] | None = None) -> NodeProperties:
    """What Grappler infers statically, for every node.

    The whole graph is inferred, whatever is asked for: what readers need of a tensor counts too,
    so that the tensors before a node do not tell all that is known of it.

    Args:
        graph_def: The graph. It is not changed.
        fed: `None` if inputs have the shapes that the graph says; else the tensors that are fed
            (`node:port`) beside all Placeholders, of whose shapes nothing is known.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    if not graph_def.node:
        return {}
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    # Grappler insists on a fetch, which plays no part.
    meta_graph.collection_def["train_op"].node_list.value.append(graph_def.node[0].name)
    stand_ins = {}
    if fed is None:
        _declare_inputs(meta_graph.graph_def)
    else:
        stand_ins = _feed_inputs(meta_graph.graph_def, fed)
    _drop_large_values(meta_graph.graph_def)
    found = _ask_grappler(meta_graph)
    properties = {node.name: found[node.name] for node in graph_def.node}
    for tensor, stand_in in stand_ins.items():
        node, _, port = tensor.rpartition(":")
        outputs = list(properties[node])
        if int(port) < len(outputs):
            shape = found[stand_in][0].shape
            outputs[int(port)] = tensor_properties(outputs[int(port)].dtype, shape)
            properties[node] = tuple(outputs)
    return properties


def _ask_grappler(meta_graph: MetaGraphDef) -> dict[str, tuple[TensorProperties, ...]]:
    """The properties of every node's outputs; everything is fed that is a Placeholder."""
    from tensorflow.python.grappler import _pywrap_tf_item

    refuse_recursion(meta_graph.graph_def)
    try:
        # Colocation says nothing of shapes.
        item = _pywrap_tf_item.TF_NewItem(meta_graph.SerializeToString(), True, False)
        found = _pywrap_tf_item.TF_GetOpProperties(item)
    except Exception as error:  # A broken graph raises whatever TensorFlow's layers raise.
        reason = " ".join(str(error).split())
        raise InvalidGraphError(f"Grappler cannot infer the graph's shapes: {reason}") from error
    return read_properties(found)


def read_properties(
    found: Mapping[str, Sequence[bytes]],
) -> dict[str, tuple[TensorProperties, ...]]:
    """The properties of nodes' outputs from the serialized messages that Grappler hands out."""
    from tensorflow.core.grappler.costs import op_performance_data_pb2

    parse = op_performance_data_pb2.OpInfo.TensorProperties.FromString
    # A graph has few distinct ones.
    messages = {message for outputs in found.values() for message in outputs}
    known = {message: _properties(parse(message)) for message in messages}
    return {name: tuple([known[message] for message in found[name]]) for name in found}


def _properties(native: Any) -> TensorProperties:
    if native.shape.unknown_rank:
        return tensor_properties(native.dtype, None)
    # Grappler tells unknown dimensions apart by numbers from -2 on down.
    return tensor_properties(native.dtype, tuple([max(dim.size, -1) for dim in native.shape.dim]))


def _declare_inputs(graph_def: GraphDef) -> None:
    """Let Placeholders be reads of variables of the same type and shape.

    Grappler's Python binding takes every Placeholder to be fed and its shape to be unknown.
    """
    scalars_are_unknown = graph_def.versions.producer <= _SCALARS_ARE_UNKNOWN
    inputs = [node for node in graph_def.node if node.op in PLACEHOLDERS]
    taken = {node.name for node in graph_def.node} if inputs else set()
    for node in inputs:
        handle = graph_def.node.add(
            name=unused_name(taken, f"{node.name}/handle"), op="VarHandleOp"
        )
        handle.attr["dtype"].type = node.attr["dtype"].type
        shape = handle.attr["shape"].shape
        shape.CopyFrom(node.attr["shape"].shape)
        declared = node.attr["shape"].HasField("shape")
        if not declared or (scalars_are_unknown and not shape.dim):
            shape.unknown_rank = True
        controls = [name for name in node.input if name.startswith("^")]
        node.op = "ReadVariableOp"
        node.input[:] = [handle.name, *controls]
        for key in list(node.attr):
            if key != "dtype":
                del node.attr[key]


def _feed_inputs(graph_def: GraphDef, fed: Iterable[str]) -> dict[str, str]:
    """Let Placeholders stand for all that is fed.

    Returns:
        For each fed tensor that is no Placeholder's, the Placeholder that its readers read now.
    """
    by_name = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        if node.op in PLACEHOLDERS:
            # Grappler makes a tensor of this shape for the feed.
            node.attr["shape"].shape.Clear()
    stand_ins: dict[str, str] = {}
    for tensor in map(tensor_name, fed):
        producer, _, port = tensor.rpartition(":")
        if producer not in by_name or by_name[producer].op in PLACEHOLDERS:
            continue
        name = unused_name(by_name, f"{producer}/fed{port}")
        stand_in = graph_def.node.add(name=name, op="Placeholder")
        # Types play no part where shapes are unknown.
        stand_in.attr["dtype"].type = DT_FLOAT
        stand_in.attr["shape"].shape.SetInParent()
        stand_ins[tensor] = name
    if stand_ins:
        for node in graph_def.node:
            for slot, name in enumerate(node.input):
                if tensor_name(name) in stand_ins:
                    node.input[slot] = stand_ins[tensor_name(name)]
    return stand_ins


def _drop_large_values(graph_def: GraphDef) -> None:
    """Let large constants be of the same type and shape without elements.

    Grappler hands out the value of every constant.
    """
    for node in graph_def.node:
        if node.op != "Const":
            continue
        tensor = node.attr["value"].tensor
        if tensor.ByteSize() > _LARGE_VALUE_BYTES:
            dtype, sizes = tensor.dtype, [dim.size for dim in tensor.tensor_shape.dim]
            tensor.Clear()
            tensor.dtype = dtype
            tensor.tensor_shape.SetInParent()
            for size in sizes:
                tensor.tensor_shape.dim.add().size = size
