"""What may be computed twice, and what must come after it without reading from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.accumulation.addition_order import has_order
from memopt.accumulation.shared_inputs import find_shared_inputs
from memopt.cluster import ANY_CPU
from memopt.costs.kernel_costs import KernelCosts
from memopt.graph import op_types
from memopt.graph.op_types import CONTROL_FLOW, DT_RESOURCE, DT_VARIANT, REF_TYPE_OFFSET
from memopt.rematerialization.network import Network
from memopt.rematerialization.rewriting.hints import (
    KEEP,
    NO_HINTS,
    RECOMPUTE,
    SWAP,
    Hints,
    preferred,
)
from memopt.sequencing.frames import OUTSIDE, find_places
from memopt.sequencing.meetings import find_meetings
from memopt.sequencing.state import find_state_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.context import Context
    from memopt.graph.graph import FunctionLibrary, Graph, Node

_CONSTANTS = ("Const", "HostConst")
_TURNS = 10
"""How often a loop is taken to run: what is computed again in it is so in each turn."""


def network_of(  # noqa: PLR0913 - what is known of a step, by keyword
    graph: Graph,
    buffer_graph: BufferGraph,
    sequence: Sequence[int],
    context: Context,
    *,
    declined: frozenset[str] = frozenset(),
    hints: Hints = NO_HINTS,
    sums_again: bool = False,
) -> Network:
    """A graph in a sequence as rematerialization sees it.

    Operations with state follow those that read that state before them in the sequence, like those
    that wait by control: a copy never reads what was written later.

    Args:
        graph: The graph.
        buffer_graph: The same in numbers.
        sequence: The nodes that run, as numbers.
        context: What the pass knows.
        declined: Names of further nodes that must not run twice.
        hints: What the user says of them.
        sums_again: Whether sums of several may run twice: XLA adds in the order of the inputs,
            TensorFlow's kernel in one that hangs on where they are in memory.
    """
    nodes = buffer_graph.nodes
    place = {node: number for number, node in enumerate(nodes)}
    runs = frozenset(sequence)
    followers = [
        [
            place[user]
            for user in node.control_users
            # A constant that waits does so for nothing but being where its operation was.
            if place[user] in runs and user.op not in _CONSTANTS
        ]
        for node in nodes
    ]
    for before, after in find_state_order(graph, nodes, sequence):
        followers[before].append(after)
    meetings = list(find_meetings(nodes, sequence))
    position = {number: at for at, number in enumerate(sequence)} if meetings else {}
    for before, after in meetings:
        # As the sequence has it, unless they do not meet as it seems.
        if position[before] < position[after]:
            followers[before].append(after)
    places = find_places(nodes, sequence)
    shared_inputs = () if sums_again else find_shared_inputs(nodes, context.properties)
    bound = {
        place[node]: shared.sums[0].name
        for shared in shared_inputs
        for node in (*shared.makers, *shared.readers)
    }
    named = context.fed | context.fetched | context.kept | declined
    recomputable = [False] * len(nodes)
    costs = context.costs or KernelCosts()
    weights = [1] * len(nodes)
    intensities = [0.0] * len(nodes)
    for number in sequence:
        node = nodes[number]
        hint = hints.of(node)
        recomputable[number] = (
            number not in bound
            # At a peak it could need what it needs where little else is in use.
            and number not in buffer_graph.unsure
            and (places[number] == OUTSIDE or _is_free_inside(node))
            and (sums_again or not has_order(node))
            and node.name not in named
            and hint not in (KEEP, SWAP)
            and can_run_twice(node, graph.library)
        )
        if buffer_graph.made[number]:
            cost = costs.cost(node, ANY_CPU, context.properties)
            time_ns = max(cost.execution_ns, 1)
            time_ns *= _TURNS ** len(places[number].frames)
            weights[number] = preferred(time_ns) if hint == RECOMPUTE else time_ns
            intensities[number] = cost.compute_ns / (cost.memory_ns + 1)
    return Network(
        buffer_graph=buffer_graph,
        sequence=tuple(sequence),
        inputs=[[place[source] for source in _sources(node)] for node in nodes],
        followers=[list(dict.fromkeys(after)) for after in followers],
        recomputable=recomputable,
        weights=weights,
        intensities=intensities,
        bound=bound,
    )


def _is_free_inside(node: Node) -> bool:
    """Whether another one can stand for an operation of a loop or a branch.

    Not so: what others wait for, since that may be all that has them run where they do; and what
    decides whether others run. A copy has the inputs of the original, or copies of these, and waits
    for the same: so it runs in the same turn, on the same side.
    """
    readers = (use for output in node.outputs for use in output.uses)
    return not node.control_users and not any(
        reader.op == "LoopCond" or (reader.op in op_types.SWITCHES and slot)
        for reader, slot in readers
    )


def _sources(node: Node) -> dict[Node, None]:
    """Whose outputs a node reads, those aside that close a loop: they are of the turn before."""
    sources = dict.fromkeys(tensor.node for tensor in node.inputs)
    if node.op in op_types.MERGES:
        return {s: None for s in sources if s.op not in op_types.NEXT_ITERATIONS}
    return sources


def can_run_twice(node: Node, library: FunctionLibrary | None) -> bool:
    """Whether an operation gives the same again and leaves nothing behind.

    Not so: what the registry calls stateful (random numbers, variables, queues), what it does not
    know, control flow, calls of functions, and what takes or gives references, resources or
    variants (the memory behind them is not a tensor's).
    """
    if node.op in CONTROL_FLOW or op_types.is_stateful(node, library):
        return False
    signature = op_types.signature(node.op, library)
    if signature is None or signature.function_attributes:
        return False
    if library is not None and library.op_def(node.op) is not None:
        return False
    types = op_types.port_types(node, library)
    return not any(
        dtype in (DT_RESOURCE, DT_VARIANT) or dtype > REF_TYPE_OFFSET
        for dtype in (*types.inputs, *types.outputs)
    )
