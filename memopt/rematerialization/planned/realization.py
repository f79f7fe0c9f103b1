"""A plan as instructions: nodes in the plan's order, with copies and what swaps in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.dead_code import find_dead
from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.planned.reduction import cheapest_on_host
from memopt.rematerialization.rematerialized import Rematerialized
from memopt.sequencing.fusions import keep_adjacent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.planning.initial_plans import Steps
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.planned.reduction import Reduction
    from memopt.rematerialization.storage.forms import Form


def realize(
    reduction: Reduction, steps: Steps, forms: Mapping[int, Sequence[Form]]
) -> Rematerialized:
    """Put a plan's sequence together.

    Nodes that are folded run right before the first that needs them; those that nobody needs, as
    soon as they can. Every instruction reads what was computed last, and gets copies of views where
    the original shows something older.

    Args:
        reduction: What was planned.
        steps: The plan.
        forms: By node: other forms of its result.
    """
    places, first = np.unique(steps.operations, return_index=True)
    position = np.full(len(reduction.nodes), len(steps.operations), np.int64)
    position[places] = first
    sequence = _full_sequence(reduction, position.tolist())
    network = replace(reduction.network, sequence=sequence)
    return _Realizing(network, forms).realize(_repeats(reduction, steps, first.tolist()))


def _repeats(
    reduction: Reduction, steps: Steps, first: Sequence[int]
) -> dict[int, list[tuple[int, bool]]]:
    """By node: what is recomputed or swapped in right before it; (node, whether swapped in)."""
    is_first = np.zeros(len(steps.operations), np.bool_)
    is_first[first] = True
    repeats: dict[int, list[tuple[int, bool]]] = {}
    pending: list[tuple[int, bool]] = []
    for op, swapped, starts in zip(steps.operations, steps.swapped, is_first, strict=True):
        node = reduction.nodes[op]
        if not starts:
            pending.append((node, bool(swapped)))
        elif pending:
            repeats[node] = pending
            pending = []
    return repeats


def _full_sequence(reduction: Reduction, position: Sequence[int]) -> list[int]:
    """All nodes that run, the folded ones with those that they are needed by.

    What oneDNN may fuse stands side by side, as in the graph that comes out.
    """
    network = reduction.network
    precedence = network.precedence
    never = max(position, default=0) + 1
    keys = [never] * len(network.buffer_graph.nodes)
    for node in reversed(network.sequence):
        op = reduction.operation[node]
        users = (keys[user] for user in precedence.users[node])
        keys[node] = min(users, default=never) if op < 0 else position[op]
    for node in network.sequence:
        if keys[node] == never:
            producers = (keys[producer] for producer in precedence.producers[node])
            keys[node] = max(producers, default=0)
    pairs = network.buffer_graph.fused_pairs
    for first, second in pairs.items():
        if reduction.operation[second] < 0 <= reduction.operation[first]:
            keys[second] = keys[first]
    return keep_adjacent(precedence, precedence.sorted_by(keys), pairs)[0]


class _Realizing:
    def __init__(self, network: Network, forms: Mapping[int, Sequence[Form]]) -> None:
        graph = network.buffer_graph
        self._network = network
        self._forms = forms
        self._table = Instructions(network)
        self._handed_on = [tuple(buffers) for buffers in self._table.handed_on]
        self._view_users = _find_view_users(network)
        # What stands for a node, and for a buffer, now.
        self._latest = list(range(len(graph.nodes)))
        self._buffer = list(range(len(graph.size_bytes)))
        self._outdated: set[int] = set()
        self._last_reader: dict[int, int] = {}
        self._stores: dict[int, int] = {}

    def realize(self, repeats: Mapping[int, Sequence[tuple[int, bool]]]) -> Rematerialized:
        """Go along the network's sequence.

        Args:
            repeats: By node: what runs again right before it, and whether it is swapped in instead.
        """
        for node in self._network.sequence:
            for repeated, is_swapped in repeats.get(node, ()):
                if is_swapped:
                    self._restore(repeated, node)
                else:
                    self._copy(repeated, node)
            self._refresh_views(node, node)
            self._connect(node, node)
            self._outdated.discard(node)
        return self._finish(sum(map(len, repeats.values())))

    def _copy(self, node: int, anchor: int) -> None:
        """Compute a node again, before another one."""
        self._refresh_views(node, anchor)
        copy = self._table.add_copy(node, anchor)
        self._replace(node, copy)
        self._connect(copy, node)

    def _restore(self, node: int, anchor: int) -> None:
        """Bring a node's only result back from where it was stored, once, after its last use."""
        if node not in self._stores:
            latest = self._latest[node]
            (buffer,) = self._table.makes[latest]
            form = cheapest_on_host(self._forms[node])
            last_use = self._last_reader.get(buffer, latest)
            self._stores[node] = self._table.add_store(latest, form, last_use)
        self._replace(node, self._table.add_restore(self._stores[node], anchor))

    def _replace(self, node: int, instruction: int) -> None:
        """Let an instruction stand for a node from now on."""
        self._latest[node] = instruction
        for buffer in self._network.buffer_graph.made[node]:
            self._buffer[buffer] = self._table.add_buffer(instruction, buffer)
        pending = [node]
        while pending:
            new = [view for view in self._view_users[pending.pop()] if view not in self._outdated]
            self._outdated.update(new)
            pending += new

    def _connect(self, instruction: int, node: int) -> None:
        """Let a node, or a copy of it, read what stands for its inputs now."""
        table, graph = self._table, self._network.buffer_graph
        table.inputs[instruction] = [self._latest[each] for each in self._network.inputs[node]]
        table.reads[instruction] = self._current(graph.read[node])
        table.handed_on[instruction] = self._current(self._handed_on[node])
        for original, made in zip(graph.made[node], table.makes[instruction], strict=True):
            table.reusable[made] = self._current(graph.reusable[original])
        for buffer in table.reads[instruction]:
            self._last_reader[buffer] = instruction

    def _current(self, buffers: Sequence[int]) -> list[int]:
        return [self._buffer[buffer] for buffer in buffers]

    def _refresh_views(self, node: int, anchor: int) -> None:
        """Copy the views through which a node reads, where they show something older."""
        pending = [each for each in self._network.inputs[node] if each in self._outdated]
        while pending:
            view = pending[-1]
            behind = [each for each in self._network.inputs[view] if each in self._outdated]
            if view in self._outdated and behind:
                pending += behind
                continue
            pending.pop()
            if view in self._outdated:
                self._outdated.discard(view)
                self._latest[view] = self._table.add_copy(view, anchor)
                self._connect(self._latest[view], view)

    def _finish(self, repeat_count: int) -> Rematerialized:
        table = self._table
        table.find_readers()
        removed = find_dead(table)
        gone = frozenset(removed)
        sequence = [instruction for instruction in table.line if instruction not in gone]
        peak_bytes = simulate(table.buffer_graph(removed), sequence).peak_bytes
        return Rematerialized(table, sequence, removed, peak_bytes, repeat_count)


def _find_view_users(network: Network) -> list[list[int]]:
    """By node: the views that read it."""
    users: list[list[int]] = [[] for _ in network.buffer_graph.nodes]
    for node in network.sequence:
        if not network.buffer_graph.made[node]:
            for source in network.inputs[node]:
                users[source].append(node)
    return users
