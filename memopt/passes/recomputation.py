"""Recomputation: compute cheap forward results again for the gradients, instead of keeping them.

Grappler's `RecomputationRewritingPass` (tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.accumulation.sum_orders import SumOrders
from memopt.costs.op_cost import is_cheap
from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.backward import find_backward_nodes
from memopt.graph.copy_names import COPY_PREFIX, TRIGGER_PREFIX
from memopt.graph.reference_reads import ReferenceReads
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import FunctionLibrary, Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter

HINT_ATTRIBUTE = "_recompute_hint"

CHEAP_OPS = frozenset(
    "Add AddN BiasAdd Cast Fill FloorDiv FloorMod FusedBatchNorm LeakyRelu Mul Neg "
    "RealDiv Reciprocal Relu Relu6 Reshape Rsqrt Sigmoid Sqrt Square "
    "SquaredDifference Sub Tile Transpose".split()
)
"""Grappler's `GetCheapToRecomputeOps` in TensorFlow 2.21."""

AUTO_SCOPE = "auto"
RULES = ("list", "cost")


@dataclass(frozen=True)
class Recomputation(Pass):
    """Give gradient operations (the targets) copies of the cheap operations that feed them.

    1. Recomputable is a node that is no target, not fed, and whose op is in Grappler's list of
       cheap ops or that carries the attribute `_recompute_hint`.
    2. A candidate is recomputable, feeds a target and reads from none. Candidates that are
       connected through recomputable nodes form one group.
    3. Of a group, the nodes that lead to a target through the group (its sources) are copied as
       `Recomputed/<name>`, and the targets read the copies from output 0.
    4. Every copy waits for a NoOp, `RecomputeTrigger/<name>`: the triggers are chained in the
       order in which the copies are needed, and each waits for those inputs of the targets that
       are certain to be there before its copy can be needed.

    Refused beyond Grappler, with a reason in the report, because the result could change:
    operations with state, even with a hint; a read of a v1 reference variable that an update may
    overtake; a copy that feeds a Merge, whose trigger could be dead; copies of a sum, or of
    what reads its inputs, if its order of addition depends on timing. A sum that would be added in
    another order is split. Repeated control inputs of a
    trigger are dropped. The names, devices and results of all original nodes stay as they are.
    """

    name: ClassVar[str] = "recomputation"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.ATTRIBUTES, Touches.OPS}
    )

    target_scope: str = "gradients/"
    """Targets are the nodes whose name starts with this or contains it after a slash; "auto"
    finds the backward part by its structure."""
    hints_only: bool = False
    """Recompute only nodes that carry `_recompute_hint` (Grappler's level MANUAL)."""
    rule: str = "list"
    """How cheap ops are told: Grappler's "list", or by "cost" (arithmetic per byte produced)."""
    all_ports: bool = False
    """Redirect targets on every output port, where Grappler redirects only output 0."""
    same_sums: bool = True
    """Split sums that would be added in another order, where Grappler changes their last bit."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise OptionsError(f"recomputation: rule is one of {RULES}, not {self.rule!r}")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find all groups, then recompute one after the other."""
        graph = rewriter.graph
        numbering = Numbering.of(graph)
        for node in numbering.nodes:
            if HINT_ATTRIBUTE in node.attributes and op_types.is_stateful(node, graph.library):
                rewriter.decline(node, f"hinted, but running {node.op} twice can change results")
        groups = self.groups(graph, numbering, context)
        if not groups:
            return
        reads = ReferenceReads(graph, numbering, context.fetched)
        sum_orders = SumOrders(graph, context, is_kept=self.same_sums)
        for group in groups:
            reason = _why_not(graph, reads, numbering, group, sum_orders)
            if reason is not None:
                rewriter.decline(numbering.nodes[group.sources[-1]], reason)
                continue
            GroupRewrite(rewriter, numbering, group, all_ports=self.all_ports).apply()
            for place in group.sources:
                name = numbering.nodes[place].name
                context.properties.copy(COPY_PREFIX + name, name)
        sum_orders.keep(rewriter)

    def groups(self, graph: Graph, numbering: Numbering, context: Context) -> list[Group]:
        """What would be recomputed together, in the pass's order; nothing is changed."""
        is_target = self._targets(graph, numbering)
        is_recomputable = [
            not target and self._is_recomputable(node, graph.library, context)
            for node, target in zip(numbering.nodes, is_target, strict=True)
        ]
        return find_groups(numbering, is_target, is_recomputable)

    def _targets(self, graph: Graph, numbering: Numbering) -> list[bool]:
        if self.target_scope == AUTO_SCOPE:
            backward = find_backward_nodes(graph)
            return [node in backward for node in numbering.nodes]
        scope, inner = self.target_scope, f"/{self.target_scope}"
        return [node.name.startswith(scope) or inner in node.name for node in numbering.nodes]

    def _is_recomputable(
        self, node: Node, library: FunctionLibrary | None, context: Context
    ) -> bool:
        if node.name in context.fed:
            return False
        if HINT_ATTRIBUTE in node.attributes:
            return not op_types.is_stateful(node, library)
        if self.hints_only:
            return False
        if self.rule == "list":
            return node.op in CHEAP_OPS
        return is_cheap(node, context.properties, library)


