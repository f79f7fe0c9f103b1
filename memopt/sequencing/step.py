"""Step: a graph in numbers with what runs for its caller, from which sequences are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import simulate
from memopt.cluster import ANY_CPU
from memopt.costs.kernel_costs import KernelCosts
from memopt.graph import op_types
from memopt.graph.functiondef import RESULT
from memopt.graph.running import roots_of
from memopt.graph.traversal import Numbering
from memopt.sequencing.branches import gather
from memopt.sequencing.devices import Devices
from memopt.sequencing.enforcement import find_chains
from memopt.sequencing.free_running import free_running_sequence, free_running_side_by_side
from memopt.sequencing.fusions import keep_adjacent
from memopt.sequencing.orders import lowest, make_sequence, make_sequences
from memopt.sequencing.precedence import Precedence
from memopt.sequencing.quickening import Quick, Quickening
from memopt.sequencing.threads import run_on_threads, simulate_threads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline
    from memopt.buffers.kernel_call import Runtime
    from memopt.context import Context
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Graph
    from memopt.sequencing.threads import ThreadedRun
    from memopt.sequencing.windows import HighestUsage
    from memopt.shapes.properties import Properties


@dataclass(frozen=True)
class Step:
    """One run of a graph: its buffers, what runs, and what must come before what.

    Attributes:
        graph: The graph.
        buffer_graph: The same in numbers.
        roots: Names of the nodes because of which others run; all nodes run if there are none.
        precedence: What runs, and what must come before what.
        properties: The sizes of its tensors.
        costs: How long nodes run, which counts where several run at once.
        devices: Where the nodes run side by side; `None` for one device.
    """

    graph: Graph
    buffer_graph: BufferGraph
    roots: frozenset[str]
    precedence: Precedence
    properties: Properties
    costs: CostModel
    devices: Devices | None = None

    @classmethod
    def in_context(cls, graph: Graph, context: Context) -> Step:
        """The step of a graph that is not empty, as a pass has it.

        While the graph stays as it is, the same: unless it has functions, which may be rewritten.
        """
        steps = graph.derived(_no_steps)
        for other, step in steps:
            if _sees_the_same(other, context):
                return step
        step = cls.of(
            graph,
            context.properties,
            fed=context.fed,
            fetched=context.fetched,
            kept=context.kept,
            runtime=context.runtime,
            costs=context.costs,
            in_function=context.in_function,
        )
        if graph.library is None or not graph.library.names():
            steps.append((context, step))
        return step

    @classmethod
    def of(  # noqa: PLR0913 - what is known of a step, by keyword
        cls,
        graph: Graph,
        properties: Properties,
        *,
        fed: Collection[str] = (),
        fetched: Collection[str] = (),
        kept: Collection[str] = (),
        runtime: Runtime | None = None,
        costs: CostModel | None = None,
        in_function: bool = False,
    ) -> Step:
        """The step of a graph, or of a function's body.

        Args:
            graph: The graph; not empty.
            properties: The sizes of its tensors.
            fed: Names of the nodes whose output the caller gives.
            fetched: Names of the nodes that the caller asks for.
            kept: Names of further nodes; in a function's body they run for their effects.
            runtime: What kernels run on; this machine, without oneDNN, if not given.
            costs: How long nodes run; by the analytical model if not given.
            in_function: Whether it runs as a function as it is: see `GrapplerItem`.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph.
        """
        roots = roots_of(graph, fetched, kept, in_function=in_function)
        buffer_graph = buffer_graph_of(
            graph,
            properties,
            fed=[f"{name}:0" for name in sorted(fed)],
            fetched=list(_fetched_tensors(graph, properties, fetched)),
            roots=roots,
            runtime=runtime,
        )
        precedence = Precedence.of(graph, buffer_graph, roots)
        devices = Devices.of(buffer_graph.nodes)
        model = costs or KernelCosts()
        return cls(graph, buffer_graph, roots, precedence, properties, model, devices)

    @cached_property
    def times_ns(self) -> tuple[int, ...]:
        """By node how long it runs, at least 1."""
        costs = (
            self.costs.cost(node, ANY_CPU, self.properties) for node in self.buffer_graph.nodes
        )
        return tuple(max(1, cost.execution_ns) for cost in costs)

    def sequence(self, sequencer: str) -> list[int]:
        """The nodes that run, as numbers, in the order that a sequencer gives.

        What oneDNN may fuse stands side by side. Of several sequencers the sequence with the lowest
        peak is taken as it then is, the first of equals.

        Raises:
            OptionsError: There is no such sequencer.
        """
        return make_sequence(sequencer, self.graph, self.buffer_graph, self.precedence, self.settle)

    def sequences(self, sequencer: str) -> list[list[int]]:
        """The sequences among which that of a sequencer is chosen, oneDNN's pairs side by side.

        Raises:
            OptionsError: There is no such sequencer.
        """
        found = make_sequences(sequencer, self.graph, self.buffer_graph, self.precedence)
        return [self.settle(sequence) for sequence in found]

    def quickest(
        self, found: Sequence[MemoryTimeline], limits_bytes: Sequence[int], threads: int
    ) -> Quick:
        """Of sequences that with which threads are quickest: see `Quickening`.

        With one thread, or on several devices, which run side by side anyway, it is that with the
        lowest peak.
        """
        if threads <= 1 or self.devices is not None:
            return Quick(min(found, key=lambda each: each.peak_bytes), limits_bytes[0])
        quickening = Quickening(self.precedence, self.times_ns, threads, self.settle)
        return quickening.quickest(found, limits_bytes)

    def settle(self, sequence: Sequence[int]) -> list[int]:
        """A sequence as it runs: on several devices side by side, each in its own order.

        Branches are in one piece, and what oneDNN may fuse stands side by side, early or late:
        where it needs less. Collectives that meet begin together.
        """
        settled = self._with_pairs(self._with_branches(sequence))
        if self.devices is None:
            return settled
        precedence = self.precedence
        return self.devices.side_by_side(
            precedence.producers, precedence.meet(settled), self.times_ns, precedence.groups
        )

    def _with_branches(self, sequence: Sequence[int]) -> list[int]:
        gathered = gather(self.buffer_graph.nodes, self.precedence, sequence)
        if gathered.late == list(sequence):
            return gathered.late
        return lowest(self.buffer_graph, gathered)

    def _with_pairs(self, sequence: Sequence[int]) -> list[int]:
        pairs = self.buffer_graph.fused_pairs
        early = keep_adjacent(self.precedence, sequence, pairs)[0]
        if early == list(sequence):
            return early
        delayed = self.precedence.delayed(sequence, pairs.items())
        late = keep_adjacent(self.precedence, delayed, pairs)[0]
        return lowest(self.buffer_graph, [early, late])

    def run(self, threads: int = 1) -> MemoryTimeline:
        """The memory of the step as TensorFlow will run it.

        Where several operations may run at once, and edges hold the graph to an order, it is what
        can be in use at most while each operation is the first that has not ended.

        Args:
            threads: How many operations can run at once.
        """
        ordered = self._in_windows(threads)
        if ordered is None:
            return self._without_windows(threads)
        return _raised(ordered, ordered.highest.first_bytes)

    def usage_while_running(self, threads: int = 1) -> MemoryTimeline:
        """The same, but at each node stands the most that may be in use while that node runs.

        Where nothing tells what runs beside it, that is the peak of the step.

        Args:
            threads: How many operations can run at once.
        """
        ordered = self._in_windows(threads)
        if ordered is not None:
            return _raised(ordered, ordered.highest.running_bytes)
        timeline = self._without_windows(threads)
        if threads <= 1 or (self.devices is not None and self._order):
            return timeline
        return replace(timeline, usage_bytes=[timeline.peak_bytes] * len(timeline.sequence))

    @property
    def _order(self) -> list[int]:
        """The order that edges hold the nodes to; empty if none is known."""
        numbering = Numbering.of(self.graph)
        return [numbering.place(node) for node in self.graph.order]

    def _without_windows(self, threads: int) -> MemoryTimeline:
        """The memory of the step where no order leaves room for several operations at once."""
        order = self._order
        if self.devices is None or not order:
            return self.run_freely(threads)
        together = self.devices.side_by_side(self.buffer_graph.producers, order, self.times_ns)
        return simulate(self.buffer_graph, together)

    def _in_windows(self, threads: int) -> _InWindows | None:
        """The step in an order that edges hold it to, on threads; `None` if they do not."""
        order = self._order
        if threads <= 1 or self.devices is not None or not order:
            return None
        # Late, because of numpy: what needs no windows starts sooner.
        from memopt.sequencing.windows import highest_usage

        timeline = simulate(self.buffer_graph, order)
        chains = find_chains(self.buffer_graph, order)
        if len(chains) != 1:
            return None
        chain = chains[0]
        highest = highest_usage(timeline, chain.nodes, threads, chain.branches)
        return None if highest is None else _InWindows(timeline, chain.nodes, highest)

    def run_freely(self, threads: int = 1) -> MemoryTimeline:
        """The memory of the step as TensorFlow would run it if nobody ordered it.

        With one thread (for each device) that is what happens if the order is enforced; of others
        it is what happens but for the order of edges that differs from process to process and, with
        several threads, for how long operations really take.

        Args:
            threads: How many operations can run at once.
        """
        if threads > 1:
            return simulate_threads(self.buffer_graph, self.run_on_threads(threads))
        if self.devices is None:
            sequence = free_running_sequence(self.buffer_graph, self._by_edges)
        else:
            sequence = free_running_side_by_side(
                self.buffer_graph, self._by_edges, self.devices, self.times_ns
            )
        return simulate(self.buffer_graph, sequence)

    def run_on_threads(self, threads: int) -> ThreadedRun:
        """When each node would run if nobody ordered the step.

        Args:
            threads: How many operations can run at once.
        """
        return run_on_threads(self.buffer_graph, self._by_edges, self.times_ns, threads)

    @property
    def _by_edges(self) -> Precedence:
        """What edges alone say of who comes before whom."""
        runs = Numbering.of(self.graph).running_for(self.roots)
        running = [place for place, it_runs in enumerate(runs) if it_runs]
        return Precedence(self.buffer_graph.producers, running)


class _InWindows(NamedTuple):
    """A step that edges hold to an order, in which operations may run side by side.

    Attributes:
        timeline: Its memory, one operation at a time.
        chain: The nodes that are ordered.
        highest: What is in use at most while they run.
    """

    timeline: MemoryTimeline
    chain: Sequence[int]
    highest: HighestUsage


def _raised(ordered: _InWindows, usage_bytes: Sequence[int]) -> MemoryTimeline:
    """A timeline with what may be in use while operations run side by side."""
    timeline, chain, _ = ordered
    position = {node: number for number, node in enumerate(timeline.sequence)}
    raised = list(timeline.usage_bytes)
    for node, usage in zip(chain, usage_bytes, strict=True):
        raised[position[node]] = usage
    peak_bytes = max(raised)
    return replace(
        timeline,
        usage_bytes=raised,
        peak_bytes=peak_bytes,
        peak_position=raised.index(peak_bytes),
    )


def _fetched_tensors(
    graph: Graph, properties: Properties, fetched: Collection[str]
) -> Iterator[str]:
    """The tensors that are handed to the caller.

    A node with an effect is asked for because of it: nobody gets what it gives besides.
    """
    for name in sorted(fetched):
        node = graph.find(name)
        if node is None:
            continue
        if node.op == RESULT:
            yield node.inputs[0].name
        elif not op_types.is_stateful(node, graph.library):
            yield from (f"{name}:{port}" for port in range(len(properties.outputs(name))))


def _no_steps(_: Graph) -> list[tuple[Context, Step]]:
    return []


def _sees_the_same(first: Context, second: Context) -> bool:
    """Whether a step is the same in both."""
    if first.properties is not second.properties or first.costs is not second.costs:
        return False
    return all(
        getattr(first, name) == getattr(second, name)
        for name in ("fed", "fetched", "kept", "runtime", "in_function")
    )
