"""What Grappler does not infer: what functions give that it only declares, and lists in loops."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.functiondef import bodies_of
from memopt.graph.graphdef import from_graph_def
from memopt.shapes.assumed import open_axes
from memopt.shapes.known_integers import KnownIntegers
from memopt.shapes.list_elements import takes_unknown, with_told_shapes
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import known_by_either

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import Shape

    Shapes = Mapping[str, tuple[Shape, ...]]
    from memopt.shapes.tensor_properties import TensorProperties

_FEW = (2,)
"""What stands for the length of a shape."""
_ROUNDS = 3
"""How often what loops take out is looked at: the first time, what they put in may not be known."""


def with_assumed(
    properties: Properties, item: GrapplerItem, shapes: Shapes
) -> tuple[Properties, GrapplerItem]:
    """What is known of a graph's tensors in one call, and the graph's use with that call's shapes.

    Args:
        properties: What Grappler infers: it holds for every call.
        item: The graph and its use.
        shapes: By node: the shapes of its outputs in that call.
    """
    shapes = {**open_axes(item.graph_def), **shapes}
    if not shapes:
        return properties, item
    item = replace(item, assumed_shapes=shapes)
    known: dict[str, tuple[TensorProperties, ...]] = {}
    load = cache(partial(from_graph_def, item.graph_def))
    for _ in range(_ROUNDS):
        # Grappler does not follow the sizes of shapes through what is computed of them.
        inferred = Properties.of(item)
        if inferred.failure:
            return properties, replace(item, assumed_shapes={})
        for node in item.graph_def.node:
            before = known.get(node.name, properties.outputs(node.name))
            more = inferred.outputs(node.name)
            is_same = len(before) == len(more)
            known[node.name] = tuple(map(known_by_either, before, more)) if is_same else before
        further = {
            **_further_shapes(item.graph_def, known),
            **_computed_shapes(item.graph_def, known, load),
        }
        if further.keys() <= item.assumed_shapes.keys():
            break
        item = replace(item, assumed_shapes={**item.assumed_shapes, **further})
    return Properties.given(known, properties), item


def _further_shapes(
    graph_def: GraphDef, known: Mapping[str, tuple[TensorProperties, ...]]
) -> Shapes:
    """What has a shape that inference does not find: fillings that enter loops, shapes of elements.

    A shape is a few numbers, however many.
    """

    def only(name: str) -> TensorProperties | None:
        return known[name][0] if len(known.get(name, ())) == 1 else None

    fills = {node.name for node in graph_def.node if node.op == "Fill"}
    found: dict[str, tuple[Shape, ...]] = {}
    for node in graph_def.node:
        output = only(node.name)
        if output is None or output.is_known:
            continue
        if node.op == "TensorListElementShape":
            found[node.name] = (_FEW,)
        elif node.op in op_types.ENTERS:
            source = node.input[0].partition(":")[0]
            filled = only(source) if source in fills else None
            if filled is not None and filled.is_known:
                found[source] = (filled.shape,)
    return found


def _computed_shapes(
    graph_def: GraphDef,
    known: Mapping[str, tuple[TensorProperties, ...]],
    load: Callable[[], Graph],
) -> Shapes:
    """What has a shape that integers tell which are computed of other shapes.

    TensorFlow follows these to the beginning of a loop: how many elements a list has that a loop
    fills, and what has the shape of what becomes of them, is not known behind it.

    Args:
        graph_def: The graph.
        known: What is known of its tensors.
        load: Loads it, which takes time for a large one and few have to be.
    """

    def told(tensor: Tensor) -> TensorProperties | None:
        outputs = known.get(tensor.node.name, ())
        return outputs[tensor.port] if tensor.port < len(outputs) else None

    def is_open(node: NodeDef) -> bool:
        outputs = known.get(node.name, ())
        return bool(outputs) and not outputs[0].is_known and outputs[0].shape is not None

    open_nodes = [n.name for n in graph_def.node if n.op in _COMPUTED_SHAPES and is_open(n)]
    found: dict[str, tuple[Shape, ...]] = {}
    if not open_nodes:
        return found
    graph, integers = load(), KnownIntegers(told)
    for name in open_nodes:
        node, before = graph[name], known[name][0].shape or ()
        shape = _COMPUTED_SHAPES[node.op](integers, node, before)
        if shape is not None and -1 not in shape and len(shape) == len(before):
            found[name] = (shape,)
    return found


def _stacked(integers: KnownIntegers, node: Node, shape: Sequence[int]) -> Shape:
    length = integers.list_length(node.inputs[0])
    return None if length is None else (length, *shape[1:])


def _reshaped(integers: KnownIntegers, node: Node, shape: Sequence[int]) -> Shape:
    del shape
    sizes = integers.value(node.inputs[1])
    return None if sizes is None else tuple(int(size) for size in sizes.flat)


_COMPUTED_SHAPES: Mapping[str, Callable[[KnownIntegers, Node, Sequence[int]], Shape]] = {
    "TensorListStack": _stacked,
    "Reshape": _reshaped,
}


def with_declared(properties: Properties, item: GrapplerItem) -> Properties:
    """What is known of a graph's tensors, and of what functions give that XLA compiles.

    To Grappler they are operations of which it infers nothing, and nothing of all that follows.

    Args:
        properties: What Grappler infers.
        item: The graph and its use.
    """
    if not _calls_without_shapes(properties, item.graph_def):
        return properties
    completed = _with_bodies(item.graph_def)
    return properties if completed is None else _completed(properties, item, completed, {})


def with_list_elements(properties: Properties, item: GrapplerItem) -> Properties:
    """What is known of a graph's tensors, and of what loops take out of lists.

    Args:
        properties: What is known of it without.
        item: The graph and its use.
    """
    for _ in range(_ROUNDS):
        known = partial(_output, properties)
        if not takes_unknown(item.graph_def, known):
            break
        properties = _completed(properties, item, *with_told_shapes(item.graph_def, known))
    if item.assumed_shapes:
        _bound_sums(properties, item.graph_def)
    return properties


def _bound_sums(properties: Properties, graph_def: GraphDef) -> None:
    """Let what gradients sum along axes that only a run tells be as large as what is summed.

    Where one input of an operation is not broadcast to the other, there are no such axes.
    """
    ops = {node.name: node.op for node in graph_def.node}
    bounded: set[str] = set()
    for op in ("Sum", "Reshape"):
        for node in graph_def.node:
            outputs = properties.outputs(node.name)
            if node.op != op or not outputs or outputs[0].is_known:
                continue
            source, told_by = (name.partition(":")[0] for name in node.input[:2])
            given = _output(properties, source, int(node.input[0].partition(":")[2] or 0))
            is_gradient = ops.get(told_by) == "BroadcastGradientArgs" or source in bounded
            if is_gradient and given is not None and given.is_known:
                properties.add(node.name, (given,))
                bounded.add(node.name)


def _output(properties: Properties, node: str, port: int) -> TensorProperties | None:
    outputs = properties.outputs(node)
    return outputs[port] if port < len(outputs) else None


def _completed(
    properties: Properties, item: GrapplerItem, completed: GraphDef, shaped: Mapping[str, str]
) -> Properties:
    """What is known of a graph, or of the same with more in it.

    Args:
        properties: What is known of it without.
        item: The graph and its use.
        completed: The graph with more.
        shaped: By node: the one whose output is its last output, with a shape.
    """
    more = Properties.of(replace(item, graph_def=completed))
    if more.failure:
        return properties
    known = {}
    for node in item.graph_def.node:
        before, after = properties.outputs(node.name), more.outputs(node.name)
        if node.name in shaped:
            after = (*after[:-1], *more.outputs(shaped[node.name]))
        known[node.name] = before
        if len(before) == len(after):
            known[node.name] = tuple(map(known_by_either, before, after))
    certain = properties.certain
    return Properties.given(known, None if certain is properties else certain)


def _calls_without_shapes(properties: Properties, graph_def: GraphDef) -> bool:
    """Whether a call of a declared function gives something of an unknown size."""
    declared = {
        function.signature.name for function in graph_def.library.function if not function.node_def
    }
    return any(
        value.func.name in declared
        for node in graph_def.node
        if any(tensor.size_bytes is None for tensor in properties.outputs(node.name))
        for value in node.attr.values()
    )


def _with_bodies(graph_def: GraphDef) -> GraphDef | None:
    """The graph with the bodies of the functions that it declares; `None` if one is not known."""
    completed = type(graph_def)()
    completed.CopyFrom(graph_def)
    bodies = bodies_of(graph_def)
    for function in completed.library.function:
        body = bodies(function.signature.name)
        if body is None:
            return None
        function.CopyFrom(body)
    return completed
