"""Loops of Switch and Merge as operations that run functions, as they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.copy_names import free_name, take_name
from memopt.graph.functiondef import ARGUMENT, RESULT, port_attributes, to_function_def
from memopt.graph.graph import Graph
from memopt.graph.graphdef import from_graph_def
from memopt.graph.op_types import DT_BOOL
from memopt.loops.bounded_loops import positional_attributes
from memopt.loops.function_body import Value
from memopt.shapes.constants import constant_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Node, Tensor
    from memopt.loops.function_body import Shape

    ShapeOf = Callable[[str], Shape]

RAISED = "_memopt_raised"
"""The attribute of a loop that was made of Switch and Merge."""

_LISTS = frozenset({"TensorListPushBack", "TensorListPopBack", "TensorListSetItem"})


def raise_loops(
    graph_def: GraphDef, shape_of: ShapeOf, fed: Collection[str] = frozenset()
) -> GraphDef:
    """A graph in which loops with lists are operations that run functions.

    TensorFlow writes loops as such and takes them apart before Grappler sees them. What a turn is
    told apart from all others can be written anew as a function, and rewritten as one. Operations
    keep their names, devices and attributes; a loop is called as its frame. What is not of the form
    that TensorFlow gives to a loop stays as it is.

    Args:
        graph_def: The graph; it is not changed.
        shape_of: The shape of a tensor, `node:port`, as far as it is known.
        fed: Names of nodes whose output the caller gives, whatever they are.

    Returns:
        The graph; the same object where it has no such loop.
    """
    # Few graphs have any, and to load a large one takes a second.
    while any(node.op in op_types.ENTERS for node in graph_def.node):
        loops = _find_loops(from_graph_def(graph_def))
        if not loops:
            break
        graph_def = _written(graph_def, loops, shape_of, fed)
    return graph_def


class _Variable(NamedTuple):
    """What goes from turn to turn, or is the same for all.

    Attributes:
        enter: Where it comes in.
        begins: What a turn is given of it: the Merge, or the Enter of what is the same for all.
        closing: What a turn gives; `None` for what is the same for all.
        exits: Where it comes out.
    """

    enter: Node
    begins: Node
    closing: Tensor | None
    exits: tuple[Node, ...]


class _Loop(NamedTuple):
    """A loop of Switch and Merge, taken apart.

    Attributes:
        frame: The name of its frame.
        condition: The LoopCond.
        variables: What goes from turn to turn, and what is the same for all.
        given: By tensor in the loop: the position of the variable that it is in a turn.
        test: The operations that the condition depends on.
        body: Those that the turn's results depend on.
        inside: All nodes of it.
    """

    frame: str
    condition: Node
    variables: tuple[_Variable, ...]
    given: Mapping[Tensor, int]
    test: tuple[Node, ...]
    body: tuple[Node, ...]
    inside: frozenset[Node]


class _UnraisedError(Exception):
    """Why a loop stays as it is."""


def _find_loops(graph: Graph) -> list[_Loop]:
    """The innermost loops with lists that can be operations that run functions."""
    frames: dict[bytes, list[Node]] = {}
    for node in graph:
        name = node.attributes.get("frame_name") if node.op in op_types.ENTERS else None
        if name is not None:
            frames.setdefault(name.s, []).append(node)
    found = []
    for frame, enters in frames.items():
        try:
            found.append(_take_apart(frame.decode(errors="replace"), enters, graph))
        except _UnraisedError:
            continue
    return found


def _take_apart(frame: str, enters: Sequence[Node], graph: Graph) -> _Loop:
    """A loop by its frame.

    Raises:
        _UnraisedError: It is not of TensorFlow's form, or has no lists.
    """
    inside = _find_inside(enters)
    if not any(node.op in _LISTS for node in inside):
        raise _UnraisedError("it has no lists")
    conditions = [node for node in inside if node.op == "LoopCond"]
    _require(len(conditions) == 1, "it has not one condition")
    variables = tuple(_variable(enter, conditions[0]) for enter in enters)
    given: dict[Tensor, int] = {}
    for position, variable in enumerate(variables):
        given[variable.begins.output()] = position
        for switch in _switches(variable):
            given[switch.output(1)] = position
    test = _depended(conditions[0].inputs, given, graph)
    closing = [each.closing for each in variables if each.closing is not None]
    body = _depended(closing, given, graph)
    for node in set(test).intersection(body):
        pure = not op_types.is_stateful(node, graph.library)
        _require(pure, "a turn reads what its test does with effects")
    used = {conditions[0], *test, *body}
    for variable in variables:
        used.update((variable.enter, variable.begins, *variable.exits, *_switches(variable)))
    for node in inside - used:
        is_border = node.op in op_types.CONTROL_FLOW
        _require(
            is_border or not op_types.is_stateful(node, graph.library), "a turn has other effects"
        )
    return _Loop(frame, conditions[0], variables, given, test, body, frozenset(inside))


def _find_inside(enters: Sequence[Node]) -> set[Node]:
    """All nodes of a frame, from its Enters to its Exits.

    Raises:
        _UnraisedError: Another frame is in it.
    """
    inside = set(enters)
    pending = list(enters)
    while pending:
        node = pending.pop()
        if node.op in op_types.EXITS:
            continue
        for user in node.users:
            _require(user.op not in op_types.ENTERS, "another loop is in it")
            if user not in inside:
                inside.add(user)
                pending.append(user)
    return inside


def _variable(enter: Node, condition: Node) -> _Variable:
    """A variable by where it comes in.

    Raises:
        _UnraisedError: It is not of TensorFlow's form.
    """
    constant = enter.attributes.get("is_constant")
    if constant is not None and constant.b:
        return _Variable(enter, enter, None, ())
    _require(enter.op == "Enter", "it enters a reference")
    merge = _only(user for user in enter.users)
    _require(merge.op == "Merge" and not merge.output(1).uses, "it enters no Merge")
    closing = _only(t.node for t in merge.inputs if t.node.op == "NextIteration")
    _require(len(merge.inputs) == 2, "a Merge has other inputs")  # noqa: PLR2004 - in and again
    switches = [user for user, _ in merge.output().uses if user.op == "Switch"]
    for switch in switches:
        _require(switch.inputs[1].node is condition, "a branch is made of its variables")
    exits = tuple(user for each in switches for user, _ in each.output().uses)
    _require(all(node.op == "Exit" for node in exits), "it leaves without an Exit")
    return _Variable(enter, merge, closing.inputs[0], exits)


def _switches(variable: _Variable) -> list[Node]:
    uses = variable.begins.output().uses
    return [user for user, _ in uses if user.op == "Switch"] if variable.closing else []


def _depended(
    tensors: Iterable[Tensor], given: Mapping[Tensor, int], graph: Graph
) -> tuple[Node, ...]:
    """The operations that tensors depend on, in the order of the graph.

    Raises:
        _UnraisedError: One of them is no operation of a turn.
    """
    needed: set[Node] = set()
    borders = {tensor.node for tensor in given}
    pending = [tensor.node for tensor in tensors if tensor not in given]
    while pending:
        node = pending.pop()
        if node in needed or node in borders:
            continue
        _require(node.op not in op_types.CONTROL_FLOW, "a turn has branches")
        needed.add(node)
        pending += [tensor.node for tensor in node.inputs if tensor not in given]
        pending += [each for each in node.control_inputs if each.op not in op_types.CONTROL_FLOW]
    return tuple(node for node in graph if node in needed)


def _only(nodes: Iterable[Node]) -> Node:
    found = list(nodes)
    _require(len(found) == 1, "it has several readers where one is expected")
    return found[0]


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise _UnraisedError(otherwise)


def _written(
    graph_def: GraphDef, loops: Sequence[_Loop], shape_of: ShapeOf, fed: Collection[str]
) -> GraphDef:
    """The graph with loops as operations."""
    written = type(graph_def)()
    written.versions.CopyFrom(graph_def.versions)
    written.library.CopyFrom(graph_def.library)
    names = {function.signature.name for function in written.library.function}
    gone = {node.name for loop in loops for node in loop.inside}
    taken = {node.name for node in graph_def.node} - gone
    spelled: dict[str, str] = {}
    for loop in loops:
        name = take_name(loop.frame, taken)
        for position, variable in enumerate(loop.variables):
            for leaving in variable.exits:
                port = f"{name}:{position}" if position else name
                spelled[leaving.name] = spelled[f"{leaving.name}:0"] = port
                spelled[f"^{leaving.name}"] = f"^{name}"
        called = name.replace("/", "_")
        test, body = (take_name(f"{called}_{role}", names) for role in ("cond", "body"))
        values = _values(loop, shape_of)
        dtypes = [value.dtype for value in values]
        constants = _constants(loop, fed)
        tested = loop.condition.inputs[:1]
        written.library.function.extend(
            (
                _function(test, loop, loop.test, tested, [DT_BOOL], constants),
                _function(body, loop, loop.body, _results(loop), dtypes, constants),
            )
        )
        _add_loop(written, name, loop, positional_attributes(test, body, values))
    for node_def in graph_def.node:
        if node_def.name not in gone:
            written.node.add().CopyFrom(node_def)
    for node_def in written.node:
        # It may lie beside what is in a function now.
        node_def.attr.pop(op_types.COLOCATED, None)
        if any(source in spelled for source in node_def.input):
            node_def.input[:] = _respelled(node_def.input, spelled)
    return written


def _respelled(inputs: Iterable[str], spelled: Mapping[str, str]) -> list[str]:
    """Inputs by new names; a node waits for another once."""
    found = [spelled.get(source, source) for source in inputs]
    data = [source for source in found if not source.startswith("^")]
    return data + list(dict.fromkeys(source for source in found if source.startswith("^")))


def _add_loop(
    written: GraphDef, name: str, loop: _Loop, attributes: Mapping[str, AttrValue]
) -> None:
    """A loop as one operation."""
    from tensorflow.core.framework import attr_value_pb2

    is_stateful = any(op_types.is_stateful(node) for node in (*loop.test, *loop.body))
    node_def = written.node.add(name=name, op="While" if is_stateful else "StatelessWhile")
    node_def.device = loop.condition.device
    enters = [variable.enter for variable in loop.variables]
    node_def.input.extend(str(enter.inputs[0]) for enter in enters)
    waits = dict.fromkeys(control.name for enter in enters for control in enter.control_inputs)
    node_def.input.extend(f"^{control}" for control in waits)
    for key, value in attributes.items():
        node_def.attr[key].CopyFrom(value)
    at_once = enters[0].attributes.get(op_types.TURNS_AT_ONCE)
    if at_once is not None:
        node_def.attr[op_types.TURNS_AT_ONCE].CopyFrom(at_once)
    for key in ("_lower_using_switch_merge", RAISED):
        node_def.attr[key].CopyFrom(attr_value_pb2.AttrValue(b=True))


def _values(loop: _Loop, shape_of: ShapeOf) -> list[Value]:
    """What is known of a loop's variables."""
    return [
        Value("", variable.enter.attributes["T"].type, shape_of(f"{variable.begins.name}:0"))
        for variable in loop.variables
    ]


