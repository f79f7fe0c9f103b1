"""All that TensorFlow knows of a graph's shapes and types, bodies of functions included."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import Library
from memopt.graph.op_types import NEXT_ITERATIONS
from memopt.shapes.function_calls import (
    CALLS,
    HANDLES,
    body_graph_def,
    bypass_loops,
    find_calls,
    has_loops,
    identity,
    placeholder,
    unused_name,
)
from memopt.shapes.grappler_inference import PLACEHOLDERS, infer_by_grappler
from memopt.shapes.imported_graph import new_graph
from memopt.shapes.tensor_properties import known_by_either

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.item import GrapplerItem
    from memopt.shapes.function_calls import Call
    from memopt.shapes.imported_graph import ImportedGraph
    from memopt.shapes.tensor_properties import NodeProperties, TensorProperties


class Inference(Protocol):
    """Tells what is known of a graph and of its functions' bodies."""

    def nodes(self, function: str) -> NodeProperties:
        """What is known of a body's nodes, or for "" of the main graph's.

        Empty for a function that is not there or that no call of a known kind reaches.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """


class FullInference:
    """TensorFlow's shape functions with constants folded, where they help together with Grappler.

    The graph is imported, so that every node has what its shape function makes of its inputs,
    constant parts of the graph evaluated. That goes from producers to users once. Grappler's
    inference (`GraphProperties`) also follows v1 loops until nothing changes, and tells of an input
    what its readers need it to be; it is asked where there are such loops, queues, calls, or
    inputs of unknown shape.

    Captured variables arrive as Placeholders whose shape functions know nothing; they are replaced
    by variable handles, so that reads of them, and all that follows, have shapes. Where the item
    does not say what a captured resource holds, what depends on it stays unknown.

    A body is inferred from the arguments of the first call that is found, all bodies when the first
    is asked for. The values of the arguments are not used, since another call may give others.
    """

    def __init__(self, item: GrapplerItem) -> None:
        self._item = item

    def nodes(self, function: str) -> NodeProperties:
        """See `Inference`."""
        if not function:
            return self._main
        found = self._bodies.get(function, {})
        if isinstance(found, InvalidGraphError):
            raise found
        return found

    @cached_property
    def _graph_def(self) -> GraphDef:
        """The graph with what helps the shape functions; the item's own if nothing does."""
        item = self._item
        if not item.variables and not has_loops(item.graph_def):
            return item.graph_def
        graph_def = item.with_variable_handles()
        bypass_loops(graph_def)
        return graph_def

    @cached_property
    def _imported(self) -> ImportedGraph:
        graph = new_graph()
        graph.add(self._graph_def)
        return graph

    @cached_property
    def _main(self) -> NodeProperties:
        nodes = self._graph_def.node
        more = (lambda: self._by_grappler) if _grappler_may_know_more(self._graph_def) else None
        return _ImportedNodes(self._imported, "", nodes, more)

    @cached_property
    def _by_grappler(self) -> NodeProperties:
        try:
            return infer_by_grappler(self._graph_def)
        except InvalidGraphError:  # Then what the import knows has to do.
            return {}

    @cached_property
    def _bodies(self) -> dict[str, NodeProperties | InvalidGraphError]:
        """The bodies that calls reach, in the order of discovery."""
        graph_def = self._graph_def
        library = Library(graph_def.library)
        scope = _unused_scope(graph_def)
        found: dict[str, NodeProperties | InvalidGraphError] = {}
        pending = [(call, "") for call in find_calls(graph_def.node, library)]
        for call, caller in pending:
            if call.function in found:
                continue
            try:
                prefix = f"{scope}{len(found)}/"
                body = self._add_body(call, caller, prefix, library)
            except InvalidGraphError as error:
                found[call.function] = error
                continue
            found[call.function] = _ImportedNodes(self._imported, prefix, body.node)
            pending += [(inner, prefix) for inner in find_calls(body.node, library)]
        return found

    def _add_body(self, call: Call, caller: str, prefix: str, library: Library) -> GraphDef:
        """Import a body beside its caller, its arguments as much known as in the call."""
        signature = library.op_def(call.function)
        names = [argument.name for argument in signature.input_arg] if signature else []
        if len(names) != len(call.arguments):
            raise InvalidGraphError(
                f"function {call.function!r} takes {len(names)} arguments, "
                f"a call of it gives {len(call.arguments)}"
            )
        graph = library.graph(call.function)
        outside = unused_name(graph.by_name, "given")
        given: dict[str, str] = {}
        stand_ins = []
        for number, (name, argument) in enumerate(zip(names, call.arguments, strict=True)):
            tensor = self._tensor(caller + argument.lasting)
            if tensor.dtype in HANDLES:
                # What is behind it comes along; a placeholder would not know.
                given[f"{outside}:{number}"] = caller + argument.tensor
                stand_ins.append(identity(name, tensor.dtype, f"{outside}:{number}"))
            else:
                stand_ins.append(placeholder(name, tensor))
        body = body_graph_def(graph, stand_ins, self._graph_def.versions)
        bypass_loops(body)
        self._imported.add(body, prefix.removesuffix("/"), given)
        return body

    def _tensor(self, name: str) -> TensorProperties:
        node, _, port = name.rpartition(":")
        outputs = self._imported.outputs(node) or ()
        if int(port) >= len(outputs):
            raise InvalidGraphError(f"a call reads {name!r}, which does not exist")
        return outputs[int(port)]


