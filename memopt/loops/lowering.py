"""Operations that run functions as loops of Switch and Merge, as Grappler leaves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.attributes import integer_attribute, type_attribute
from memopt.graph.copy_names import take_name
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.graphdef import from_graph_def
from memopt.graph.op_types import DT_RESOURCE
from memopt.loops.pairs import Loop
from memopt.loops.raising import RAISED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.loops.pairs import Body


def lower_loops(graph_def: GraphDef) -> GraphDef:
    """A graph in which no loop is left that `raise_loops` made, or that was made of one.

    After Grappler nobody takes loops apart any more: what runs functions then runs them one call a
    turn. It follows TensorFlow's own lowering (`lower_while_op.cc`).

    Args:
        graph_def: The graph; it is not changed.

    Returns:
        The graph; the same object where it has no such loop.
    """
    while any(RAISED in node.attr for node in graph_def.node):
        graph = from_graph_def(graph_def)
        loops = [node for node in graph if RAISED in node.attributes]
        graph_def = _Lowering(graph_def, graph).without(loops)
    return graph_def


class _Place(NamedTuple):
    """Where the operations of a function come to stand.

    Attributes:
        given: What stands for its arguments, by number.
        lasting: The numbers of those that are the same in all turns.
        pivot: What says that a turn has begun.
        device: Where operations run that name no device.
    """

    given: Sequence[str]
    lasting: frozenset[int]
    pivot: str
    device: str


class _Lowering:
    def __init__(self, graph_def: GraphDef, graph: Graph) -> None:
        self._graph = graph
        self._before = graph_def
        self._written = type(graph_def)()
        self._written.versions.CopyFrom(graph_def.versions)
        self._written.library.CopyFrom(graph_def.library)
        self._taken = {node.name for node in graph_def.node}

    def without(self, loops: Iterable[Node]) -> GraphDef:
        """The graph with these loops taken apart."""
        library = self._graph.library
        assert isinstance(library, Library)
        spelled: dict[str, str] = {}
        gone = set()
        for node in loops:
            spelled |= self._lower(Loop.of(node, library))
            gone.add(node.name)
        for node_def in self._before.node:
            if node_def.name not in gone:
                self._written.node.add().CopyFrom(node_def)
        for node_def in self._written.node:
            if any(source in spelled for source in node_def.input):
                node_def.input[:] = [_spell(source, spelled) for source in node_def.input]
        return self._written

    def _lower(self, loop: Loop) -> dict[str, str]:
        """Write a loop; returns what its readers read, by how they spell it."""
        node, name = loop.node, loop.node.name
        types = op_types.port_types(node, self._graph.library).outputs
        frame = {"frame_name": _text(name)}
        if (at_once := node.attributes.get(op_types.TURNS_AT_ONCE)) is not None:
            frame[op_types.TURNS_AT_ONCE] = at_once
        # What enters once is held until the whole loop is gone, so of what lasts only handles do.
        carried = [
            i for i, dtype in enumerate(types) if dtype != DT_RESOURCE or not loop.body.hands_on(i)
        ]
        waits = [f"^{control.name}" for control in node.control_inputs]
        enters, merges = [], {}
        for i, dtype in enumerate(types):
            lasts = {"is_constant": _flag(i not in carried)}
            inputs = [str(node.inputs[i]), *waits]
            typed = {"T": type_attribute(dtype)}
            enters.append(self._add("Enter", f"{name}/enter", inputs, node, typed | frame | lasts))
        for i in carried:
            typed = {"T": type_attribute(types[i]), "N": integer_attribute(2)}
            # What the turn gives comes in below.
            merges[i] = self._add("Merge", f"{name}/merge", [enters[i], ""], node, typed)
        begins = [merges.get(i, enters[i]) for i in range(len(types))]
        lasting = frozenset(range(len(types))) - frozenset(carried)
        first = merges[carried[0]]
        tested = self._inline(loop.test, _Place(begins, lasting, first, node.device))
        condition = self._add("LoopCond", f"{name}/condition", tested, node, {})
        switches, exits = {}, {}
        for i in carried:
            typed = {"T": type_attribute(types[i])}
            inputs = [merges[i], condition]
            switches[i] = self._add("Switch", f"{name}/switch", inputs, node, typed)
            exits[i] = self._add("Exit", f"{name}/exit", [switches[i]], node, typed)
        given = [f"{switches[i]}:1" if i in switches else enters[i] for i in range(len(types))]
        typed = {"T": type_attribute(types[carried[0]])}
        pivot = self._add("Identity", f"{name}/turn", [given[carried[0]]], node, typed)
        results = self._inline(loop.body, _Place(given, lasting, pivot, node.device))
        self._close(node, {merges[i]: (results[i], types[i]) for i in carried})
        ended = self._add(
            "NoOp", f"{name}/ended", [f"^{each}" for each in exits.values()], node, {}
        )
        spelled = {f"^{name}": f"^{ended}"}
        for i in range(len(types)):
            spelled[f"{name}:{i}"] = exits.get(i, str(node.inputs[i]))
        return spelled | {name: spelled[f"{name}:0"]}

    def _close(self, loop: Node, given: Mapping[str, tuple[str, int]]) -> None:
        """Let Merges, by their names, be given what a turn gives, with its type."""
        closing = {
            merge: self._add(
                "NextIteration",
                f"{loop.name}/next",
                [result],
                loop,
                {"T": type_attribute(dtype)},
            )
            for merge, (result, dtype) in given.items()
        }
        for node_def in self._written.node:
            if node_def.name in closing:
                node_def.input[1] = closing[node_def.name]

    def _inline(self, body: Body, place: _Place) -> list[str]:
        """Write the operations of a function; returns what its results are."""
        names = {
            node: take_name(node.name, self._taken)
            for node in body.graph
            if node.op not in (ARGUMENT, RESULT)
        }
        numbers = {argument: number for number, argument in enumerate(body.arguments)}

        def spell(tensor: Tensor) -> str:
            if tensor.node in numbers:
                return place.given[numbers[tensor.node]]
            name = names[tensor.node]
            return f"{name}:{tensor.port}" if tensor.port else name

        for node, name in names.items():
            inputs = [spell(tensor) for tensor in node.inputs]
            waits = [f"^{names[each]}" for each in node.control_inputs if each in names]
            arguments = [numbers.get(tensor.node) for tensor in node.inputs]
            waits += self._argument_waits(node, numbers, place)
            if not waits and all(number in place.lasting for number in arguments):
                # Nothing else says that it runs in a turn, and not when there is none any more.
                waits = [f"^{place.pivot}"]
            node_def = self._written.node.add(name=name, op=node.op)
            node_def.device = node.device or place.device
            node_def.input.extend((*inputs, *dict.fromkeys(waits)))
            for key, value in node.attributes.items():
                node_def.attr[key].CopyFrom(value)
        return [spell(result.inputs[0]) for result in body.ends]

    def _argument_waits(self, node: Node, numbers: Mapping[Node, int], place: _Place) -> list[str]:
        """Whom an operation waits for that waits for an argument."""
        waited = (numbers[each] for each in node.control_inputs if each in numbers)
        return [f"^{place.given[number].partition(':')[0]}" for number in waited]

    def _add(
        self,
        op: str,
        name: str,
        inputs: Iterable[str],
        like: Node,
        attributes: Mapping[str, Any],
    ) -> str:
        """An operation where a loop is; its name."""
        name = take_name(name, self._taken)
        node_def = self._written.node.add(name=name, op=op, device=like.device)
        node_def.input.extend(inputs)
        for key, value in attributes.items():
            node_def.attr[key].CopyFrom(value)
        return name


def _spell(source: str, spelled: Mapping[str, str]) -> str:
    """How a reader spells it now; what a loop hands on may come from another one."""
    while source in spelled:
        source = spelled[source]
    return source


def _text(value: str) -> Any:
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue(s=value.encode())


def _flag(value: bool) -> Any:
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue(b=value)
