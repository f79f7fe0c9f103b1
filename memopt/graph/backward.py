"""Finds the backward part of a training step, by structure and only then by name.

What tells a backward operation from a forward one is which updates it still leads to. Every
forward operation leads, through the loss, to the update of each weight that it was computed from.
A backward operation was computed from all weights, but leads only to the updates of the layers
that are still to come.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.graph.graph import Graph, Node

_NAME_PARTS = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_[0-9]+)?|[A-Za-z0-9]+_grad)/")
"""Scopes of gradient operations: of a GradientTape, of `tf.gradients`, of an op's gradient."""


def find_backward_nodes(graph: Graph) -> frozenset[Node]:
    """The operations of a training step that compute gradients, and what they alone lead to.

    1. An update is an operation that writes to a variable; a weight is a variable that influences
       the updates of others which influence its own in turn, as layers do through the loss. (A
       momentum is tied so to its own weight only; a counter to nothing.)
    2. Backward is an operation that leads to the update of a weight, and was computed from a weight
       whose update it does not lead to.
    3. Where something ties all gradients together, such as a norm over all of them, every
       operation leads to every update. So backward is, too, what was computed from all weights
       that the update of a weight was computed from, and leads to nothing but such updates: not to
       the loss as it is returned, or to a metric.
    4. If there are fewer than three weights, the names of gradient scopes decide instead.

    Linear in nodes, times the number of variables over the machine's word size.
    """
    numbering = Numbering.of(graph)
    variables = _Variables(graph, numbering)
    leads_to = _updates_led_to(numbering, variables)
    computed_from = _variables_computed_from(numbering, variables)
    influences = _influences(variables, leads_to)
    weights = _weights(influences)
    if not weights:
        return frozenset(node for node in graph if _NAME_PARTS.search(node.name))
    inner = weights
    for bit, influenced in influences.items():
        inner |= bit if influenced & weights else 0
    elsewhere = _leads_elsewhere(numbering, variables, inner)
    needs = _update_sources(variables, computed_from, weights)
    return frozenset(
        node
        for place, node in enumerate(numbering.nodes)
        if leads_to[place] & weights
        and (
            computed_from[place] & weights & ~leads_to[place]
            or (not elsewhere[place] and _is_complete(computed_from[place], leads_to[place], needs))
        )
    )


def _leads_elsewhere(numbering: Numbering, variables: _Variables, inner: int) -> list[bool]:
    """For each position whether its value reaches something other than updates of variables.

    Args:
        numbering: The graph.
        variables: Its variables.
        inner: The weights, and the variables whose values weights are computed from. To update
            another variable, such as a metric's, is to lead elsewhere.
    """
    elsewhere = [False] * len(numbering.nodes)
    for place in reversed(numbering.order):
        updates = variables.updates[place]
        if updates:
            elsewhere[place] = not updates & inner
            continue
        users = {user for tensor in numbering.nodes[place].outputs for user, _ in tensor.uses}
        elsewhere[place] = not users or any(elsewhere[numbering.place(user)] for user in users)
    return elsewhere


def _update_sources(
    variables: _Variables, computed_from: list[int], weights: int
) -> dict[int, int]:
    """The different sets of weights that updates are computed from, with the weights updated."""
    sources: dict[int, int] = {}
    for place, updates in enumerate(variables.updates):
        computed = computed_from[place] & weights
        # What is computed from no weight sets the first values.
        if updates & weights and computed:
            sources[computed] = sources.get(computed, 0) | updates
    return sources


def _is_complete(computed: int, led_to: int, sources: dict[int, int]) -> bool:
    """Whether an update that is led to needs no weights but those of `computed`."""
    return any(led_to & updated and not needed & ~computed for needed, updated in sources.items())


class _Variables:
    """Which nodes read and update which variables; a variable is a bit.

    Attributes:
        reads: For each position the variables that the node reads.
        updates: For each position the variables that the node updates.
        is_variable: For each position whether it is a variable, an edge from which is no data.
    """

    def __init__(self, graph: Graph, numbering: Numbering) -> None:
        count = len(numbering.nodes)
        self.reads = [0] * count
        self.updates = [0] * count
        self.is_variable = [False] * count
        bit = 1
        for place, node in enumerate(numbering.nodes):
            if not _is_variable(node):
                continue
            self.is_variable[place] = True
            for user, slot in node.output(0).uses:
                marks = self.updates if _is_update(graph, user, slot) else self.reads
                marks[numbering.place(user)] |= bit
            bit <<= 1

    def seen_by(self, place: int, node: Node, numbering: Numbering) -> Iterator[int]:
        """The updates whose outcome a node reads: it takes the variable, and waits for them."""
        if self.reads[place]:
            for control in node.control_inputs:
                update = numbering.place(control)
                if self.updates[update] & self.reads[place]:
                    yield update


