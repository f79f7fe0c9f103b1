"""The order of a training step as it was written, with each update where it needs least memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.backward import find_backward_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Graph, Node
    from memopt.sequencing.precedence import Precedence

    Slot = tuple[int, int, int]
    Key = tuple[Slot, int, int]

_GIVE_DATA = ("IteratorGetNext", "QueueDequeue", "TensorArray")
_GIVE_NO_DATA = op_types.REF_VARIABLES | frozenset({"Const", "HostConst", "VarHandleOp", "NoOp"})


def late_updates_sequence(
    graph: Graph, buffer_graph: BufferGraph, precedence: Precedence
) -> list[int]:
    """Program order for the chain of layers there and back; all else where it holds least.

    1. The chain is what leads from the input to the loss and back: the forward operations, and
       those backward operations from which others follow that read a forward result. It keeps its
       program order, and so does what depends on the input but not on a gradient (metrics).
    2. What depends on the backward chain but is not part of it (the gradient of a weight, its
       update) runs as soon as what it needs from the chain is there, and before the chain goes on:
       so gradients of weights do not lag, and what they read can go.
    3. The rest that leads to an update (momentum times its factor) depends on nothing of the
       step. It runs just before what needs it.

    Without a backward part it is the program order. Linear but for a heap. Updates can run early
    only where nothing ties all gradients together.
    """
    nodes, program = buffer_graph.nodes, precedence.program
    backward = graph.derived(find_backward_nodes)
    is_backward = [node in backward for node in nodes]
    chain = _find_chain(nodes, program, is_backward)
    if not any(chain):
        return list(program)
    fixed = _reach(program[::-1], precedence.users, chain)
    follows = _reach(program, precedence.producers, chain)
    from_input = _reach(program, precedence.producers, [_gives_data(node) for node in nodes])
    for node in program:
        if from_input[node] and not follows[node]:
            fixed[node] = True
    return precedence.sorted_by(_keys(precedence, fixed, follows))


def _keys(precedence: Precedence, fixed: Sequence[bool], follows: Sequence[bool]) -> list[Key]:
    """By node: the slot in which it runs, whether the slot is its own, its rank in the program.

    A slot is the rank of a fixed node, whether something follows it there, and whose rank that has.
    """
    program = precedence.program
    rank = [0] * len(precedence.producers)
    for number, node in enumerate(program):
        rank[node] = number
    slots: dict[int, Slot] = {}
    for node in program:
        if fixed[node]:
            slots[node] = (rank[node], 0, rank[node])
        elif follows[node]:
            last = max(slots[p][0] for p in precedence.producers[node] if p in slots)
            slots[node] = (last, 1, rank[node])
    keys: list[Key] = [((0, 0, 0), 0, 0)] * len(rank)
    for node in reversed(program):
        is_own = node in slots
        if not is_own:
            users = (slots[user] for user in precedence.users[node])
            slots[node] = min(users, default=(rank[node], 0, rank[node]))
        keys[node] = (slots[node], int(is_own), rank[node])
    return keys


def _find_chain(
    nodes: Sequence[Node], program: Iterable[int], is_backward: Sequence[bool]
) -> list[bool]:
    """The backward nodes from which, through data, backward nodes follow that read results."""
    place_of = {node: place for place, node in enumerate(nodes)}
    data: list[list[int]] = [[] for _ in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    order = list(program)
    for node in order:
        data[node] = [place_of[tensor.node] for tensor in nodes[node].inputs]
        for producer in data[node]:
            users[producer].append(node)
    from_input = _reach(order, data, [_gives_data(node) for node in nodes])
    reads_result = [
        is_backward[node] and any(from_input[p] and not is_backward[p] for p in data[node])
        for node in range(len(nodes))
    ]
    leads = _reach(order[::-1], users, reads_result)
    return [
        is_backward[node] and any(leads[user] and is_backward[user] for user in users[node])
        for node in range(len(nodes))
    ]


def _reach(
    order: Iterable[int], before: Sequence[Sequence[int]], starts: Sequence[bool]
) -> list[bool]:
    """The starts, and the nodes that come after one of them in an order."""
    reached = list(starts)
    for node in order:
        if not reached[node]:
            reached[node] = any(reached[earlier] for earlier in before[node])
    return reached


def _gives_data(node: Node) -> bool:
    """Whether a node gives values that differ from step to step, such as the input."""
    if node.op.startswith(_GIVE_DATA):
        return True
    if node.inputs or node.op in _GIVE_NO_DATA:
        return False
    dtype = node.attributes.get("dtype") or node.attributes.get("T")
    return dtype is None or dtype.type != op_types.DT_RESOURCE
