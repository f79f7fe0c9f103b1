"""AddN scheduling: sums are accumulated as their inputs arrive, instead of keeping all of them.

Grappler's `SchedulingPass` (tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.accumulation.accumulators import (
    FaninOrder,
    Start,
    accumulate,
    accumulate_in_order,
    add_running_sums,
    variable_names,
)
from memopt.accumulation.addition_order import AdditionOrders
from memopt.accumulation.early_reads import find_missed_update
from memopt.accumulation.running_sums import (
    find_fixed_use,
    find_taken_name,
    find_terms,
    is_divisible,
)
from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.kernels import TypedOp, has_kernels
from memopt.graph.paths import find_earlier
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.simulation.placer import VirtualPlacer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Declined, Edit, Rewriter
    from memopt.simulation.simulated_memory import SimulatedMemory

ENDS_ITERATIONS = "its temporary variable exists already, at which Grappler ends its iterations"

_PRESSURE = 0.8
"""The share of a device's memory above which Grappler sees it as full."""

_GRAPPLER_TYPES = frozenset({1, 2, 9, 19})
"""Float, double, int64 and half."""

_VARIABLE_OPS = (
    TypedOp("TemporaryVariable", "dtype"),
    *(TypedOp(op, "T") for op in ("ZerosLike", "Assign", "AssignAdd", "DestroyTemporaryVariable")),
)


