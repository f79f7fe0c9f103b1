"""FunctionDef in and out: the bodies of a graph's functions as graphs, without loss.

In a body, arguments are `_Arg` nodes, results are `_Retval` nodes, and inputs are spelled
`node:output:number`; as a graph they have ports like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.graph import op_types
from memopt.graph.attributes import integer_attribute, type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.graph import Graph, Node, Tensor
from memopt.graph.nodedef import add_node_def, write_node_def

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef, FunctionDefLibrary
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.op_def_pb2 import OpDef

    from memopt.graph.graph import FunctionLibrary

    Bodies = Callable[[str], FunctionDef | None]
    """Finds functions by name."""

ARGUMENT = "_Arg"
RESULT = "_Retval"
_BODY_INPUT_PARTS = 3


class Library:
    """A FunctionDefLibrary whose bodies are loaded when they are asked for.

    Inside of Grappler functions are declared without a body: what they take and give is known, and
    that is all. Calls of them are operations like any other.
    """

    def __init__(self, library: FunctionDefLibrary) -> None:
        self._library = library
        self._declared = {function.signature.name: function for function in library.function}
        self._functions = {
            name: function for name, function in self._declared.items() if not _is_stub(function)
        }
        self._graphs: dict[str, Graph] = {}
        self._added: dict[str, FunctionDef] = {}
        """What is not in the message, which is the caller's."""

    def names(self) -> tuple[str, ...]:
        """The names of the functions that have a body, in the order of the library."""
        return tuple(self._functions)

    def op_def(self, name: str) -> OpDef | None:
        """The signature of a function, or `None` when there is none of that name."""
        function = self._declared.get(name)
        return None if function is None else function.signature

    def add(self, function: FunctionDef) -> None:
        """Put in a function by a name that no other has."""
        name = function.signature.name
        assert name not in self._declared
        self._added[name] = self._declared[name] = self._functions[name] = function

    def remove_added(self, name: str) -> None:
        """Take out a function that was put in."""
        del self._added[name], self._declared[name], self._functions[name]
        self._graphs.pop(name, None)

    def stays_a_call(self, name: str) -> bool:
        """Whether a function is declared not to be inlined: TensorFlow prepares it by itself."""
        declared = self._declared.get(name)
        return (
            declared is not None and "_noinline" in declared.attr and declared.attr["_noinline"].b
        )

    def graph(self, name: str) -> Graph:
        """The body as a graph, loaded once and then the same object.

        Raises:
            InvalidGraphError: The body breaks a rule; the message names function and node.
        """
        if name not in self._graphs:
            try:
                self._graphs[name] = from_function_def(self._functions[name], self)
            except InvalidGraphError as error:
                raise InvalidGraphError(
                    f"in function {name!r}: {error}", error.node, error.input
                ) from error
        return self._graphs[name]

    def called_by(
        self, graph: Graph, passes_over: Callable[[Node], bool] = lambda _: False
    ) -> list[str]:
        """The functions that a graph calls, directly or through others, in order of discovery.

        Args:
            graph: The graph.
            passes_over: Which calls do not count.

        Raises:
            InvalidGraphError: A body breaks a rule.
        """
        if not self._functions:
            return []
        found: dict[str, None] = {}
        pending = [graph]
        while pending:
            for node in pending.pop():
                if passes_over(node):
                    continue
                for name in op_types.called_functions(node, self):
                    if name not in found and name in self._functions:
                        found[name] = None
                        pending.append(self.graph(name))
        return list(found)

    def control_outputs(self, name: str) -> tuple[str, ...]:
        """The body nodes that run for their effects, which must keep their names."""
        return tuple(self._functions[name].control_ret.values())

    @property
    def changed(self) -> bool:
        """Whether any loaded body has changed, or a function was put in."""
        return bool(self._added) or any(graph.changed for graph in self._graphs.values())

    def to_proto(self) -> FunctionDefLibrary:
        """The library with every changed body replaced and what was put in: a new message."""
        from tensorflow.core.framework import function_pb2

        library: FunctionDefLibrary = function_pb2.FunctionDefLibrary()
        library.CopyFrom(self._library)
        library.function.extend(self._added.values())
        for function in library.function:
            graph = self._graphs.get(function.signature.name)
            if graph is not None and graph.changed:
                function.CopyFrom(to_function_def(graph))
        return library


def from_function_def(function: FunctionDef, library: Library) -> Graph:
    """The body of a function as a graph; `_Arg` nodes first, `_Retval` nodes last."""
    graph = Graph(library, envelope=function)
    for number, argument in enumerate(function.signature.input_arg):
        if argument.number_attr or argument.type_list_attr:
            raise InvalidGraphError(f"argument {argument.name!r} is a list")
        graph.add_node(argument.name, ARGUMENT, attributes=port_attributes(argument.type, number))
    bodies = [(add_node_def(graph, node_def), node_def) for node_def in function.node_def]
    names = _BodyNames(graph)
    for node, node_def in bodies:
        graph.connect(node, *names.parse_inputs(node, node_def.input))
    for number, result in enumerate(function.signature.output_arg):
        name = free_name(f"{result.name}_RetVal", graph, "_")
        node = graph.add_node(name, RESULT, attributes=port_attributes(result.type, number))
        graph.connect(node, (names.parse_tensor(node, function.ret[result.name]),), {})
    graph.mark_loaded()
    return graph


