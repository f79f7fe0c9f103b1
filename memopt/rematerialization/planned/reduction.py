"""A network as a cost graph: what holds next to nothing is folded into what is around it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from memopt.buffers.buffer_graph import simulate
from memopt.planning.cost_graph import CostGraph, Operation
from memopt.planning.initial_plans import Steps
from memopt.planning.problem import COPIES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.storage.forms import Form

_NEGLECTED = 200
"""All folded buffers together hold at most this fraction of the step's room at any time."""
_FIRST_SIZE = 100
"""The largest that one of them can be, as a fraction of that."""
_WIDEST = 4
"""Of operations that a folded node may have to come after; from there on it is no longer folded."""
_LONGEST = 3
"""Times as many computations as operations are as much as the planner has room for."""
START = -1


@dataclass(frozen=True)
class Reduction:
    """A cost graph and what its operations stand for.

    Attributes:
        network: What it was made from.
        cost_graph: The operations that hold something, in the network's order.
        nodes: By operation: the node, or `START` for the one that stands for what is there before
            the step and is freed during it.
        operation: By node: its operation, -1 if it is folded.
    """

    network: Network
    cost_graph: CostGraph
    nodes: tuple[int, ...]
    operation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        network: Network,
        forms: Mapping[int, Sequence[Form]],
        room_bytes: int | None = None,
    ) -> Reduction:
        """Fold a network.

        Views are folded, and what neither makes nor reads anything but the smallest buffers: they
        run where they are needed, and only tell what must come before what.

        Args:
            network: The sequence with its buffers.
            forms: By node: other forms of its result; those on the host become swaps.
            room_bytes: What the step is to need on top of what is held before it, by which is told
                what is small; what it needs in its sequence if not given.
        """
        return network.derived(_reduce, forms, room_bytes)

    def steps(self, done: Rematerialized) -> Steps | None:
        """A sequence with copies as the planner has it.

        `None` if the planner has no such sequence: something runs too often, or again though it is
        one with what may not, or before what it needs together with what is folded into it, or is
        kept in a form that is not on the host.
        """
        table = done.instructions
        found = [(0, 0)] if self.nodes[:1] == (START,) else []
        seen: set[int] = set()
        for instruction in done.sequence:
            conversion = table.conversions.get(instruction)
            if conversion is not None and not conversion.form.stays:
                return None
            op = self.operation[table.origin[instruction]]
            is_stored = conversion is not None and not conversion.restores
            # A view that runs again does nothing that counts.
            if op < 0 or is_stored or (op in seen and table.is_view(instruction)):
                continue
            seen.add(op)
            found.append((op, int(conversion is not None)))
        steps = Steps(*np.array(found, np.int64).reshape(-1, 2).T)
        counts = np.bincount(steps.operations, minlength=len(self.nodes))
        if len(found) > _LONGEST * len(self.nodes) or counts.max(initial=0) > COPIES:
            return None
        computed = np.bincount(steps.operations[steps.swapped == 0], minlength=len(self.nodes))
        if np.any((computed > 1) & ~self.cost_graph.recomputable):
            return None
        return steps if counts.all() and self._is_in_order(steps) else None

    def _is_in_order(self, steps: Steps) -> bool:
        """Whether everything in a sequence of all operations comes when it may."""
        graph = self.cost_graph
        _, first = np.unique(steps.operations, return_index=True)
        _, from_end = np.unique(steps.operations[::-1], return_index=True)
        last = len(steps.operations) - 1 - from_end
        makers = np.searchsorted(graph.output_start, graph.read_values, "right") - 1
        is_early = first[makers] > first[graph.read_ops]
        comes_early = first[graph.after[:, 0]] > first[graph.after[:, 1]]
        comes_late = last[graph.until[:, 0]] > first[graph.until[:, 1]]
        return not (is_early.any() or comes_early.any() or comes_late.any())


def room_within(network: Network, limit_bytes: int) -> int:
    """What a step may need within a limit on top of what is held before it, or at the least does.

    Args:
        network: The sequence with its buffers.
        limit_bytes: What may be in use, what was held before the step included.
    """
    return max(limit_bytes, network.floor_bytes) - network.buffer_graph.held_bytes


def _reduce(
    network: Network, forms: Mapping[int, Sequence[Form]], room_bytes: int | None
) -> Reduction:
    return _Reducing(network, forms, room_bytes).reduce()


