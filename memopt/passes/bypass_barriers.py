"""Barriers bypassed: a tensor can be used as soon as it is there, not when all of a group are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.control_dependencies.replacement import find_orders
from memopt.graph import op_types
from memopt.graph.attributes import own_attributes
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.paths import find_earlier
from memopt.graph.removal import Removal
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.shapes.function_calls import HANDLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter

IDENTITY_N = "IdentityN"
CUSTOM_GRADIENT = "_gradient_op_type"

_FEWEST_TENSORS = 2

_AT_ONCE = 2048
"""How many barriers are looked at together; each has a bit at every node."""

_MOST_CONTROLS = 8
"""So many control inputs of a barrier are given to each of its readers at most."""


@dataclass(frozen=True)
class BypassBarriers(Pass):
    """Let the readers of an IdentityN read what goes into it, so that they wait for no other input.

    Keras passes all gradients of a step through one IdentityN, so that all are there before the
    first variable is updated. With it bypassed, a gradient is gone when its update has run.

    1. The readers of output k read input k, and wait for the IdentityN's control inputs.
    2. What has the IdentityN as a control input waits for all of its inputs still, but for a NoOp
       of its name, which holds none of them. Without such nodes it is taken out.
    3. Two uses of one variable or other resource, of which one writes, stay in order: the second
       waits for the first where nothing but the barrier made it.
    4. With `groups`, the same is done to the NoOps that `tf.tuple` of TensorFlow 1 makes, of which
       all users are Identities of what it waits for.

    Refused, with a reason in the report: an IdentityN that is fed, fetched or kept; with handles or
    v1 references among its inputs; on a device of its own; with a gradient of its own that somebody
    could still ask for, which is when a fetched tensor is computed from it. Also barriers between
    operations with effects that no edge tells of (prints, Python, checks that stop the step) and
    other uses of state; behind a v1 Switch, since one dead input makes all outputs dead; and before
    sums of more than two inputs, of which AddN changes the order with who else reads them.

    If an operation of the step fails, updates may have run that would have waited for it.
    """

    name: ClassVar[str] = "bypass-barriers"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    groups: bool = False
    """Also open the groups of `tf.tuple`. TensorFlow 1 has one for the gradients of each operation;
    open, the gradients that lead on may run far ahead of those that end there, which then wait in
    memory for their turn unless something else orders them."""

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find all barriers, look at many at a time, and bypass those that can be."""
        numbering = Numbering.of(rewriter.graph)
        component, place = numbering.component, numbering.place
        barriers = self._find(rewriter, context)
        barriers.sort(key=lambda node: -component[place(node)])
        for start in range(0, len(barriers), _AT_ONCE):
            self._bypass_all(rewriter, context, barriers[start : start + _AT_ONCE])

    def _find(self, rewriter: Rewriter, context: Context) -> list[Node]:
        """The barriers of the graph that nothing about themselves keeps in place."""
        graph = rewriter.graph
        candidates = list(filter(None, map(self._barrier, graph)))
        if not candidates:
            return []
        differentiable = _differentiable(graph, context)
        found = []
        for barrier in candidates:
            reason = _why_not(graph, context, differentiable, barrier)
            if reason is None:
                found.append(barrier.node)
            else:
                rewriter.decline(barrier.node, reason)
        return found

    def _barrier(self, node: Node) -> _Barrier | None:
        """The node as a barrier, if it is one that anything waits at."""
        if node.op == IDENTITY_N:
            return _identity_barrier(node)
        return _group_barrier(node) if self.groups and node.op == "NoOp" else None

    def _bypass_all(self, rewriter: Rewriter, context: Context, nodes: list[Node]) -> None:
        graph = rewriter.graph
        numbering = Numbering.of(graph)
        orders = find_orders(graph, numbering, [numbering.place(node) for node in nodes])
        free = sum(1 << number for number in range(len(nodes)) if number not in orders.refused)
        bypass = _Bypass(rewriter, numbering, context)
        with rewriter.edit("uses of one state stay in order without a barrier between them"):
            for edge in orders.edges:
                if edge.barriers & free:
                    rewriter.add_control_input(edge.after, edge.before)
        for number, node in enumerate(nodes):
            if number in orders.refused:
                rewriter.decline(node, orders.refused[number])
                continue
            # What another barrier handed on to this one may have been redirected meanwhile.
            barrier = self._barrier(node)
            if barrier is not None:
                bypass.apply(barrier)


class _Barrier(NamedTuple):
    """A node at which others wait for what they do not need.

    Attributes:
        node: The barrier.
        gates: Who waits at it and need not: readers of an IdentityN, Identities of a group.
        tensors: What they need: each need only wait for its own.
        controls: What they have to wait for beside.
    """

    node: Node
    gates: tuple[Node, ...]
    tensors: tuple[Tensor, ...]
    controls: tuple[Node, ...]


def _identity_barrier(node: Node) -> _Barrier | None:
    tensors = dict.fromkeys(node.inputs)
    readers = dict.fromkeys(reader for tensor in node.outputs for reader, _ in tensor.uses)
    if not readers and not node.control_users:
        return None
    if len(tensors) < _FEWEST_TENSORS:
        return None
    return _Barrier(node, tuple(readers), tuple(tensors), node.control_inputs)


def _group_barrier(node: Node) -> _Barrier | None:
    waited_for = dict.fromkeys(node.control_inputs)
    gates = node.control_users
    if len(waited_for) < _FEWEST_TENSORS or not gates:
        return None
    for gate in gates:
        if gate.op != "Identity" or gate.inputs[0].node not in waited_for:
            return None
    tensors = dict.fromkeys(gate.inputs[0] for gate in gates)
    own = {tensor.node for tensor in tensors}
    return _Barrier(node, gates, tuple(tensors), tuple(n for n in waited_for if n not in own))


