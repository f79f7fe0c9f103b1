"""Elements that a loop of Switch and Merge takes out of lists which another one has filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.shapes.tensor_properties import set_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.shapes.tensor_properties import TensorProperties

    Known = Callable[[str, int], TensorProperties | None]
    """What is known of an output of a node."""

_PUSH, _POP = "TensorListPushBack", "TensorListPopBack"
_HANDED_ON = op_types.SWITCHES | op_types.ENTERS | {"Identity"}
_SHAPED = "shaped"
_NUMBERS = (3, 9)
"""int32 and int64."""


def pops_unknown(graph_def: GraphDef, known: Known) -> bool:
    """Whether a loop takes elements of unknown shape out of lists, or sums along unknown axes."""
    if not any(node.op in op_types.ENTERS for node in graph_def.node):
        return False
    return any(
        (node.op == _POP and _says_too_little(known(node.name, 1)))
        or (node.op == "Sum" and not _is_known(known(node.name, 0)))
        for node in graph_def.node
    )


def with_popped_shapes(graph_def: GraphDef, known: Known) -> tuple[GraphDef, dict[str, str]]:
    """The graph in which what is taken out of lists has its shape, for inference alone.

    TensorFlow's shape functions follow a list into a loop and not out of it. What a loop of the
    forward part has put into a list has the shape there that it has when the loop of its gradient
    takes it out.

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
        if node.op != _POP:
            continue
        tensors = [
            tensor
            for push in _pushes(node, by_name)
            for tensor in (push.input[1], _next_value(push.input[1], by_name))
        ]
        candidates = (known(*_output(tensor)) for tensor in tensors)
        pushed = next((each for each in candidates if each is not None and each.is_known), None)
        if pushed is None:
            continue
        shape = _shape_told(tensors, by_name, known)
        shaped[node.name] = _unused(f"{node.name}/{_SHAPED}", by_name)
        added = completed.node.add(name=shaped[node.name])
        if shape is None:
            _ensure_shape(added, node, pushed)
        else:
            _tell_shape(added, node, pushed, shape)
    for node in completed.node[: len(graph_def.node)]:
        # It may name nodes that Grappler has taken out.
        node.attr.pop(op_types.COLOCATED, None)
        if node.op == "Shape":
            _tell_known_shape(node, known(*_output(node.input[0])))
        for slot, name in enumerate(node.input):
            source, port = _output(name)
            if port == 1 and source in shaped:
                node.input[slot] = shaped[source]
    return completed, shaped


def _ensure_shape(added: NodeDef, pop: NodeDef, pushed: TensorProperties) -> None:
    """Let a node hand on what is taken out, which has the shape of what was put in."""
    added.op = "EnsureShape"
    added.input.append(f"{pop.name}:1")
    added.attr["T"].type = pushed.dtype
    set_shape(added.attr["shape"].shape, pushed.shape)


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
    source = f"^{_output(node.input[0])[0]}"
    node.op = "Const"
    node.input[:] = list(dict.fromkeys((source, *waits)))
    node.attr.clear()
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(told.shape, dtype=dtype))


def _shape_told(
    tensors: Iterable[str], by_name: dict[str, NodeDef], known: Known
) -> tuple[int, ...] | None:
    """What is put in, if that is the shape of a tensor, and known."""
    for tensor in tensors:
        node = by_name.get(_output(tensor)[0])
        if node is not None and node.op == "Shape":
            told = known(*_output(node.input[0]))
            if told is not None and told.is_known:
                return told.shape
    return None


def _unused(name: str, names: Container[str]) -> str:
    while name in names:
        name += "_"
    return name


def _pushes(pop: NodeDef, by_name: dict[str, NodeDef]) -> Iterator[NodeDef]:
    """The operation that put in what is taken out, if it is found."""
    name, has_left = _output(pop.input[0])[0], False
    seen = set()
    while (name, has_left) not in seen and name in by_name:
        seen.add((name, has_left))
        node = by_name[name]
        if node.op == _PUSH:
            yield node
            return
        source = _before(node, by_name, has_left=has_left)
        if source is None:
            return
        has_left = has_left or node.op in op_types.EXITS
        name = _output(source)[0]


def _next_value(tensor: str, by_name: dict[str, NodeDef]) -> str:
    """What a loop variable becomes in a turn; the tensor itself if it is none."""
    node = by_name.get(_output(tensor)[0])
    seen = set()
    while node is not None and node.op in op_types.SWITCHES | {"Identity"} | op_types.MERGES:
        if node.name in seen:
            break
        seen.add(node.name)
        if node.op in op_types.MERGES:
            last = _before(node, by_name, has_left=True)
            closing = None if last is None else by_name.get(_output(last)[0])
            return tensor if closing is None else str(closing.input[0])
        node = by_name.get(_output(node.input[0])[0])
    return tensor


def _before(node: NodeDef, by_name: dict[str, NodeDef], *, has_left: bool) -> str | None:
    """Where a list comes from: from outside of the loop, or behind its end, from the last turn."""
    if node.op in op_types.MERGES:
        for source in node.input:
            before = by_name.get(_output(source)[0])
            if before is not None and (before.op in op_types.NEXT_ITERATIONS) == has_left:
                return str(source)
        return None
    if node.op in _HANDED_ON | op_types.EXITS | op_types.NEXT_ITERATIONS:
        return str(node.input[0])
    return None


def _output(tensor: str) -> tuple[str, int]:
    """A tensor's node and port."""
    node, _, port = tensor.removeprefix("^").partition(":")
    return node, int(port or 0)


def _says_too_little(popped: TensorProperties | None) -> bool:
    """Whether sizes may depend on more of what is taken out than is known, as on a shape."""
    if popped is None or popped.shape is None or not popped.is_known:
        return True
    return popped.dtype in _NUMBERS and len(popped.shape) == 1


def _is_known(tensor: TensorProperties | None) -> bool:
    return tensor is not None and tensor.is_known
