"""Branches folded: where it is known which side is taken, the other one and the choice go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.control_dependencies.lost_orders import loses_order
from memopt.graph import op_types
from memopt.graph.attributes import own_attributes
from memopt.graph.dead_branches import find_dead_branches
from memopt.graph.removal import Removal, companions_of
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.shapes.known_predicates import KnownPredicates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.context import Context
    from memopt.graph.dead_branches import DeadBranches
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter


@dataclass(frozen=True)
class FoldBranches(Pass):
    """Take out the sides of branches that are never taken, so that sizes behind them are known.

    A scan over a sequence (`keras.ops.associative_scan`, of which state space models are made) asks
    at each level whether an odd element is left. Its shapes tell; Grappler asks twice and leaves
    what lies deeper, with both sides and with results of unknown size.

    1. Known are predicates that are constants or comparisons of numbers computed of certain shapes
       alone, see `KnownPredicates`.
    2. What a Switch or a Merge hands on in every call is read directly; what can only be dead is
       taken out, with all its effects, which it never had. A Switch or a Merge that others wait
       for, or that waits for others, becomes an Identity that does so still: also for what decides
       it, where a use of state could come too early without.

    As `LoopOptimizer::RemoveDeadBranches` of Grappler, which knows of constants alone. What lies
    behind a Merge is inferred anew, and the pass run again, until nothing more is known.

    Refused, with a reason in the report, for the whole graph: a dead node that the caller names or
    that lives on as the place of others; a Merge of which somebody asks which side was taken, or
    which joins others than the two sides.
    """

    name: ClassVar[str] = "fold-branches"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find what is decided, follow what is dead, and take it out; linear in edges."""
        graph = rewriter.graph
        switches = [node for node in graph if node.op == "Switch" and node.name not in context.fed]
        if not switches or not context.fetched:
            return
        sides = _find_sides(switches, KnownPredicates(graph, context.properties, context.fed))
        if not sides:
            return
        branches = find_dead_branches(graph, sides, context.fed)
        refused = _why_not(graph, branches, context)
        if refused is not None:
            rewriter.decline(*refused)
            return
        count = len({switch.inputs[1] for switch in sides})
        _Fold(rewriter, context, branches).apply(f"what decides {count} branches is known")


def _find_sides(switches: list[Node], predicates: KnownPredicates) -> dict[Node, int]:
    """By Switch of which it is known: the port of the output that is alive."""
    values = {switch.inputs[1]: None for switch in switches}
    known = {predicate: predicates.value(predicate) for predicate in values}
    return {
        switch: int(value) for switch in switches if (value := known[switch.inputs[1]]) is not None
    }


def _why_not(graph: Graph, branches: DeadBranches, context: Context) -> tuple[Node, str] | None:
    """A node that has to stay though it is dead or decided, and why."""
    dead = set(branches.nodes)
    places = companions_of(node for node in graph if node not in dead)
    for node in branches.nodes:
        if node.name in context.named:
            return node, "it never runs, and has to stay as it is"
        if node.name in places:
            return node, "it never runs, and others are placed with it"
    for node in graph:
        if node.op not in op_types.MERGES or node in dead:
            continue
        is_handed_on = node.output() in branches.handed_on
        if not is_handed_on and any(tensor in branches.tensors for tensor in node.inputs):
            return node, "it joins more than the two sides of a branch"
        if is_handed_on and node.name in context.named:
            return node, "it has to stay as it is"
        if is_handed_on and node.output(1).uses:
            return node, "it is asked which side was taken"
    return None


class _Fold:
    """Takes out what is dead, and what hands the rest on."""

    def __init__(self, rewriter: Rewriter, context: Context, branches: DeadBranches) -> None:
        self._rewriter = rewriter
        self._branches = branches
        self._dead = set(branches.nodes)
        self._removal = Removal(rewriter.graph, fetched=context.fetched, named=context.named)
        self._given = {tensor.node: tensor for tensor in branches.handed_on}
        """By Switch and Merge: the tensor that it gives in every call."""
        self._waiting = _find_waiting(rewriter.graph, self._given)
        free = [node for node in self._given if node.name not in context.named]
        self._staying = dict.fromkeys(node for node in free if self._is_needed(node))
        self._leaving = dict.fromkeys(node for node in free if node not in self._staying)

    def apply(self, reason: str) -> None:
        """Do so, in one edit."""
        with self._rewriter.edit(reason):
            for tensor in self._branches.handed_on:
                self._read_directly(tensor)
            for node in self._staying:
                self._become_identity(node)
            self._remove()

    def _is_needed(self, node: Node) -> bool:
        """Whether others wait for a Switch or a Merge, or are placed with it, or it waits."""
        is_waited_for = any(user not in self._dead for user in node.control_users)
        is_waiting = bool(node.control_inputs) or node in self._waiting
        return is_waiting or is_waited_for or node.name in self._removal.companions

    def _source(self, tensor: Tensor) -> Tensor:
        """What is read in place of a tensor."""
        handed_on = self._branches.handed_on
        while tensor in handed_on and tensor.node in self._leaving:
            tensor = handed_on[tensor]
        return tensor.node.output() if tensor.node in self._staying else tensor

    def _read_directly(self, tensor: Tensor) -> None:
        source = self._source(tensor)
        for reader, slot in tensor.uses:
            if reader not in self._dead and source is not tensor:
                self._rewriter.set_input(reader, slot, source)

    def _become_identity(self, node: Node) -> None:
        source = self._source(self._branches.handed_on[self._given[node]])
        attributes = {**own_attributes(node.attributes), "T": node.attributes["T"]}
        controls = [before for before in node.control_inputs if before not in self._dead]
        if node in self._waiting:
            controls.append(self._source(node.inputs[1]).node)
        self._rewriter.set_inputs(node, (source,))
        self._rewriter.set_control_inputs(node, controls)
        self._rewriter.set_op(node, "Identity", attributes)

    def _remove(self) -> None:
        """Take out what is dead, what handed on, and what only these read."""
        rewriter = self._rewriter
        for node in self._branches.nodes:
            if node.op in op_types.NEXT_ITERATIONS:
                rewriter.set_inputs(node, ())  # A loop that never runs.
        pending = [*self._branches.nodes, *self._leaving]
        must_go = {*self._dead, *self._leaving}
        gone: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in gone or node.users:
                continue
            if node not in must_go and not self._removal.can_remove(node):
                continue
            sources = dict.fromkeys((*(t.node for t in node.inputs), *node.control_inputs))
            rewriter.remove_node(node)
            gone.add(node)
            pending += sources


def _find_waiting(graph: Graph, gates: Iterable[Node]) -> frozenset[Node]:
    """The Switches that have to wait for what decides them still, though that is known.

    So it is where a use of state could come too early without.
    """
    switches = [node for node in gates if node.op == "Switch" and _is_computed(node.inputs[1])]
    if not switches:
        return frozenset()
    numbering = Numbering.of(graph)
    gone = {(numbering.place(s.inputs[1].node), numbering.place(s)) for s in switches}
    return frozenset(switches) if loses_order(graph, numbering, gone) else frozenset()


def _is_computed(predicate: Tensor) -> bool:
    """Whether a predicate is there only after something else has run."""
    return predicate.node.op != "Const" or bool(predicate.node.control_inputs)