def _differentiable(graph: Graph, context: Context) -> set[Node]:
    """The nodes that a fetched tensor is computed from; of others nobody can ask a gradient."""
    fetched = filter(None, map(graph.find, context.fetched))
    return _sources((node for node in fetched if _gives_tensors(graph, node)), controls=False)


def _gives_tensors(graph: Graph, node: Node) -> bool:
    return node.op == RESULT or bool(op_types.port_types(node, graph.library).outputs)


def _why_not(
    graph: Graph, context: Context, differentiable: set[Node], barrier: _Barrier
) -> str | None:
    """Why the barrier has to stay, as far as it and its neighbours tell."""
    node = barrier.node
    reason = None
    if not context.fetched:
        reason = "nobody says what is fetched; it may be"
    elif node.name in context.fed:
        reason = "it is fed, so what goes into it is not what comes out"
    elif node.name in context.fetched or node.name in context.kept:
        reason = "it has to stay as it is"
    elif len(barrier.controls) > _MOST_CONTROLS:
        reason = f"it waits for {len(barrier.controls)} nodes beside its inputs"
    elif CUSTOM_GRADIENT in node.attributes and node in differentiable:
        reason = "it has a gradient of its own, and a fetched tensor is computed from it"
    elif any(gate.op in op_types.MERGES for gate in barrier.gates):
        reason = "a Merge reads it, whose other branch may be dead"
    return reason or _why_not_its_tensors(graph, barrier)


def _why_not_its_tensors(graph: Graph, barrier: _Barrier) -> str | None:
    for tensor in dict.fromkeys((*barrier.node.inputs, *barrier.tensors)):
        producer = tensor.node
        dtype = op_types.port_types(producer, graph.library).outputs[tensor.port]
        if dtype > op_types.REF_TYPE_OFFSET:
            return f"the v1 variable {tensor.name!r} could change before it is read"
        if dtype in HANDLES:
            return f"{tensor.name!r} is a handle, not a value"
    if barrier.node.op != IDENTITY_N:
        return None
    device = barrier.node.device
    for output in barrier.node.outputs:
        if barrier.node.inputs[output.port].node.device == device:
            continue
        for reader, _ in output.uses:
            if reader.device != device:
                return f"{output.name!r} goes by way of a device of its own"
    return None


class _Bypass:
    """Makes what waits at barriers independent of them."""

    def __init__(self, rewriter: Rewriter, numbering: Numbering, context: Context) -> None:
        self._rewriter = rewriter
        self._numbering = numbering
        self._removal = Removal(rewriter.graph, fetched=context.fetched, named=context.named)
        fetched = filter(None, map(rewriter.graph.find, sorted(context.fetched)))
        self._needed = _sources(fetched, controls=True)

    def apply(self, barrier: _Barrier) -> None:
        """Bypass a barrier, and take it out if it can be."""
        node, rewriter = barrier.node, self._rewriter
        count = len(barrier.tensors)
        reason = f"{len(barrier.gates)} operations need not wait for all of {count} tensors"
        if not barrier.gates:
            reason = f"{count} tensors are waited for and need not be kept"
        with rewriter.edit(reason, releases=self._released(barrier)):
            for gate in barrier.gates:
                self._open(barrier, gate)
            if node.op == IDENTITY_N and node.control_users:
                _make_group(rewriter, node)
            elif self._removal.can_remove(node):
                rewriter.remove_node(node)

    def _open(self, barrier: _Barrier, gate: Node) -> None:
        """Make one gate read and wait for what it needs alone."""
        node = barrier.node
        inputs = [node.inputs[t.port] if t.node is node else t for t in gate.inputs]
        controls = [
            control
            for control in gate.control_inputs
            # Who asked to wait for all inputs of an IdentityN still does.
            if control is not node or node.op == IDENTITY_N
        ]
        self._rewriter.set_inputs(gate, inputs)
        self._rewriter.set_control_inputs(gate, [*controls, *barrier.controls])

    def _released(self, barrier: _Barrier) -> list[Tensor]:
        """What the barrier alone keeps: not the tensor that comes last, nor what others read."""
        numbering = self._numbering
        gates = {*barrier.gates, barrier.node}
        others = {
            tensor: [
                reader
                for reader, _ in tensor.uses
                if reader in self._needed and reader not in gates
            ]
            for tensor in barrier.tensors
        }
        readers = [reader for found in others.values() for reader in found]
        done = find_earlier(numbering, barrier.node, readers)
        last = min(
            barrier.tensors, key=lambda tensor: numbering.component[numbering.place(tensor.node)]
        )
        return [
            tensor
            for tensor, found in others.items()
            if tensor is not last and all(reader in done for reader in found)
        ]


def _make_group(rewriter: Rewriter, node: Node) -> None:
    """Make an IdentityN a NoOp, which waits for the same and holds nothing."""
    # Arguments are there when a function starts.
    producers = [tensor.node for tensor in node.inputs if tensor.node.op != ARGUMENT]
    controls = (*producers, *node.control_inputs)
    own = own_attributes(node.attributes)
    own.pop(CUSTOM_GRADIENT, None)
    rewriter.set_inputs(node, ())
    rewriter.set_control_inputs(node, controls)
    rewriter.set_op(node, "NoOp", own)


def _sources(starts: Iterable[Node], *, controls: bool) -> set[Node]:
    """Some nodes and all that they depend on, by data alone or by data and control."""
    found = set(starts)
    pending = list(found)
    while pending:
        node = pending.pop()
        producers = [tensor.node for tensor in node.inputs]
        if controls:
            producers += node.control_inputs
        new = [producer for producer in producers if producer not in found]
        found.update(new)
        pending.extend(new)
    return found