def _is_variable(node: Node) -> bool:
    if node.op == "VarHandleOp" or node.op in op_types.REF_VARIABLES:
        return True
    if node.op not in ("Placeholder", "_Arg"):
        return False
    dtype = node.attributes.get("dtype") or node.attributes.get("T")
    return dtype is not None and dtype.type == op_types.DT_RESOURCE


def _is_update(graph: Graph, user: Node, slot: int) -> bool:
    """Whether a node that takes a variable writes to it."""
    if user.op.startswith(("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply")):
        return True
    return op_types.port_types(user, graph.library).inputs[slot] > op_types.REF_TYPE_OFFSET


def _updates_led_to(numbering: Numbering, variables: _Variables) -> list[int]:
    """For each position the variables whose updates depend on it through data."""
    led_to = list(variables.updates)
    of_port: dict[tuple[int, int], int] = {}
    for place in reversed(numbering.order):
        node = numbering.nodes[place]
        for slot, tensor in enumerate(node.inputs):
            mark = of_port.get((place, slot), 0) if node.op == "IdentityN" else led_to[place]
            producer = numbering.place(tensor.node)
            if not mark or variables.is_variable[producer]:
                continue
            led_to[producer] = _union(led_to[producer], mark)
            if tensor.node.op == "IdentityN":
                port = (producer, tensor.port)
                of_port[port] = _union(of_port.get(port, 0), mark)
        for update in variables.seen_by(place, node, numbering):
            led_to[update] = _union(led_to[update], led_to[place])
    return led_to


def _variables_computed_from(numbering: Numbering, variables: _Variables) -> list[int]:
    """For each position the variables on whose values it depends through data."""
    computed_from = list(variables.reads)
    for place in numbering.order:
        computed = computed_from[place]
        for tensor in numbering.nodes[place].inputs:
            source = tensor
            while source.node.op == "IdentityN":
                # Its outputs have nothing to do with each other; optimizers pass all gradients
                # through one.
                source = source.node.inputs[source.port]
            computed = _union(computed, computed_from[numbering.place(source.node)])
        for update in variables.seen_by(place, numbering.nodes[place], numbering):
            computed = _union(computed, computed_from[update])
        computed_from[place] = computed
    return computed_from


def _influences(variables: _Variables, leads_to: list[int]) -> dict[int, int]:
    """For each variable that is read the variables whose updates depend on it."""
    influences: dict[int, int] = {}
    for place, reads in enumerate(variables.reads):
        for bit in _bits(reads):
            influences[bit] = _union(influences.get(bit, 0), leads_to[place])
    return influences


def _weights(influences: dict[int, int]) -> int:
    """The variables that are tied to two others which are tied to each other."""
    influenced_by = _transposed(influences)

    def partners(bit: int) -> int:
        # Not kept: for each weight they are nearly all weights.
        return influences.get(bit, 0) & influenced_by.get(bit, 0) & ~bit

    weights = 0
    for bit in influences:
        tied = partners(bit)
        if any(tied & partners(other) for other in _bits(tied)):
            weights |= bit
    return weights


def _transposed(influences: dict[int, int]) -> dict[int, int]:
    """For each variable those that influence it."""
    # All weights influence the same variables, through the loss, so there are few different sets.
    sources: dict[int, int] = {}
    for bit, influenced in influences.items():
        sources[influenced] = sources.get(influenced, 0) | bit
    influenced_by: dict[int, int] = {}
    for influenced, bits in sources.items():
        for other in _bits(influenced):
            influenced_by[other] = _union(influenced_by.get(other, 0), bits)
    return influenced_by


def _union(first: int, second: int) -> int:
    """Both sets together; one of the two itself if that is all, so that nodes share their sets.

    Those that lie between two weights have the same ones: a set for each node would take the square
    of the nodes.
    """
    if first is second or not second:
        return first
    both = first | second
    if both == first:
        return first
    return second if both == second else both


def _bits(mask: int) -> Iterator[int]:
    """The single bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest
