"""A function of a library as a graph with its use, and the rewritten graph as a function again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from memopt.errors import OptionsError
from memopt.graph.functiondef import ARGUMENT, RESULT, Library, from_function_def
from memopt.graph.nodedef import spell_inputs
from memopt.item import GrapplerItem
from memopt.runtime.library import called_by
from memopt.shapes.function_calls import identity, unused_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tensorflow.core.framework.function_pb2 import FunctionDef, FunctionDefLibrary
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
    from tensorflow.core.framework.versions_pb2 import VersionDef

    from memopt.item import VariableSpec

_SHAPES_OF_ARGUMENT, _SHAPES_OF_FUNCTION = "_output_shapes", "_input_shapes"
_NAME_OF_ARGUMENT = "_user_specified_name"


class StepBody(ABC):
    """A graph with its use, and what callers call its arguments."""

    item: GrapplerItem

    @property
    @abstractmethod
    def called_as(self) -> Mapping[str, str]:
        """By name of a node that is an argument what callers call it."""

    @property
    @abstractmethod
    def step_graph(self) -> GraphDef:
        """What runs, with all functions: what is to be judged by its operations."""

    @abstractmethod
    def with_item(self, item: GrapplerItem) -> Self:
        """The same with another graph."""

    def open_arguments(self, shapes: Collection[str]) -> list[tuple[str, str]]:
        """The arguments with a dimension that is not declared, and their shapes in words.

        Args:
            shapes: Names of arguments, as callers call them, that get a shape.
        """
        nodes = {node.name: node for node in self.item.graph_def.node}
        found = []
        for key, name in self.called_as.items():
            shape = nodes[key].attr["shape"].shape
            if name not in shapes and _is_tensor(nodes[key].attr["dtype"].type) and _is_open(shape):
                found.append((name, shape_text(shape)))
        return found

    def sized(self, shapes: Mapping[str, tuple[int, ...]], more: int = 0) -> GrapplerItem:
        """The item with shapes put in where dimensions are open.

        Args:
            shapes: By name of an argument, as callers call it; others have no effect here.
            more: What is added to each size that is put in.

        Raises:
            OptionsError: A shape is not one that the function takes.
        """
        graph_def = type(self.item.graph_def)()
        graph_def.CopyFrom(self.item.graph_def)
        called_as = self.called_as
        for node in graph_def.node:
            name = called_as.get(node.name, "")
            if name in shapes and node.op == "Placeholder":
                _put_in(node.attr["shape"].shape, shapes[name], name, more)
        return replace(self.item, graph_def=graph_def)


@dataclass(frozen=True)
class Body(StepBody):
    """A function's body as a graph.

    Attributes:
        function: The function.
        item: Its body: arguments are Placeholders, of the shapes that the function declares.
        results: For each result the tensor (`"node:0"`) in that graph.
        callees: The functions that it calls, by name, as they stand in the library.
    """

    function: FunctionDef
    item: GrapplerItem
    results: tuple[str, ...]
    callees: Mapping[str, FunctionDef]

    @classmethod
    def of(
        cls,
        function: FunctionDef,
        library: FunctionDefLibrary,
        variables: Mapping[str, VariableSpec],
        versions: VersionDef,
    ) -> Body:
        """The body of a function.

        Args:
            function: The function.
            library: All functions that it may call.
            variables: What is known of variables that are arguments, by name of the argument.
            versions: Those of the graph that the library belongs to.

        Raises:
            InvalidGraphError: The body breaks a rule, or has an op that TensorFlow does not know.
        """
        from tensorflow.core.framework import graph_pb2

        graph = from_function_def(function, Library(library))
        graph_def: GraphDef = graph_pb2.GraphDef()
        graph_def.versions.CopyFrom(versions)
        graph_def.library.CopyFrom(_called_functions(function, library))
        taken = {node.name for node in graph}
        results = []
        for node in graph:
            if node.op == RESULT:
                source = node.inputs[0]
                name = source.node.name
                if source.port:
                    # What is asked for by a name that rewriting keeps is a node's first output.
                    name = unused_name(taken, f"{name}_{source.port}")
                    taken.add(name)
                    added = identity(name, node.attributes["T"].type, str(source))
                    graph_def.node.append(added)
                results.append(f"{name}:0")
                continue
            added = graph_def.node.add()
            if node.op == ARGUMENT:
                _make_placeholder(added, function, node.attributes["index"].i)
                continue
            added.MergeFrom(node.origin)
            added.input[:] = spell_inputs(node)
        item = GrapplerItem(
            graph_def,
            feed=tuple(
                f"{argument.name}:0"
                for argument in function.signature.input_arg
                if argument.name not in variables
            ),
            fetch=(*dict.fromkeys(results), *sorted(set(function.control_ret.values()))),
            variables=MappingProxyType(dict(variables)),
            in_function=True,
        )
        callees = {one.signature.name: one for one in graph_def.library.function}
        return cls(function, item, tuple(results), callees)

    def with_item(self, item: GrapplerItem) -> Self:
        """The same with another graph."""
        return replace(self, item=item)

    @property
    def called_as(self) -> Mapping[str, str]:
        """By name of an argument what callers call it."""
        return argument_names(self.function, self.item.variables)

    @property
    def step_graph(self) -> GraphDef:
        """The body."""
        return self.item.graph_def


def argument_names(function: FunctionDef, variables: Collection[str]) -> dict[str, str]:
    """By name of an argument what callers call it: what the user did, where that is known.

    Args:
        function: The function.
        variables: The arguments that are variables, which callers do not give.
    """
    found = {}
    for number, argument in enumerate(function.signature.input_arg):
        if argument.name in variables:
            continue
        found[argument.name] = argument.name
        # Only looking an attribute up would add it.
        if number in function.arg_attr and _NAME_OF_ARGUMENT in function.arg_attr[number].attr:
            name = function.arg_attr[number].attr[_NAME_OF_ARGUMENT].s
            found[argument.name] = name.decode(errors="replace")
    return found


def reached(names: Iterable[str], functions: Mapping[str, FunctionDef]) -> list[str]:
    """These functions and all that they call, directly or through others, in order of discovery."""
    found: dict[str, None] = {}
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in found or name not in functions:
            continue
        found[name] = None
        pending += [callee for node in functions[name].node_def for callee in called_by(node)]
    return list(found)


def _called_functions(function: FunctionDef, library: FunctionDefLibrary) -> FunctionDefLibrary:
    """The part of a library that a function calls, in the order of the library."""
    functions = {one.signature.name: one for one in library.function}
    callees = [callee for node in function.node_def for callee in called_by(node)]
    names = set(reached(callees, functions))
    part = type(library)()
    part.function.extend(one for one in library.function if one.signature.name in names)
    part.gradient.extend(one for one in library.gradient if one.function_name in names)
    return part


def _make_placeholder(node: NodeDef, function: FunctionDef, number: int) -> None:
    argument = function.signature.input_arg[number]
    node.name, node.op = argument.name, "Placeholder"
    node.attr["dtype"].type = argument.type
    declared = _declared_shape(function, number)
    if declared is None:
        node.attr["shape"].shape.unknown_rank = True
    else:
        node.attr["shape"].shape.CopyFrom(declared)


def _declared_shape(function: FunctionDef, number: int) -> TensorShapeProto | None:
    # Only looking an attribute up would add it.
    if number in function.arg_attr and _SHAPES_OF_ARGUMENT in function.arg_attr[number].attr:
        shapes = function.arg_attr[number].attr[_SHAPES_OF_ARGUMENT].list.shape
        if len(shapes) == 1:
            return shapes[0]
    if _SHAPES_OF_FUNCTION in function.attr:
        shapes = function.attr[_SHAPES_OF_FUNCTION].list.shape
        if number < len(shapes):
            return shapes[number]
    return None


def _is_tensor(dtype: int) -> bool:
    from tensorflow.core.framework import types_pb2

    return dtype not in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


def _is_open(shape: TensorShapeProto) -> bool:
    return bool(shape.unknown_rank) or any(dimension.size < 0 for dimension in shape.dim)


def shape_text(shape: TensorShapeProto) -> str:
    """A shape for people: "(None, 784)"."""
    if shape.unknown_rank:
        return "(of any shape)"
    sizes = ["None" if dimension.size < 0 else str(dimension.size) for dimension in shape.dim]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _put_in(declared: TensorShapeProto, shape: tuple[int, ...], name: str, more: int) -> None:
    """Put sizes in the place of open dimensions.

    Raises:
        OptionsError: They are not of what is declared.
    """
    if declared.unknown_rank:
        declared.Clear()
        for _ in shape:
            declared.dim.add().size = -1
    fits = len(declared.dim) == len(shape) and all(
        one.size in (-1, size) for one, size in zip(declared.dim, shape, strict=True)
    )
    if not fits:
        raise OptionsError(f"{name} is of shape {shape_text(declared)}, which {shape} is not")
    for one, size in zip(declared.dim, shape, strict=True):
        if one.size < 0:
            one.size = size + more