class _ImportedNodes(Mapping[str, "tuple[TensorProperties, ...]"]):
    """What an imported graph knows of nodes; each read when it is asked for.

    Args:
        graph: The graph.
        prefix: Before the nodes' names.
        nodes: The nodes.
        more: Gives what is known beside, asked for where the graph does not know a shape.
    """

    def __init__(
        self,
        graph: ImportedGraph,
        prefix: str,
        nodes: Sequence[NodeDef],
        more: Callable[[], NodeProperties] | None = None,
    ) -> None:
        self._graph = graph
        self._prefix = prefix
        self._nodes = nodes
        self._more = more

    def __getitem__(self, node: str) -> tuple[TensorProperties, ...]:
        outputs = self._graph.outputs(self._prefix + node)
        if outputs is None:
            raise KeyError(node)
        if self._more is None or all(tensor.is_known for tensor in outputs):
            return outputs
        others = self._more().get(node, ())
        if len(others) != len(outputs):
            return outputs
        return tuple(map(known_by_either, outputs, others))

    def __iter__(self) -> Iterator[str]:
        return (node.name for node in self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _grappler_may_know_more(graph_def: GraphDef) -> bool:
    """Whether there is what Grappler's inference follows and an import does not always."""
    functions = {function.signature.name for function in graph_def.library.function}
    followed = NEXT_ITERATIONS | CALLS | functions
    return any(
        node.op in followed
        or "Dequeue" in node.op
        or (node.op in PLACEHOLDERS and not _is_declared(node))
        for node in graph_def.node
    )


def _is_declared(placeholder: NodeDef) -> bool:
    """Whether a Placeholder has a whole shape."""
    shape = placeholder.attr["shape"].shape if "shape" in placeholder.attr else None
    return shape is not None and not shape.unknown_rank and all(d.size >= 0 for d in shape.dim)


def _unused_scope(graph_def: GraphDef) -> str:
    """What no node's name starts with."""
    scope = "body"
    while any(node.name.startswith(scope) for node in graph_def.node):
        scope += "_"
    return scope


class Given:
    """What somebody else has inferred of a graph; of its functions nothing.

    Args:
        nodes: For each node what is known of its outputs.
    """

    def __init__(self, nodes: NodeProperties) -> None:
        self._nodes = nodes

    def nodes(self, function: str) -> NodeProperties:
        """See `Inference`."""
        return {} if function else self._nodes