def _results(loop: _Loop) -> list[Tensor]:
    """What a turn gives, by position."""
    return [
        each.begins.output() if each.closing is None else each.closing for each in loop.variables
    ]


def _constants(loop: _Loop, fed: Collection[str]) -> dict[int, Node]:
    """By position of a variable: the few integers that it is in every turn.

    In a function they are what shapes can be told from; what it is given tells nothing.
    """
    found = {}
    for position, variable in enumerate(loop.variables):
        closing = variable.closing
        while closing is not None and closing not in loop.given and closing.node.op == "Identity":
            closing = closing.node.inputs[0]
        is_handed_on = closing is None or loop.given.get(closing) == position
        source = variable.enter.inputs[0].node
        is_constant = source.name not in fed and constant_numbers(source) is not None
        if is_handed_on and is_constant:
            found[position] = source
    return found


def _function(
    name: str,
    loop: _Loop,
    nodes: Iterable[Node],
    results: Sequence[Tensor],
    dtypes: Sequence[int],
    constants: Mapping[int, Node],
) -> FunctionDef:
    """A function of a loop: it is given all variables, and gives some tensors of a turn.

    Args:
        name: Its name.
        loop: The loop.
        nodes: Its operations.
        results: The tensors.
        dtypes: Their types.
        constants: By position of a variable: the constant that its operations read instead.
    """
    from tensorflow.core.framework import function_pb2

    function: FunctionDef = function_pb2.FunctionDef()
    signature = function.signature
    signature.name = name
    body, taken = Graph(), {node.name for node in nodes}
    copies: dict[Node, Node] = {}
    arguments = []
    for position, variable in enumerate(loop.variables):
        dtype = variable.enter.attributes["T"].type
        argument = free_name(f"variable_{position}", taken, "_")
        signature.input_arg.add(name=argument, type=dtype)
        attributes = port_attributes(dtype, position)
        arguments.append(body.add_node(argument, ARGUMENT, attributes=attributes).output())
    for node in nodes:
        attributes = {
            key: value for key, value in node.attributes.items() if key != op_types.COLOCATED
        }
        copies[node] = body.add_node(node.name, node.op, device=node.device, attributes=attributes)

    read_positions = {loop.given.get(t, -1) for node in copies for t in node.inputs}
    values = {
        position: body.add_node(
            free_name(f"variable_{position}_value", taken, "_"),
            "Const",
            attributes={key: constant.attributes[key] for key in ("dtype", "value")},
        ).output()
        for position, constant in constants.items()
        if position in read_positions
    }

    def copied(tensor: Tensor) -> Tensor:
        if tensor in loop.given:
            return arguments[loop.given[tensor]]
        return copies[tensor.node].output(tensor.port)

    def read(tensor: Tensor) -> Tensor:
        value = values.get(loop.given.get(tensor, -1))
        return copied(tensor) if value is None else value

    for node, copy in copies.items():
        waits = {copies[each]: None for each in node.control_inputs if each in copies}
        body.connect(copy, tuple(map(read, node.inputs)), waits)
    for position, (tensor, dtype) in enumerate(zip(results, dtypes, strict=True)):
        signature.output_arg.add(name=f"result_{position}", type=dtype)
        attributes = port_attributes(dtype, position)
        name = free_name(f"result_{position}_value", taken, "_")
        result = body.add_node(name, RESULT, attributes=attributes)
        body.connect(result, (copied(tensor),), {})
    return to_function_def(body, like=function)
