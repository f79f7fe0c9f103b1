"""Lists of tensors, and optionals: which buffers they hold, and what their kernels make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import DT_VARIANT

if TYPE_CHECKING:
    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.graph.graph import Node

_NOT_SET = -1


def add_list_op(tensors: PlacedTensors, place: int, node: Node) -> bool:
    """Place the outputs of an op on lists or optionals; whether it is one."""
    if node.op in ("ZerosLike", "AddN") and tensors.known(node.inputs[0]).dtype == DT_VARIANT:
        (_add_zeros if node.op == "ZerosLike" else _add_sum)(tensors, place, node)
        return True
    add = _OPS.get(node.op)
    if add is None:
        return False
    add(tensors, place, node)
    return True


def _add_empty(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`EmptyTensorList`: it grows as elements are pushed."""
    del node
    tensors.give_list(place, ())


def _add_reserved(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListReserve`: so many elements, none of them set."""
    count = tensors.number(node.inputs[1]) or 0
    tensors.give_list(place, (_NOT_SET,) * count)


def _add_from_tensor(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListFromTensor`: every row is copied."""
    source = tensors.known(node.inputs[0])
    rows = source.shape[0] if source.shape else 0
    row_bytes = source.least_bytes // rows if rows > 0 else 0
    tensors.give_list(place, tuple(tensors.make(place, row_bytes) for _ in range(rows)))


def _add_pushed(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListPushBack`: the list holds the tensor; a list that nobody else has is changed."""
    elements = tensors.elements(node.inputs[0])
    _change(tensors, place, node, (*elements, tensors.buffer(node.inputs[1])))


def _add_set(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListSetItem`."""
    elements = list(tensors.elements(node.inputs[0]))
    index = tensors.number(node.inputs[1])
    if index is None:
        index = elements.index(_NOT_SET) if _NOT_SET in elements else 0
    elements += [_NOT_SET] * (index + 1 - len(elements))
    elements[index] = tensors.buffer(node.inputs[2])
    _change(tensors, place, node, tuple(elements))


def _add_popped(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListPopBack`: the shorter list, and the element itself."""
    elements = tensors.elements(node.inputs[0])
    _change(tensors, place, node, elements[:-1])
    _give_element(tensors, place, 1, elements[-1] if elements else _NOT_SET)


def _add_got(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`TensorListGetItem`: the element itself, or zeros where it is not set."""
    elements = tensors.elements(node.inputs[0])
    index = tensors.number(node.inputs[1]) or 0
    _give_element(tensors, place, 0, elements[index] if index < len(elements) else _NOT_SET)


def _add_optional(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`OptionalFromValue`, in which branches keep what their gradients need, and `OptionalNone`."""
    tensors.give_list(place, tuple(tensors.buffer(tensor) for tensor in node.inputs))


def _add_values(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`OptionalGetValue`: the tensors themselves."""
    elements = tensors.elements(node.inputs[0])
    for port in range(len(tensors.outputs(place))):
        _give_element(tensors, place, port, elements[port] if port < len(elements) else _NOT_SET)


def _add_zeros(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`ZerosLike` of a list: zeros for every element that is set."""
    sizes = tensors.pool.size_bytes
    zeros = [
        _NOT_SET if element < 0 else tensors.make(place, sizes[element])
        for element in tensors.elements(node.inputs[0])
    ]
    tensors.give_list(place, tuple(zeros))


def _add_sum(tensors: PlacedTensors, place: int, node: Node) -> None:
    """`AddN` of two lists: sums of elements that both have; others are shared."""
    one, other = (tensors.elements(tensor) for tensor in node.inputs[:2])
    sums = []
    for a, b in zip(one, other, strict=False):
        both = a >= 0 and b >= 0
        sums.append(tensors.make(place, tensors.pool.size_bytes[a]) if both else max(a, b))
    tensors.give_list(place, tuple(sums))


def _change(tensors: PlacedTensors, place: int, node: Node, elements: tuple[int, ...]) -> None:
    tensors.give_list(place, elements, [tensors.buffer(node.inputs[0])])


def _give_element(tensors: PlacedTensors, place: int, port: int, element: int) -> None:
    if element < 0:
        element = tensors.make(place, tensors.output_bytes(place, port))
    tensors.give(place, element)


_OPS = {
    "EmptyTensorList": _add_empty,
    "TensorListReserve": _add_reserved,
    "TensorListFromTensor": _add_from_tensor,
    "TensorListPushBack": _add_pushed,
    "TensorListSetItem": _add_set,
    "TensorListPopBack": _add_popped,
    "TensorListGetItem": _add_got,
    "OptionalFromValue": _add_optional,
    "OptionalNone": _add_optional,
    "OptionalGetValue": _add_values,
}
