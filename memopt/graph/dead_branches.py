"""What never runs where it is known which sides of branches are taken, and what that leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from memopt.graph.graph import Graph, Node, Tensor

_MERGE = "Merge"


class DeadBranches(NamedTuple):
    """The sides of branches that are not taken.

    Attributes:
        nodes: What never runs, in the order of the graph.
        tensors: What these would give, and what a Switch never does.
        handed_on: By tensor that a Switch or a Merge gives in every call: what it hands on, which
            may be handed on itself.
    """

    nodes: tuple[Node, ...]
    tensors: frozenset[Tensor]
    handed_on: Mapping[Tensor, Tensor]


def find_dead_branches(
    graph: Graph, sides: Mapping[Node, int], fed: Collection[str]
) -> DeadBranches:
    """Follow what is dead through a graph, as TensorFlow's executor does while it runs.

    A node is dead if anything that it reads or waits for is; a Merge only if all that it reads is,
    or, at the beginning of a loop, what enters the loop. What is fed is there in any case.

    As `LoopOptimizer::RemoveDeadBranches` (tensorflow/core/grappler/optimizers/loop_optimizer.cc).

    Args:
        graph: The graph.
        sides: The Switches of which it is known which output is alive, and that output's port.
        fed: Names of the nodes that the caller feeds.
    """
    walk = _Walk(fed)
    for switch, side in sides.items():
        walk.bury(switch.output(1 - side))
    walk.run()
    handed_on = {
        switch.output(side): switch.inputs[0]
        for switch, side in sides.items()
        if switch not in walk.dead
    }
    for node in graph:
        if node.op == _MERGE and node not in walk.dead and node.name not in fed:
            alive = [tensor for tensor in node.inputs if tensor not in walk.tensors]
            if len(alive) == 1 < len(node.inputs) and op_types.joins_branches(node):
                handed_on[node.output()] = alive[0]
    never = tuple(node for node in graph if node in walk.dead)
    return DeadBranches(never, frozenset(walk.tensors), handed_on)


class _Walk:
    """Follows what is dead from tensor to reader, and from node to who waits for it."""

    def __init__(self, fed: Collection[str]) -> None:
        self.dead: set[Node] = set()
        self.tensors: set[Tensor] = set()
        self._fed = fed
        self._pending: list[Node] = []

    def bury(self, tensor: Tensor) -> None:
        """A tensor that nobody makes."""
        self.tensors.add(tensor)
        for reader, _ in tensor.uses:
            if _is_dead(reader, self.tensors):
                self._reach(reader)

    def run(self) -> None:
        """Until nothing more is dead."""
        while self._pending:
            node = self._pending.pop()
            for output in node.outputs:
                self.bury(output)
            for waiting in node.control_users:
                if waiting.op not in op_types.MERGES:
                    self._reach(waiting)

    def _reach(self, node: Node) -> None:
        if node not in self.dead and node.name not in self._fed:
            self.dead.add(node)
            self._pending.append(node)


def _is_dead(node: Node, dead: Collection[Tensor]) -> bool:
    if node.op not in op_types.MERGES:
        return True
    return all(
        tensor in dead or tensor.node.op in op_types.NEXT_ITERATIONS for tensor in node.inputs
    )
