"""Elements that are taken out of lists in loops of Switch and Merge, which a loop has filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.copy_names import free_name
from memopt.shapes.list_origins import before, find_maker, output_of
from memopt.shapes.tensor_properties import set_shape, tensor_properties
from memopt.shapes.turn_constants import find_turn_constants, small_integers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.shapes.tensor_properties import TensorProperties

    Known = Callable[[str, int], TensorProperties | None]
    """What is known of an output of a node."""


class _Reader(NamedTuple):
    """An op that takes elements out.

    Attributes:
        filler: The op that puts them in.
        slot: Which of its inputs is the element.
        port: Which output of the reader has what is taken out.
    """

    filler: str
    slot: int
    port: int


_POP, _STACK, _RESERVE = "TensorListPopBack", "TensorListStack", "TensorListReserve"
_READERS = {
    _POP: _Reader("TensorListPushBack", 1, 1),
    "TensorListGetItem": _Reader("TensorListSetItem", 2, 0),
    _STACK: _Reader("TensorListSetItem", 2, 0),
}
_SHAPED = "shaped"
_NUMBERS = (3, 9)
"""int32 and int64."""


def takes_unknown(graph_def: GraphDef, known: Known) -> bool:
    """Whether a loop takes elements of unknown shape out of lists, or sums along unknown axes."""
    if not any(node.op in op_types.ENTERS for node in graph_def.node):
        return False
    return any(
        (node.op in _READERS and _says_too_little(node, known))
        or (node.op == "Sum" and not _is_known(known(node.name, 0)))
        for node in graph_def.node
    )


def with_told_shapes(graph_def: GraphDef, known: Known) -> tuple[GraphDef, dict[str, str]]:
    """The graph in which what is taken out of lists has its shape, for inference alone.

    TensorFlow's shape functions follow a list into a loop and not out of it. What a loop has put
    into a list has the shape there that it has when it is taken out: by the loop of its gradient,
    or all of it together behind the loop. Small integers that all turns are given are constants to
    whom reads them in a turn, since shapes depend on them.

    Args:
        graph_def: The graph; it is not changed.
        known: What is known of its tensors.

    Returns:
        The graph; and by name of what takes out: the node whose output is that with its shape.
    """
    completed = type(graph_def)()
    completed.CopyFrom(graph_def)
    by_name = {node.name: node for node in graph_def.node}
    shaped = {}
    for node in graph_def.node:
        filling = _find_filling(node, by_name, known)
        if filling is None:
            continue
        shape = _shape_told(filling.tensors, by_name, known) if node.op == _POP else None
        shaped[node.name] = free_name(f"{node.name}/{_SHAPED}", by_name, "_")
        added = completed.node.add(name=shaped[node.name])
        if shape is None:
            _ensure_shape(added, node, filling.told)
        else:
            _tell_shape(added, node, filling.told, shape)
    told = {(name, _READERS[by_name[name].op].port): other for name, other in shaped.items()}
    told.update(find_turn_constants(by_name))
    for node in completed.node[: len(graph_def.node)]:
        # It may name nodes that Grappler has taken out.
        node.attr.pop(op_types.COLOCATED, None)
        if node.op == "Shape":
            _tell_known_shape(node, known(*output_of(node.input[0])))
        for slot, name in enumerate(node.input):
            if not name.startswith("^") and output_of(name) in told:
                node.input[slot] = told[output_of(name)]
    return completed, shaped


class _Filling(NamedTuple):
    """What is put into a list.

    Attributes:
        tensors: Where that may be seen.
        told: What is taken out of the list.
    """

    tensors: list[str]
    told: TensorProperties


def _find_filling(node: NodeDef, by_name: Mapping[str, NodeDef], known: Known) -> _Filling | None:
    """What fills the list that a node takes elements out of; `None` if there is nothing to tell."""
    reader = _READERS.get(node.op)
    if reader is None or (node.op != _POP and _is_known(known(node.name, reader.port))):
        return None
    filler = find_maker(node.input[0], by_name, reader.filler)
    if filler is None:
        return None
    element = filler.input[reader.slot]
    tensors = [element, _next_value(element, by_name)]
    candidates = (known(*output_of(tensor)) for tensor in tensors)
    put_in = next((each for each in candidates if each is not None and each.is_known), None)
    if put_in is None:
        return None
    if node.op != _STACK:
        return _Filling(tensors, put_in)
    length = _length_of(node, filler, by_name)
    if length is None:
        return None
    return _Filling(tensors, tensor_properties(put_in.dtype, (length, *(put_in.shape or ()))))


def _length_of(stack: NodeDef, filler: NodeDef, by_name: Mapping[str, NodeDef]) -> int | None:
    """How many elements a list has that is stacked."""
    if "num_elements" in stack.attr and stack.attr["num_elements"].i > 0:
        return int(stack.attr["num_elements"].i)
    made = find_maker(filler.input[0], by_name, _RESERVE)
    number = None if made is None else by_name.get(output_of(made.input[1])[0])
    numbers = () if number is None else small_integers(number)
    return numbers[0] if len(numbers) == 1 else None


def _ensure_shape(added: NodeDef, reader: NodeDef, told: TensorProperties) -> None:
    """Let a node hand on what is taken out, which has the shape of what was put in."""
    added.op = "EnsureShape"
    added.input.append(f"{reader.name}:{_READERS[reader.op].port}")
    added.attr["T"].type = told.dtype
    set_shape(added.attr["shape"].shape, told.shape)


def _tell_shape(
    added: NodeDef, pop: NodeDef, pushed: TensorProperties, shape: tuple[int, ...]
) -> None:
    """Let a node be the shape that is taken out, in numbers: sizes are computed from it."""
    from tensorflow.python.framework import tensor_util

    added.op = "Const"
    added.input.append(f"^{pop.name}")
    added.attr["dtype"].type = pushed.dtype
    value = tensor_util.make_tensor_proto(shape, dtype=pushed.dtype)
    added.attr["value"].tensor.CopyFrom(value)


def _tell_known_shape(node: NodeDef, told: TensorProperties | None) -> None:
    """Let a node be the shape of a tensor in numbers, if it is known: inference follows these."""
    from tensorflow.python.framework import tensor_util

    if told is None or not told.is_known:
        return
    dtype = node.attr["out_type"].type if "out_type" in node.attr else _NUMBERS[0]
    waits = [name for name in node.input[1:] if name.startswith("^")]
    source = f"^{output_of(node.input[0])[0]}"
    node.op = "Const"
    node.input[:] = list(dict.fromkeys((source, *waits)))
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(told.shape, dtype=dtype))


def _shape_told(
    tensors: Iterable[str], by_name: Mapping[str, NodeDef], known: Known
) -> tuple[int, ...] | None:
    """What is put in, if that is the shape of a tensor, and known."""
    for tensor in tensors:
        node = by_name.get(output_of(tensor)[0])
        if node is not None and node.op == "Shape":
            told = known(*output_of(node.input[0]))
            if told is not None and told.is_known:
                return told.shape
    return None


def _next_value(tensor: str, by_name: Mapping[str, NodeDef]) -> str:
    """What a loop variable becomes in a turn; the tensor itself if it is none."""
    node = by_name.get(output_of(tensor)[0])
    seen = set()
    while node is not None and node.op in op_types.SWITCHES | {"Identity"} | op_types.MERGES:
        if node.name in seen:
            break
        seen.add(node.name)
        if node.op in op_types.MERGES:
            last = before(node, by_name, has_left=True)
            closing = None if last is None else by_name.get(output_of(last)[0])
            return tensor if closing is None else str(closing.input[0])
        node = by_name.get(output_of(node.input[0])[0])
    return tensor


def _says_too_little(reader: NodeDef, known: Known) -> bool:
    """Whether sizes may depend on more of what is taken out than is known, as on a shape."""
    taken = known(reader.name, _READERS[reader.op].port)
    if taken is None or taken.shape is None or not taken.is_known:
        return True
    return reader.op == _POP and taken.dtype in _NUMBERS and len(taken.shape) == 1


def _is_known(tensor: TensorProperties | None) -> bool:
    return tensor is not None and tensor.is_known
