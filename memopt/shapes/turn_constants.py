"""Small integers that every turn of a loop of Switch and Merge is given: shapes depend on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.shapes.constants import tensor_numbers
from memopt.shapes.list_origins import output_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.node_def_pb2 import NodeDef

_MOST_NUMBERS = 16
"""More than a shape or a list of axes has."""
_TURN = 1
"""The port of a Switch that leads into the turn."""


def find_turn_constants(by_name: Mapping[str, NodeDef]) -> dict[tuple[str, int], str]:
    """By tensor that operations of turns read: the constant that it is in each of them.

    That is what a constant is as it enters the loop, where each turn hands it on to the next one.

    Args:
        by_name: The nodes of the graph.
    """
    found: dict[tuple[str, int], str] = {}
    heads = {}
    for node in by_name.values():
        if node.op in op_types.ENTERS and _is_for_all_turns(node):
            constant = _constant_before(node, by_name)
            if constant is not None:
                found[node.name, 0] = constant
        elif node.op in op_types.MERGES and (constant := _given(node, by_name)) is not None:
            heads[node.name] = constant
    for node in by_name.values():
        head = output_of(node.input[0])[0] if node.op in op_types.SWITCHES else ""
        if head in heads:
            found[node.name, _TURN] = heads[head]
    return found


def small_integers(node: NodeDef) -> tuple[int, ...]:
    """What a Const of a few integers holds; nothing for others, and where it is damaged."""
    # To ask a node for what it has not would put it in.
    if node.op != "Const" or "value" not in node.attr:
        return ()
    try:
        numbers = tensor_numbers(node.attr["value"].tensor) or ()
    except ValueError:
        return ()
    return numbers if len(numbers) <= _MOST_NUMBERS else ()


def _is_for_all_turns(enter: NodeDef) -> bool:
    return "is_constant" in enter.attr and enter.attr["is_constant"].b


def _given(merge: NodeDef, by_name: Mapping[str, NodeDef]) -> str | None:
    """The constant with which a loop variable begins that each turn hands on as it is."""
    sources = [by_name.get(output_of(name)[0]) for name in merge.input if name[0] != "^"]
    enter = next((n for n in sources if n is not None and n.op in op_types.ENTERS), None)
    last = next((n for n in sources if n is not None and n.op in op_types.NEXT_ITERATIONS), None)
    if enter is None or last is None or not _hands_on(last, merge.name, by_name):
        return None
    return _constant_before(enter, by_name)


def _hands_on(last: NodeDef, head: str, by_name: Mapping[str, NodeDef]) -> bool:
    """Whether the next turn is given what this one was."""
    seen = set()
    node: NodeDef | None = last
    while node is not None and node.name not in seen and node.input:
        seen.add(node.name)
        name, port = output_of(node.input[0])
        if node.op in op_types.SWITCHES:
            return name == head
        source = by_name.get(name)
        is_turn = source is not None and (source.op not in op_types.SWITCHES or port == _TURN)
        is_handed_on = source is not None and source.op in op_types.SWITCHES | {"Identity"}
        node = source if is_turn and is_handed_on else None
    return False


def _constant_before(enter: NodeDef, by_name: Mapping[str, NodeDef]) -> str | None:
    source = by_name.get(output_of(enter.input[0])[0])
    return source.name if source is not None and small_integers(source) else None