@dataclass(frozen=True)
class AddnScheduling(Pass):
    """Add the inputs of large sums one by one as they arrive, instead of keeping them all.

    1. Considered is an AddN or AccumulateNV2 with more than 2 inputs that reads a tensor which is
       live at the simulated peak of a device, if that peak is above 80 % of the device's memory,
       and the tensor's producer and the sum have the same device string.
    2. The sum's name is that of a DestroyTemporaryVariable then. New are a TemporaryVariable
       `<name>/tmp_var`, zeros that are assigned to it when the first input is there, and an
       AssignAdd for each input. Nothing but their inputs orders the additions.
    3. The first input is the one that a depth-first search finishes first. Control inputs that it
       finishes before are those of the variable, the others those of the sum.

    Refused as by Grappler: a sum whose shape is not known without what is fed; types other than
    half, float, double and int64. If the node `<name>/tmp_var` exists, the pass stops there, and
    so do Grappler's iterations.

    Refused beyond Grappler, because the result could change or the step fail: a sum in the body of
    a function, whose variable another call of the step could have at the same time; an input that
    is a v1 reference variable and may be updated before the sum is complete; a first input of which
    a Switch makes one branch only; a name that is taken. Also sums that are fed, and kept ones.
    """

    name: ClassVar[str] = "addn-scheduling"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    trust_feeds: bool = False
    """Take the shapes of what is fed as they are declared, where Grappler takes them as unknown."""
    all_types: bool = False
    """Accumulate every type for which TensorFlow has the kernels on the sum's device."""
    ordered: bool = False
    """Add one input after another, in the order in which AddN does: the sum is the same in every
    run, and for up to 9 inputs it has the bits of AddN."""
    running_sums: bool = False
    """Instead of a variable, use AddNs of two inputs in a row: any type, any shape, in functions as
    well, always with the bits of AddN; sums whose order depends on timing are left alone."""

    def __post_init__(self) -> None:
        if self.running_sums and self.ordered:
            raise OptionsError("addn-scheduling: running sums are always ordered; choose one")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find all sums under pressure, look at each, then rewrite those that can be."""
        simulated = context.simulated
        if simulated is None:
            return
        graph = rewriter.graph
        candidates = find_candidates(graph, simulated)
        if not candidates:
            return
        checks = _Checks(self, graph, Numbering.of(graph), context, simulated)
        plans: list[_Plan] = []
        for node in candidates:
            plan = checks.plan(node)
            if isinstance(plan, _Plan):
                plans.append(plan)
                continue
            rewriter.decline(node, plan)
            if plan == ENDS_ITERATIONS:
                break
        for plan in plans:
            self._rewrite(rewriter, context, plan)

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        """Whether Grappler would go on: if sums were rewritten, unless it met what ends it."""
        ended = any(one.reason == ENDS_ITERATIONS for one in declined)
        return bool(edits) and not ended

    def _rewrite(self, rewriter: Rewriter, context: Context, plan: _Plan) -> None:
        node = plan.node
        known = context.properties.outputs(node.name)
        where = "in running sums" if self.running_sums else "in a temporary variable"
        reason = f"{len(node.inputs)} inputs added {where} as they arrive"
        with rewriter.edit(reason, releases=plan.releases, holds=[node.output()]):
            if self.running_sums:
                added = add_running_sums(rewriter, node, plan.terms)
            elif plan.start is None:
                added = accumulate_in_order(rewriter, node, plan.terms, plan.shape)
            else:
                added = accumulate(rewriter, node, plan.start, plan.shape)
        for new in added:
            context.properties.add(new.name, known)


class _Plan(NamedTuple):
    """A sum that can be rewritten.

    Attributes:
        node: The sum.
        terms: Its inputs in the order in which AddN adds them, or as they are if that is not known.
        start: Where Grappler's form starts; `None` for the others.
        shape: The dimensions of the variable.
        releases: The inputs that need not be kept any longer.
    """

    node: Node
    terms: tuple[Tensor, ...]
    start: Start | None
    shape: tuple[int, ...]
    releases: tuple[Tensor, ...]


class _Checks:
    """Tells which sums can be rewritten; everything is looked at before the first edit."""

    def __init__(
        self,
        options: AddnScheduling,
        graph: Graph,
        numbering: Numbering,
        context: Context,
        simulated: SimulatedMemory,
    ) -> None:
        self._options = options
        self._graph = graph
        self._numbering = numbering
        self._context = context
        self._orders = AdditionOrders(graph, context.fetched, context.kept)
        self._simulated = simulated
        self._placer = VirtualPlacer(simulated.cluster)
        self._fanin_order = FaninOrder(numbering)
        used = context.fed | context.fetched
        self._is_body = any(graph[name].op in (ARGUMENT, RESULT) for name in used)

    def plan(self, node: Node) -> _Plan | str:
        """How to rewrite a sum, or why not."""
        fixed = find_fixed_use(node, self._context)
        if fixed is not None:
            return fixed
        plan = self._sums_plan(node) if self._options.running_sums else self._variable_plan(node)
        if isinstance(plan, str):
            return plan
        missed = find_missed_update(
            self._graph, self._numbering, self._simulated.simulation().ran, node
        )
        return plan if missed is None else missed

    def _sums_plan(self, node: Node) -> _Plan | str:
        terms = find_terms(self._graph, self._orders, node, self._context.properties)
        if isinstance(terms, str):
            return terms
        releases = self._released(node)
        if not releases:
            return "all of its inputs are kept for others"
        return _Plan(node, terms, None, (), releases)

    def _variable_plan(self, node: Node) -> _Plan | str:
        ordered = self._options.ordered
        if self._is_body:
            return "in a function, another call could use its variable at the same time"
        shape = self._known_shape(node)
        if shape is None:
            fed = "" if self._options.trust_feeds else " without what is fed"
            return f"its shape is not known{fed}"
        refusal = self._no_variable(node, variable_names(node, ordered=ordered))
        if refusal is not None:
            return refusal
        terms = self._orders.order(node) if ordered else None
        start = None if ordered else self._fanin_order.start(node)
        plan = _Plan(node, terms or node.inputs, start, shape, self._released(node))
        first = plan.terms[0] if start is None else start.first
        if first.node.op in op_types.SWITCHES:
            return f"only one branch of the Switch {first.node.name!r} would use the variable"
        return plan

    def _no_variable(self, node: Node, names: list[str]) -> str | None:
        """Why a sum cannot have a variable, by its type and the names of the new nodes."""
        dtype = node.attributes["T"].type
        if dtype not in _GRAPPLER_TYPES and not self._has_kernels(node, dtype):
            return "its type is none that Grappler accumulates"
        return ENDS_ITERATIONS if names[0] in self._graph else find_taken_name(self._graph, names)

    def _known_shape(self, node: Node) -> tuple[int, ...] | None:
        properties = self._context.properties.certain
        if not self._options.trust_feeds:
            properties = properties.without_feeds()
        outputs = properties.outputs(node.name)
        shape = outputs[0].shape if outputs else None
        return None if shape is None or -1 in shape else shape

    def _has_kernels(self, node: Node, dtype: int) -> bool:
        if not self._options.all_types:
            return False
        device = self._simulated.cluster[self._placer.place(node.device)]
        return has_kernels(_VARIABLE_OPS, dtype, device.type)

    def _released(self, node: Node) -> tuple[Tensor, ...]:
        """The inputs whose other readers have all run before the sum, but for the last input."""
        place, component = self._numbering.place, self._numbering.component
        inputs = dict.fromkeys(node.inputs)
        readers = [
            reader for tensor in inputs for reader in self._readers(tensor) if reader is not node
        ]
        done = find_earlier(self._numbering, node, readers) | {node}
        last = min(inputs, key=lambda tensor: component[place(tensor.node)])
        return tuple(
            tensor
            for tensor in inputs
            if tensor is not last
            and tensor.node.name not in self._context.fetched
            and done.issuperset(self._readers(tensor))
        )

    def _readers(self, tensor: Tensor) -> list[Node]:
        may_run = self._orders.running.may
        return [reader for reader, _ in tensor.uses if may_run(reader)]


def find_candidates(graph: Graph, simulated: SimulatedMemory) -> list[Node]:
    """The sums that read what is live at the peak of a device that is full, in graph order."""
    found: set[Node] = set()
    for device in simulated.cluster:
        if device.memory_bytes <= 0:
            continue
        peak = simulated.memory().peak(device.name)
        if peak.used_bytes <= device.memory_bytes * _PRESSURE:
            continue
        for live in peak.live:
            producer = graph.find(live.node)
            if producer is not None:
                found.update(_sums_of(producer, live.port))
    return sorted(found, key=lambda node: node.index)


def _sums_of(producer: Node, port: int) -> Iterator[Node]:
    """The sums that read a tensor on the device of its producer."""
    for tensor in producer.outputs:
        if tensor.port != port:
            continue
        for user, _ in tensor.uses:
            if is_divisible(user) and user.device == producer.device:
                yield user
