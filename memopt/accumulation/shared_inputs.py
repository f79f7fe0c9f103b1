"""Buffers by whose readers sums are added in one order or another.

AddN takes over the buffer of the first input that nobody else holds, and adds in the order that
follows from it (see `addition_order`). Whoever lets another reader of such a buffer wait until
later, or takes one away, can change that order, and with it the last bit of the sum. Sums of two
inputs, of integers, or split by `RunningSums` have the same bits in any order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.accumulation.addition_order import has_order
from memopt.buffers.kernel_table import ALIASES, PORT_BY_PORT, ROWS, UNCHANGED
from memopt.graph.functiondef import RESULT
from memopt.graph.paths import leads_to

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.accumulation.addition_order import AdditionOrders
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.traversal import Numbering
    from memopt.shapes.properties import Properties

_FORWARDED = dict.fromkeys(("Enter", "Exit", "NextIteration", "RefSwitch", "Switch"), 0)
"""Control flow by the slot of the buffer that it hands on."""


class SharedInput(NamedTuple):
    """A buffer that a sum reads, and somebody else as well.

    Attributes:
        sums: The sums that may take it over, first to last in the graph.
        makers: Who made it, and who hands it on.
        readers: Who reads it, sums among them.
    """

    sums: tuple[Node, ...]
    makers: tuple[Node, ...]
    readers: tuple[Node, ...]


def find_shared_inputs(nodes: Iterable[Node], properties: Properties) -> list[SharedInput]:
    """The buffers by whose readers sums are added in one order or another.

    Args:
        nodes: Of a graph.
        properties: Sizes of their tensors: a buffer that is handed on has the size that it had.
    """
    found: dict[Tensor, SharedInput | None] = {}
    for node in nodes:
        if not has_order(node):
            continue
        for tensor in node.inputs:
            root = root_of(tensor, properties)
            if root not in found:
                found[root] = _shared(root, properties)
    return [shared for shared in found.values() if shared is not None]


def find_open_readers(orders: AdditionOrders, node: Node, properties: Properties) -> list[Node]:
    """Other readers of a sum's inputs, on whose timing its order of addition depends.

    No path leads from the sum to them or back. None of a node whose order is known.
    """
    if not has_order(node) or node.op != "AddN" or orders.taken_slot(node) is not None:
        return []
    numbering = orders.numbering
    readers = (
        reader
        for shared in find_shared_inputs([node], properties)
        for reader in shared.readers
        # What a function returns no node of its own waits for.
        if reader is not node and reader.op != RESULT and orders.running.may(reader)
    )
    return [
        reader
        for reader in dict.fromkeys(readers)
        if not leads_to(numbering, node, reader) and not leads_to(numbering, reader, node)
    ]


def find_disturbed_sum(numbering: Numbering, node: Node, properties: Properties) -> Node | None:
    """A sum whose order of addition could change if a node read its inputs earlier, or `None`.

    It reads one of the same buffers, and does not wait for the node: then it may have to leave a
    buffer alone today because the node has yet to read it.
    """
    for root in dict.fromkeys(root_of(tensor, properties) for tensor in node.inputs):
        shared = _shared(root, properties)
        for reader in () if shared is None else shared.sums:
            if reader is not node and not leads_to(numbering, node, reader):
                return reader
    return None


def find_added(nodes: Iterable[Node], properties: Properties) -> set[Tensor]:
    """The tensors whose buffers are read by sums whose order of addition counts.

    Args:
        nodes: Of a graph.
        properties: Sizes of their tensors.
    """
    tensors = (tensor for node in nodes if has_order(node) for tensor in node.inputs)
    return {root_of(tensor, properties) for tensor in tensors}


def root_of(tensor: Tensor, properties: Properties) -> Tensor:
    """The tensor for which the buffer of another was made, as far as it may be shared."""
    while (source := handed_on(tensor, properties)) is not None:
        tensor = source
    return tensor


def _shared(root: Tensor, properties: Properties) -> SharedInput | None:
    tensors = {root: None}
    readers: dict[Node, None] = {}
    pending = [root]
    while pending:
        for reader, slot in pending.pop().uses:
            views = _views(reader, slot, properties)
            if not views:
                readers[reader] = None
            pending += [view for view in views if view not in tensors]
            tensors.update(dict.fromkeys(views))
    if len(readers) == 1:
        return None
    sums = sorted(filter(has_order, readers), key=lambda node: node.index)
    makers = dict.fromkeys(tensor.node for tensor in tensors)
    return SharedInput(tuple(sums), tuple(makers), tuple(readers))


def handed_on(tensor: Tensor, properties: Properties) -> Tensor | None:
    """The input whose buffer a tensor may be."""
    inputs = tensor.node.inputs
    slot = _source_slot(tensor.node, tensor.port)
    if slot is None or slot >= len(inputs):
        return None
    return inputs[slot] if _may_share(tensor, inputs[slot], properties) else None


def _views(reader: Node, slot: int, properties: Properties) -> list[Tensor]:
    """The outputs of a reader that may be the buffer of an input."""
    return [
        output
        for output in reader.outputs
        if _source_slot(reader, output.port) == slot
        and _may_share(output, reader.inputs[slot], properties)
    ]


def _source_slot(node: Node, port: int) -> int | None:
    if node.op in PORT_BY_PORT:
        return port
    if node.op in _FORWARDED:
        return _FORWARDED[node.op]
    if node.op == "AddN":
        return 0 if len(node.inputs) == 1 else None
    known = ALIASES.get(node.op)
    if known is not None:
        return known.get(port)
    return ROWS.get(node.op, UNCHANGED.get(node.op))


def _may_share(output: Tensor, source: Tensor, properties: Properties) -> bool:
    if output.node.op in ROWS:
        return True
    sizes = (properties.size_bytes(output.name), properties.size_bytes(source.name))
    if None in sizes or sizes[0] == sizes[1]:
        return True
    # What differs now is equal in another call, if that can change one of the two alone.
    certain = (properties.certain.size_bytes(each.name) for each in (output, source))
    return len({size is None for size in certain}) > 1
