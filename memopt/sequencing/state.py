"""The order of operations with state: variables, random numbers, and everything with an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.graph.graph import FunctionLibrary, Graph, Node, Tensor

    Key = tuple[object, ...]

READERS = frozenset(
    "ReadVariableOp ResourceGather ResourceGatherNd VariableShape VarIsInitializedOp "
    "_ReadVariablesOp".split()
)
"""Ops that read a resource and leave it as it is; all others may write to it."""

_NO_STATE = op_types.REF_VARIABLES | frozenset({"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"})
"""Ops that are registered as stateful, and do nothing but hand something over."""

_EFFECTS = ("effects",)
"""What every operation with an effect other than on a resource that is known writes to."""


def has_effect(node: Node, library: FunctionLibrary | None = None) -> bool:
    """Whether running a node may change a variable, or anything else that outlasts it."""
    return (
        node.op not in READERS and not _has_no_state(node) and op_types.is_stateful(node, library)
    )


def _has_no_state(node: Node) -> bool:
    return node.op in _NO_STATE or node.op.endswith("HandleOp")


class _Access(NamedTuple):
    """One use of a piece of state by a node."""

    key: Key
    writes: bool


def find_state_order(
    graph: Graph, nodes: Sequence[Node], program: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of nodes (before, after) that must keep the order that they have in the program.

    1. Of two operations on the same resource or reference variable of which one may write to it,
       the first stays the first. A resource is told by its handle: the VarHandleOp's name, or the
       argument that it comes in by. Who reads a reference variable through an Identity, which
       hands its buffer on, reads the variable.
    2. All other operations that the registry calls stateful (random numbers, queues, printing),
       that call functions with state, or that get a resource from somewhere unknown keep their
       order among each other.

    Only consecutive uses are paired; the pairs are linear in the number of uses.

    Args:
        graph: The graph.
        nodes: Its nodes by number.
        program: The nodes that run, as numbers, in the order to keep.
    """
    references = _reference_accesses(graph, nodes)
    writers: dict[Key, int] = {}
    readers: dict[Key, list[int]] = {}
    for place in program:
        node = nodes[place]
        for key, writes in (*references.get(node, ()), *_accesses(node, graph.library)):
            since = readers.setdefault(key, [])
            if not writes:
                if key in writers:
                    yield writers[key], place
                since.append(place)
                continue
            earlier = since or ([writers[key]] if key in writers else [])
            yield from ((before, place) for before in earlier if before != place)
            writers[key] = place
            since.clear()


def _accesses(node: Node, library: FunctionLibrary | None) -> list[_Access]:
    """The pieces of state that a node uses, reference variables apart."""
    signature = op_types.signature(node.op, library)
    if signature is None:
        return [_Access(_EFFECTS, writes=True)]
    keys = [] if node.op in op_types.FORWARDING else _resources(node, library)
    reads = node.op in READERS
    found = dict.fromkeys(_Access(key, writes=not reads or key == _EFFECTS) for key in keys)
    if not signature.is_stateful or _has_no_state(node):
        return list(found)
    if not keys or signature.function_attributes:
        found[_Access(_EFFECTS, writes=True)] = None
    return list(found)


def _resources(node: Node, library: FunctionLibrary | None) -> list[Key]:
    """What tells the resources apart that a node takes."""
    types = op_types.port_types(node, library).inputs
    return [
        _resource_key(tensor)
        for tensor, dtype in zip(node.inputs, types, strict=True)
        if dtype == op_types.DT_RESOURCE
    ]


def _resource_key(tensor: Tensor) -> Key:
    """The same for handles of the same resource."""
    while tensor.node.op in op_types.FORWARDING:
        tensor = tensor.node.inputs[tensor.port if tensor.node.op == "IdentityN" else 0]
    source = tensor.node
    if source.inputs:
        return _EFFECTS
    if source.op == "VarHandleOp":
        attributes = source.attributes
        shared, container = (attributes.get(name) for name in ("shared_name", "container"))
        name = shared.s if shared is not None else b""
        # Without a name of its own, TensorFlow takes the node's.
        return (
            "variable",
            container.s if container is not None else b"",
            name or source.name.encode(),
        )
    return ("source", source.index, tensor.port)


def _reference_accesses(graph: Graph, nodes: Sequence[Node]) -> dict[Node, list[_Access]]:
    """By node the reference variables that it uses."""
    accesses: dict[Node, list[_Access]] = {}
    for variable in nodes:
        if variable.op in op_types.REF_VARIABLES:
            for user, writes in _reference_users(graph, variable).items():
                accesses.setdefault(user, []).append(_Access(("reference", variable.name), writes))
    return accesses


def _reference_users(graph: Graph, variable: Node) -> dict[Node, bool]:
    """Who uses a reference variable or its buffer, and whether they write to it."""
    users: dict[Node, bool] = {}
    pending = [variable]
    while pending:
        for tensor in pending.pop().outputs:
            for user, slot in tensor.uses:
                types = op_types.port_types(user, graph.library)
                hands_on = user.op in op_types.FORWARDING
                writes = types.inputs[slot] > op_types.REF_TYPE_OFFSET and not hands_on
                gives = any(dtype > op_types.REF_TYPE_OFFSET for dtype in types.outputs)
                if user not in users and (hands_on or (writes and gives)):
                    pending.append(user)
                users[user] = users.get(user, False) or writes
    return users
