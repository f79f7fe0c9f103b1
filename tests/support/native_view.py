"""What Grappler's `MutableGraphView` does to every graph that it looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_SWITCHES = frozenset({"Switch", "_SwitchN", "RefSwitch"})


def without_repeated_controls(graph_def: GraphDef) -> GraphDef:
    """The graph without control inputs that mean nothing, in Grappler's order of what is left.

    The constructor of `MutableGraphView` (tensorflow/core/grappler/mutable_graph_view.cc) drops
    control inputs that are there twice and those on a node that is read as well, unless that is a
    Switch. Each changes places with the last input when it is dropped, so the order changes. Every
    level of the memory optimizer that schedules or swaps begins with it, even if it changes nothing
    else; memopt leaves control inputs alone, so comparisons have to begin behind it. The meaning is
    the same.
    """
    result = type(graph_def)()
    result.CopyFrom(graph_def)
    _clean({node.name: node.op for node in result.node}, result.node)
    for function in result.library.function:
        _clean({node.name: node.op for node in function.node_def}, function.node_def)
    return result


def _clean(ops: Mapping[str, str], nodes: Iterable[NodeDef]) -> None:
    for node in nodes:
        inputs = _clean_inputs(ops, node)
        del node.input[:]
        node.input.extend(inputs)


def _clean_inputs(ops: Mapping[str, str], node: NodeDef) -> list[str]:
    inputs = list(node.input)
    seen: set[str] = set()
    controls: set[str] = set()
    place, last = 0, len(inputs) - 1
    while place <= last:
        name = inputs[place].removeprefix("^").partition(":")[0]
        is_control = inputs[place].startswith("^")
        means_nothing = name in controls or (name in seen and ops.get(name) not in _SWITCHES)
        if is_control and means_nothing:
            inputs[place], inputs[last] = inputs[last], inputs[place]
            last -= 1
        else:
            seen.add(name)
            place += 1
        if is_control:
            controls.add(name)
    return inputs[: last + 1]
