"""Ordering: control edges that make TensorFlow run a graph in an order that needs little memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar

from memopt.buffers.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.attributes import type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.sequencing.holding_edges import falls_apart
from memopt.sequencing.orders import BEST, SEQUENCERS
from memopt.sequencing.quickening import Quick
from memopt.sequencing.step import Step
from memopt.sequencing.windowed_enforcement import enforce_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.sequencing.enforcement import Chain
    from memopt.sequencing.precedence import Precedence

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Ordering(Pass):
    """Order the operations of a step by control edges, so that the peak planned is the real one.

    1. What leads to a fetch gets a sequence, by the sequencer that is asked for. In a function's
       body what leads to a result or is kept for its effects.
    2. Every sequence keeps the graph's edges; operations on the same variable of which one writes,
       and random and other stateful operations, keep their order in the graph besides.
    3. Conv2D and BiasAdd, and Conv2DBackpropFilter and the BiasAddGrad of the same gradient, stand
       side by side: oneDNN may make one operation of them, and something between the two would
       make the call fail. Of a Conv2D that would wait an Identity of its input does: see
       `_free_pair`.
    4. Neighbours of the sequence on one device, in one loop and one branch get a control edge
       where no path orders them already; see `enforce`.
    5. Who waits for a branch or a call waits for its results as well, each by an Identity that all
       read in its place.

    Nodes that do not run for the fetches are left alone: an edge from one would make it run. So
    the graph that comes out is for these fetches; asked for others, it may run what they do not
    need.
    """

    name: ClassVar[str] = "ordering"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES}
    )

    sequencer: str = BEST
    """How the order is found: see `SEQUENCERS`."""
    smallest_bytes: int = 0
    """Leave operations free that touch nothing as large as this; 0 orders all that hold memory."""
    slack: float = 0.06
    """How much more than the order with the lowest peak one may need in which several threads take
    less time, as a share of the step's own memory; it costs at most half of what an order saves."""
    only_lower: bool = False
    """Leave a graph as it is that needs no more as the executor's threads run it than in the order
    that was found."""

    def __post_init__(self) -> None:
        if self.sequencer not in SEQUENCERS:
            names = ", ".join(SEQUENCERS)
            raise OptionsError(f"ordering: sequencer is one of {names}, not {self.sequencer!r}")
        if self.smallest_bytes < 0:
            raise OptionsError(f"ordering: smallest_bytes is {self.smallest_bytes}, less than 0")
        if self.slack < 0:
            raise OptionsError(f"ordering: slack is {self.slack}, less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find the sequence and enforce it, with one edit for each chain of operations."""
        if not len(rewriter.graph):
            return
        step = Step.in_context(rewriter.graph, context)
        quick = self._quick_order(step, context.inter_op_threads)
        order = quick.timeline
        if self.only_lower and self._is_in_vain(order, step, rewriter, context):
            return
        hold_to(
            rewriter,
            quick,
            step.precedence,
            context,
            partial(self._reason, order),
            smallest_bytes=self.smallest_bytes,
        )

    def order(self, graph: Graph, context: Context) -> MemoryTimeline | None:
        """The sequence that would be enforced, as it is simulated; `None` for an empty graph."""
        if not len(graph):
            return None
        step = Step.in_context(graph, context)
        return simulate(step.buffer_graph, step.sequence(self.sequencer))

    def _quick_order(self, step: Step, threads: int) -> Quick:
        """The order with the lowest peak, or a quicker one that needs hardly more."""
        found = [simulate(step.buffer_graph, each) for each in step.sequences(self.sequencer)]
        lowest = min(found, key=lambda timeline: timeline.peak_bytes)
        if threads <= 1:
            return Quick(lowest, lowest.peak_bytes)
        saved_bytes = max(0, step.run_freely(threads).peak_bytes - lowest.peak_bytes)
        most_bytes = min(int(self.slack * lowest.step_peak_bytes), saved_bytes // 2)
        limits_bytes = [lowest.peak_bytes, lowest.peak_bytes + most_bytes]
        return step.quickest(found, limits_bytes, threads)

    def _is_in_vain(
        self, order: MemoryTimeline, step: Step, rewriter: Rewriter, context: Context
    ) -> bool:
        """Whether the graph needs no more without the order; says so if it does not."""
        unordered = step.run_freely(context.inter_op_threads)
        if order.peak_bytes < unordered.peak_bytes or not order.sequence:
            return False
        rewriter.decline(
            order.buffer_graph.nodes[order.sequence[order.peak_position]],
            f"the best order that was found needs {order.step_peak_bytes / _MEBIBYTE:.2f} MiB on "
            f"top of what the step holds, and without one it needs "
            f"{unordered.step_peak_bytes / _MEBIBYTE:.2f} MiB",
        )
        return True

    def _reason(self, order: MemoryTimeline, chain: Chain) -> str:
        where = f" on {chain.device}" if chain.device else ""
        return (
            f"{len(chain.nodes)} operations{where} run in the order {self.sequencer!r}, in which "
            f"the step needs {order.step_peak_bytes / _MEBIBYTE:.2f} MiB on top of what it holds; "
            f"paths keep {max(0, len(chain.nodes) - 1 - len(chain.edges))} of them in order already"
        )


def hold_to(
    rewriter: Rewriter,
    quick: Quick,
    precedence: Precedence,
    context: Context,
    reason: Callable[[Chain], str],
    *,
    smallest_bytes: int = 0,
) -> None:
    """Add the control edges that hold a graph to an order, with one edit for each chain.

    Args:
        rewriter: The graph's.
        quick: The order, one operation at a time, and what operations that run side by side may
            have in use, if that is more.
        precedence: What must come before what.
        context: What is known of the graph.
        reason: What to say of a chain.
        smallest_bytes: Nodes that touch nothing as large as this are left free.
    """
    order = quick.timeline
    nodes = order.buffer_graph.nodes
    chains = enforce_within(
        order,
        precedence,
        limit_bytes=quick.limit_bytes,
        threads=context.inter_op_threads,
        smallest_bytes=smallest_bytes,
        fed=context.fed,
    )
    waiting = {nodes[after] for chain in chains for _, after in chain.edges}
    ends = cache(partial(_ends, rewriter, waiting=waiting, context=context))
    for chain in chains:
        if not chain.edges:
            continue
        waits: dict[int, list[int]] = {}
        for before, after in chain.edges:
            waits.setdefault(after, []).append(before)
        with rewriter.edit(reason(chain)):
            found = {
                nodes[after]: [end for before in earlier for end in ends(nodes[before])]
                for after, earlier in waits.items()
            }
            for first, second in order.buffer_graph.fused_pairs.items():
                _free_pair(rewriter, nodes[first], nodes[second], found, context)
            for node, earlier in found.items():
                rewriter.set_control_inputs(node, (*node.control_inputs, *earlier))
    rewriter.hold_to(nodes[number] for number in order.sequence)


def _ends(
    rewriter: Rewriter, node: Node, waiting: Collection[Node], context: Context
) -> list[Node]:
    """Whom to wait for so that a node has ended.

    A branch or a call becomes the operations of its functions, and who waits for it waits only for
    those with effects. Who waits for an Identity of each of its results waits for those.

    Args:
        rewriter: Its graph's, which adds an Identity where there is none.
        node: The node.
        waiting: Nodes that wait for others, so that nobody may wait for them.
        context: What is known of the graph.
    """
    if not falls_apart(node):
        return [node]
    found = []
    for tensor in node.outputs:
        readers = [reader for reader, _ in tensor.uses]
        free = (
            one
            for one in readers
            if one.op == "Identity" and not one.control_inputs and one not in waiting
        )
        if readers:
            found.append(next(free, None) or _handed_on(rewriter, tensor, context))
    return [node, *found]


def _free_pair(
    rewriter: Rewriter, node: Node, bias: Node, waits: dict[Node, list[Node]], context: Context
) -> None:
    """Let an Identity of its input wait in the place of a convolution that takes in its BiasAdd.

    oneDNN makes one node of the two only if both wait for the same, or bits could differ. But where
    they wait for anything, TensorFlow ends the process: it expects no control edges there
    (`MergeConv2DWithBiasAdd` in tensorflow/core/common_runtime/mkl_layout_pass.cc).

    Args:
        rewriter: Their graph's.
        node: The first of a pair that oneDNN may make one node of.
        bias: The second.
        waits: By node: what it is to wait for; what the Identity waits for is taken out.
        context: What is known of the graph.
    """
    before = dict.fromkeys((*node.control_inputs, *waits.get(node, ())))
    if node.op != "Conv2D" or [user for user, _ in node.output().uses] != [bias]:
        return
    if not before or before.keys() != {*bias.control_inputs, *waits.get(bias, ())}:
        return
    tensor = node.inputs[0]
    gate = _add_identity(rewriter, tensor, f"{node.name}/gate", node.device, context)
    rewriter.set_inputs(gate, [tensor])
    rewriter.set_control_inputs(gate, before)
    rewriter.set_input(node, 0, gate.output())
    for each in (node, bias):
        waits.pop(each, None)
        if each.control_inputs:
            rewriter.set_control_inputs(each, ())


def _handed_on(rewriter: Rewriter, tensor: Tensor, context: Context) -> Node:
    """An Identity of a tensor, which all read in its place: so it is one reader as before.

    If others went on reading the tensor, its buffer would not be free for one of them to take over.
    """
    node = tensor.node
    name = f"{node.name}/ended_{tensor.port}"
    added = _add_identity(rewriter, tensor, name, node.device, context)
    rewriter.replace_uses(tensor, added.output())
    rewriter.set_inputs(added, [tensor])
    return added


def _add_identity(
    rewriter: Rewriter, tensor: Tensor, name: str, device: str, context: Context
) -> Node:
    """An Identity like a tensor; that it reads it is left to who asks, after others' uses."""
    types = op_types.port_types(tensor.node, rewriter.graph.library).outputs
    added = rewriter.add_node(
        free_name(name, rewriter.graph),
        "Identity",
        device=device,
        attributes={"T": type_attribute(types[tensor.port])},
    )
    outputs = context.properties.outputs(tensor.node.name)
    context.properties.add(added.name, outputs[tensor.port :][:1])
    return added