class _Reducing:
    def __init__(
        self, network: Network, forms: Mapping[int, Sequence[Form]], room_bytes: int | None
    ) -> None:
        graph = network.buffer_graph
        self._network = network
        self._graph = graph
        self._forms = forms
        self._timeline = network.timeline
        needed_bytes = self._timeline.step_peak_bytes
        # It may be less than nothing: of what is held before the step some may go in it.
        allowed_bytes = needed_bytes if room_bytes is None else max(room_bytes, 0)
        self._room_bytes = min(needed_bytes, allowed_bytes)
        self._maker = graph.makers
        self._is_pinned = network.views.pinned
        self._runs = frozenset(network.sequence)
        self._is_large = self._find_large()
        self._partner = {second: first for first, second in graph.fused_pairs.items()}
        self._joined = self._find_joined()
        self._has_users = [False] * len(graph.nodes)
        for node in network.sequence:
            for source in network.inputs[node]:
                self._has_users[source] = True
        self._freed = [
            buffer
            for buffer, is_large in enumerate(self._is_large)
            if is_large and self._is_freed(buffer)
        ]
        self._nodes: list[int] = [START] if self._freed else []
        self._operation = [-1] * len(graph.nodes)
        # By folded node: the operations that come before it.
        self._behind: dict[int, tuple[int, ...]] = {}
        self._place: dict[int, tuple[int, int]] = {}

    def reduce(self) -> Reduction:
        network = self._network
        for output, buffer in enumerate(self._freed):
            self._place[buffer] = (0, output)
        kept = self._find_kept()
        leads_on = self._find_leading(kept)
        # What comes after many others and before some more is kept too, but not a part of another.
        may_be_wide = leads_on.difference(self._joined.values())
        before: list[tuple[int, ...]] = [()] * len(self._nodes)
        for node in network.sequence:
            behind = self._find_behind(network.precedence.producers[node])
            if node not in kept and not (node in may_be_wide and len(behind) > _WIDEST):
                partner = self._operation[self._partner[node]] if node in self._partner else -1
                self._behind[node] = behind if partner < 0 else (*behind, partner)
                continue
            self._operation[node] = len(self._nodes)
            for output, buffer in enumerate(self._outputs(node)):
                self._place[buffer] = (len(self._nodes), output)
            self._nodes.append(node)
            before.append(behind or tuple(range(len(self._freed) and 1)))
        operations = [self._describe(op, node, before[op]) for op, node in enumerate(self._nodes)]
        freed_bytes = sum(self._graph.size_bytes[buffer] for buffer in self._freed)
        cost_graph = CostGraph.build(operations, held_bytes=self._graph.held_bytes - freed_bytes)
        return Reduction(network, cost_graph, tuple(self._nodes), tuple(self._operation))

    def _find_joined(self) -> dict[int, int]:
        """By node: what runs right behind it, as a part of it: both make their results together.

        That is the second of a pair for oneDNN which reads nothing but what the first reads.
        """
        sequence, read = self._network.sequence, self._graph.read
        return {
            first: second
            for first, second in itertools.pairwise(sequence)
            if self._partner.get(second) == first and set(read[second]) <= set(read[first])
        }

    def _find_large(self) -> list[bool]:
        """By buffer: whether the step makes or frees it and it is too large to be neglected."""
        graph, runs = self._graph, self._runs
        moving = {
            buffer
            for buffer, maker in enumerate(self._maker)
            if maker in runs or self._is_freed(buffer)
        }
        most_bytes = self._room_bytes // _NEGLECTED
        size_bytes = self._room_bytes // _FIRST_SIZE
        while size_bytes and self._together_bytes(moving, size_bytes) > most_bytes:
            size_bytes //= 2
        return [
            buffer in moving and size > size_bytes for buffer, size in enumerate(graph.size_bytes)
        ]

    def _together_bytes(self, moving: Collection[int], largest_bytes: int) -> int:
        """The most that buffers up to a size hold at any time, beyond what they hold before."""
        sizes = [
            size if buffer in moving and size <= largest_bytes else 0
            for buffer, size in enumerate(self._graph.size_bytes)
        ]
        small = replace(self._graph, size_bytes=sizes, scratch_bytes=[0] * len(self._graph.nodes))
        return simulate(small, self._network.sequence).step_peak_bytes

    def _is_freed(self, buffer: int) -> bool:
        """Whether it is there before the step and goes during it, as a variable's old value."""
        if self._maker[buffer] >= 0 or self._graph.lasting[buffer]:
            return False
        return self._timeline.last_position[buffer] >= 0

    def _find_kept(self) -> set[int]:
        """The nodes that are operations of their own."""
        network, graph = self._network, self._graph
        kept: set[int] = set()
        for node in network.sequence:
            if self._outputs(node) or self._reads_for_itself(node):
                kept.add(node)
            if self._is_repeatable(node):
                # Copies of a node come before them, too.
                kept.update(network.followers[node])
            if graph.scratch_bytes[node] * _NEGLECTED > self._room_bytes:
                kept.add(node)
        return (kept & self._runs).difference(self._joined.values())

    def _find_leading(self, kept: Collection[int]) -> set[int]:
        """The nodes that come before some of others."""
        users = self._network.precedence.users
        leads_on: set[int] = set()
        for node in reversed(self._network.sequence):
            if any(user in kept or user in leads_on for user in users[node]):
                leads_on.add(node)
        return leads_on

    def _outputs(self, node: int) -> list[int]:
        made = self._graph.made[node]
        if node in self._joined:
            made = made + self._graph.made[self._joined[node]]
        return [buffer for buffer in made if self._is_large[buffer]]

    def _reads_for_itself(self, node: int) -> bool:
        """Whether a node is the end of something large, and does not hand it on.

        What stands beside a node that reads the same is not.
        """
        is_view = not self._graph.made[node] and self._has_users[node]
        reads = self._reads(node)
        if is_view or not reads:
            return False
        partner = self._partner.get(node, -1)
        return partner not in self._runs or not set(reads) <= set(self._reads(partner))

    def _reads(self, node: int) -> list[int]:
        """The large buffers that a node reads and that could be gone otherwise."""
        graph = self._graph
        made = graph.made[node]
        return [
            buffer
            for buffer in graph.read[node]
            if self._is_large[buffer] and not graph.lasting[buffer] and buffer not in made
        ]

    def _is_repeatable(self, node: int) -> bool:
        graph = self._graph
        if not self._network.recomputable[node] or not self._outputs(node):
            return False
        if node in self._joined and self._outputs(self._joined[node]):
            return False
        return not any(graph.lasting[b] or self._is_pinned[b] for b in graph.made[node])

    def _find_behind(self, producers: Iterable[int]) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for producer in producers:
            op = self._operation[producer]
            found.update(dict.fromkeys((op,) if op >= 0 else self._behind.get(producer, ())))
        return tuple(found)

    def _describe(self, op: int, node: int, before: tuple[int, ...]) -> Operation:
        graph, size_bytes = self._graph, self._graph.size_bytes
        if node == START:
            sizes = tuple(size_bytes[buffer] for buffer in self._freed)
            return Operation(0, sizes, is_recomputable=False)
        outputs, reads = self._outputs(node), self._reads(node)
        read = {self._place[buffer][0] for buffer in reads}
        is_repeatable = self._is_repeatable(node)
        followers = self._network.followers[node] if is_repeatable else ()
        return Operation(
            cost=self._network.weights[node],
            output_bytes=tuple(size_bytes[buffer] for buffer in outputs),
            inputs=tuple(self._place[buffer] for buffer in reads),
            writes_over=self._find_taken(outputs, reads),
            scratch_bytes=self._scratch_bytes(node),
            is_recomputable=is_repeatable,
            kept=tuple(place for place, each in enumerate(outputs) if graph.lasting[each]),
            after=tuple(each for each in before if each not in read),
            until=tuple(self._operation[f] for f in followers if self._operation[f] > op),
            swap_cost=self._swap_cost(node),
        )

    def _scratch_bytes(self, node: int) -> int:
        scratch_bytes = self._graph.scratch_bytes
        joined_bytes = scratch_bytes[self._joined[node]] if node in self._joined else 0
        # A loop whose body frees what it was given counts less than nothing.
        return max(scratch_bytes[node], joined_bytes, 0)

    def _find_taken(self, outputs: Sequence[int], reads: Sequence[int]) -> tuple[int, ...]:
        """Which inputs the outputs take over: as it is without a plan, or the kernel's choice."""
        taken: dict[int, None] = {}
        sizes = self._graph.size_bytes
        for buffer in outputs:
            sources = (each for each in self._graph.reusable[buffer] if each in reads)
            choices = [each for each in sources if sizes[each] == sizes[buffer]]
            actual = self._timeline.reused.get(buffer)
            choice = actual if actual in choices else next(iter(choices), None)
            if choice is not None:
                taken[reads.index(choice)] = None
        return tuple(taken)

    def _swap_cost(self, node: int) -> int:
        forms = self._forms.get(node, ())
        on_host = any(form.stays for form in forms)
        return cheapest_on_host(forms).weight if on_host else 0


def cheapest_on_host(forms: Iterable[Form]) -> Form:
    """Of the forms of a result, the cheapest from which it can be had any number of times."""
    return min((form for form in forms if form.stays), key=lambda form: form.weight)