class Group(NamedTuple):
    """Operations that are recomputed together, and the targets that read the copies.

    Attributes:
        sources: Positions of the nodes to copy, producers first.
        targets: Positions of the targets, producers first.
    """

    sources: list[int]
    targets: list[int]


def find_groups(
    numbering: Numbering, is_target: list[bool], is_recomputable: list[bool]
) -> list[Group]:
    """The groups in topological order of their first candidates (`GetOpGroupsToRecompute`)."""
    visited = [False] * len(numbering.nodes)
    groups: list[Group] = []
    for place in numbering.order:
        if visited[place] or not is_recomputable[place]:
            continue
        if not any(is_target[user] for user in numbering.users[place]):
            continue
        if any(is_target[producer] for producer in numbering.producers[place]):
            continue
        members = _connected(numbering, place, is_recomputable, visited)
        groups.append(_prune(numbering, members, is_target))
    return groups


def _connected(
    numbering: Numbering, start: int, is_recomputable: list[bool], visited: list[bool]
) -> set[int]:
    """Everything connected to a candidate through recomputable nodes, in either direction."""
    members = {start}
    pending = [start]
    while pending:
        place = pending.pop()
        visited[place] = True
        for near in (*numbering.producers[place], *numbering.users[place]):
            if is_recomputable[near] and near not in members:
                members.add(near)
                pending.append(near)
    return members


def _prune(numbering: Numbering, members: set[int], is_target: list[bool]) -> Group:
    """Keep of a group what leads to a target."""
    targets = {user for place in members for user in numbering.users[place] if is_target[user]}
    pending = [place for place in members if not targets.isdisjoint(numbering.users[place])]
    sources = set(pending)
    while pending:
        for producer in numbering.producers[pending.pop()]:
            if producer in members and producer not in sources:
                sources.add(producer)
                pending.append(producer)
    component = numbering.component
    return Group(
        sorted(sources, key=lambda place: -component[place]),
        sorted(targets, key=lambda place: -component[place]),
    )


def _why_not(
    graph: Graph,
    reads: ReferenceReads,
    numbering: Numbering,
    group: Group,
    sum_orders: SumOrders,
) -> str | None:
    """Why a group must be left alone, or `None`."""
    for place in group.targets:
        if numbering.nodes[place].op in op_types.MERGES:
            return f"feeds {numbering.nodes[place].name!r}, a Merge, whose other branch may be dead"
    for place in group.sources:
        for prefix in (COPY_PREFIX, TRIGGER_PREFIX):
            if prefix + numbering.nodes[place].name in graph:
                return f"the name {prefix + numbering.nodes[place].name!r} is taken"
        disturbs = sum_orders.why_not_again(numbering.nodes[place])
        if disturbs is not None:
            return disturbs
    return reads.overtaken(group.sources, group.targets)


class GroupRewrite:
    """The rewrite of one group (`RecomputeSubgraph`)."""

    def __init__(
        self, rewriter: Rewriter, numbering: Numbering, group: Group, *, all_ports: bool
    ) -> None:
        nodes = numbering.nodes
        self._rewriter = rewriter
        self._numbering = numbering
        self._group = group
        self._all_ports = all_ports
        self._sources = frozenset(nodes[place] for place in group.sources)
        self._targets = [nodes[place] for place in group.targets]
        self._copies: dict[Node, Node] = {}

    def apply(self) -> None:
        """Make the triggers and copies, and let the targets read the copies."""
        group, nodes = self._group, self._numbering.nodes
        reason = (
            f"recomputed instead of kept: {len(group.sources)} cheap operations; "
            f"gradient operations that read them: {len(group.targets)}"
        )
        releases, holds = self._effect()
        with self._rewriter.edit(reason, releases=releases, holds=holds):
            triggers = self._add_triggers()
            for place in group.sources:
                node = nodes[place]
                self._copies[node] = self._rewriter.add_node(
                    COPY_PREFIX + node.name,
                    node.op,
                    inputs=[self._redirect(tensor) for tensor in node.inputs],
                    control_inputs=(*node.control_inputs, triggers[place]),
                    device=node.device,
                    attributes=node.attributes,
                )
            for target in self._targets:
                self._rewriter.set_inputs(target, [self._redirect(t) for t in target.inputs])

    def _redirect(self, tensor: Tensor) -> Tensor:
        """The copy's tensor where there is a copy and the port is redirected."""
        copy = self._copies.get(tensor.node)
        if copy is None or (tensor.port and not self._all_ports):
            return tensor
        return copy.output(tensor.port)

    def _add_triggers(self) -> dict[int, Node]:
        """Chain a trigger per source (`AddRecomputeControlDependencyNodes`)."""
        nodes, component = self._numbering.nodes, self._numbering.component
        earliest_use = self._earliest_uses()
        by_name = sorted(self._group.sources, key=lambda place: nodes[place].name, reverse=True)
        ordered = sorted(by_name, key=lambda place: -earliest_use[place])
        waits = self._target_inputs()
        triggers: dict[int, Node] = {}
        previous: list[Node] = []
        taken = 0
        for place in ordered:
            start = taken
            while taken < len(waits) and component[waits[taken]] > earliest_use[place]:
                taken += 1
            trigger = self._rewriter.add_node(
                TRIGGER_PREFIX + nodes[place].name,
                "NoOp",
                control_inputs=[*previous, *(nodes[wait] for wait in waits[start:taken])],
                device=nodes[place].device,
            )
            triggers[place] = trigger
            previous = [trigger]
        return triggers

    def _earliest_uses(self) -> dict[int, int]:
        """For each source the component of its earliest user (`GetMaxDownstreamComponents`)."""
        component, users = self._numbering.component, self._numbering.users
        targets = frozenset(self._group.targets)
        earliest: dict[int, int] = {}
        for place in reversed(self._group.sources):
            uses = [component[user] for user in users[place] if user in targets]
            uses += [earliest[user] for user in users[place] if user in earliest]
            earliest[place] = max(uses)
        return earliest

    def _target_inputs(self) -> list[int]:
        """What else the targets read, earliest first; inputs redirected before do not count."""
        component, place_of = self._numbering.component, self._numbering.place
        waits: list[int] = []
        for target in self._targets:
            for node in (*(tensor.node for tensor in target.inputs), *target.control_inputs):
                if node is target or node in self._sources:
                    continue
                source = place_of(node)
                if source >= 0:
                    waits.append(source)
        return sorted(waits, key=lambda wait: -component[wait])

    def _effect(self) -> tuple[list[Tensor], list[Tensor]]:
        """The tensors that targets read today and will not, and those that copies read instead."""
        sources, nodes = self._sources, self._numbering.nodes
        read = {tensor: None for target in self._targets for tensor in target.inputs}
        releases = [
            tensor
            for tensor in read
            if tensor.node in sources and (self._all_ports or not tensor.port)
        ]
        outside = {
            tensor: None
            for place in self._group.sources
            for tensor in nodes[place].inputs
            if tensor.node not in sources and tensor not in read
        }
        return releases, list(outside)