def to_function_def(graph: Graph, like: FunctionDef | None = None) -> FunctionDef:
    """The FunctionDef of a body: a new message.

    Args:
        graph: The body, as `from_function_def` loads it.
        like: For a graph that was loaded from a GraphDef with such arguments and results: the
            function that has everything else, its name and signature above all.
    """
    from tensorflow.core.framework import function_pb2

    function: FunctionDef = function_pb2.FunctionDef()
    function.CopyFrom(graph.envelope if like is None else like)
    function.ClearField("node_def")
    names = _BodyNames(graph)
    for node in graph:
        if node.op == RESULT:
            number = node.attributes["index"].i
            function.ret[function.signature.output_arg[number].name] = names.spell(node.inputs[0])
        elif node.op != ARGUMENT:
            node_def = function.node_def.add()
            write_node_def(node_def, node, names.spell_inputs)
            is_respelled = any(tensor.node.changed for tensor in node.inputs)
            if not node.changed and (like is not None or is_respelled):
                # Outputs are spelled by the op that makes them, which may be another now.
                node_def.input[:] = names.spell_inputs(node)
    return function


class _BodyNames:
    """Translates between ports and the spelling `node:output:number` of function bodies."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ranges: dict[Node, dict[str, range]] = {}

    def parse_inputs(self, node: Node, names: Any) -> tuple[tuple[Tensor, ...], dict[Node, None]]:
        tensors: list[Tensor] = []
        controls: dict[Node, None] = {}
        for name in names:
            if name.startswith("^"):
                controls[self._producer(node, name, name[1:])] = None
            elif controls:
                raise _bad_input(node, name, "comes after a control input")
            else:
                tensors.append(self.parse_tensor(node, name))
        return tuple(tensors), controls

    def parse_tensor(self, node: Node, name: str) -> Tensor:
        parts = name.split(":")
        producer = self._producer(node, name, parts[0])
        if producer.op == ARGUMENT:
            return producer.output(0)
        if len(parts) != _BODY_INPUT_PARTS:
            raise _bad_input(node, name, "is not spelled node:output:number")
        ports = self._ports(producer).get(parts[1])
        if ports is None or not parts[2].isdecimal() or int(parts[2]) >= len(ports):
            raise _bad_input(node, name, "is no output of its producer")
        return producer.output(ports[int(parts[2])])

    def spell_inputs(self, node: Node) -> list[str]:
        return [
            *map(self.spell, node.inputs),
            *(f"^{control.name}" for control in node.control_inputs),
        ]

    def spell(self, tensor: Tensor) -> str:
        producer = tensor.node
        if producer.op == ARGUMENT:
            return producer.name
        for output, ports in self._ports(producer).items():
            if tensor.port in ports:
                return f"{producer.name}:{output}:{tensor.port - ports.start}"
        raise InvalidGraphError(f"{producer.name!r} has no output {tensor.port}", producer.name)

    def _producer(self, node: Node, name: str, producer_name: str) -> Node:
        producer = self._graph.find(producer_name)
        if producer is None:
            raise _bad_input(node, name, "does not exist in the body")
        return producer

    def _ports(self, producer: Node) -> dict[str, range]:
        ranges = self._ranges.get(producer)
        if ranges is None:
            known = op_types.require_signature(producer, self._graph.library)
            ranges = self._ranges[producer] = known.output_ranges(producer)
        return ranges


def _is_stub(function: FunctionDef) -> bool:
    """Whether results are declared that nothing computes."""
    return bool(function.signature.output_arg) and not function.ret and not function.node_def


def _bad_input(node: Node, name: str, what: str) -> InvalidGraphError:
    return InvalidGraphError(f"node {node.name!r}: input {name!r} {what}", node.name, name)


def port_attributes(dtype: int, number: int) -> dict[str, AttrValue]:
    """The attributes of an argument's or a result's node."""
    return {"T": type_attribute(dtype), "index": integer_attribute(number)}


def bodies_in(functions: FunctionDefLibrary) -> dict[str, FunctionDef]:
    """The functions of a library that have bodies, by name."""
    return {each.signature.name: each for each in functions.function if each.node_def}


def bodies_of(graph_def: GraphDef) -> Bodies:
    """The functions that a graph calls; those it only declares as this process has them."""
    own = bodies_in(graph_def.library)

    def find(name: str) -> FunctionDef | None:
        return own.get(name) or body_in_process(name)

    return find


def body_in_process(name: str) -> FunctionDef | None:
    """A function as this process has it; `None` if it has none of that name."""
    from tensorflow.python.eager import context

    process = context.context()
    return process.get_function_def(name) if process.has_function(name) else None


def body_of(name: str, library: FunctionLibrary | None) -> Graph | None:
    """A function's body as a graph: out of a library, or as this process has it."""
    if library is not None and name in library.names():
        return library.graph(name)
    function = body_in_process(name)
    if function is None:
        return None
    from tensorflow.core.framework.function_pb2 import FunctionDefLibrary

    return Library(FunctionDefLibrary(function=[function])).graph(name)
