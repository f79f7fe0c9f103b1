"""Plans as bytes, and back: what is read is checked against the network that it is for."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from memopt.buffers.buffer_graph import check_sequence
from memopt.errors import FileError, OptionsError
from memopt.rematerialization.paths.clone_buffers import CloneBuffers, ClonedInstructions
from memopt.rematerialization.paths.facts import Facts
from memopt.rematerialization.rematerialized import Rematerialized

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.network import Network

_MOST_BYTES = 1 << 28
"""What a plan may take once it is unpacked: some million operations."""


def encode(done: Rematerialized) -> bytes:
    """A plan that computes results again and converts none.

    Nodes are told by their place among the sorted names, so that it does not matter in which order
    a graph lists them.
    """
    table, count = done.instructions, len(done.instructions.network.buffer_graph.nodes)
    place = {node: number for number, node in enumerate(by_name(table.network))}
    position = {instruction: number for number, instruction in enumerate(done.sequence)}
    plain = {
        "sequence": [place[table.origin[instruction]] for instruction in done.sequence],
        "copies": [position[i] for i in sorted(position) if i >= count],
        "inputs": [[position[p] for p in table.inputs[i]] for i in done.sequence],
    }
    return zlib.compress(json.dumps(plain, separators=(",", ":")).encode())


def decode(data: bytes, network: Network) -> Rematerialized:
    """The plan for a network.

    Raises:
        FileError: It is damaged, or not one for this network: it would compute something else.
    """
    plain = _parse(data)
    read = _Reading(network, plain["sequence"], plain["copies"], plain["inputs"])
    read.check()
    return read.plan()


def by_name(network: Network) -> list[int]:
    """The nodes that run, sorted by name."""
    nodes = network.buffer_graph.nodes
    return sorted(network.sequence, key=lambda node: nodes[node].name)


def _parse(data: bytes) -> dict[str, Any]:
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, _MOST_BYTES)
        plain = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise FileError(f"a stored plan cannot be read: {error}") from None
    _require(unpacker.eof and isinstance(plain, dict), "it is cut off")
    sequence, copies, inputs = (plain.get(key) for key in ("sequence", "copies", "inputs"))
    _require(_are_numbers(sequence) and _are_numbers(copies), "it is no list of numbers")
    is_list = isinstance(inputs, list) and all(_are_numbers(each) for each in inputs)
    _require(is_list, "it does not say who reads what")
    return {"sequence": sequence, "copies": copies, "inputs": inputs}


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in value)


def _require(holds: object, otherwise: str) -> None:
    if not holds:
        raise FileError(f"a stored plan is not for this graph: {otherwise}")


class _Reading:
    """A plan on its way back."""

    def __init__(
        self,
        network: Network,
        sequence: Sequence[int],
        copies: Sequence[int],
        inputs: Sequence[Sequence[int]],
    ) -> None:
        self._network = network
        self._facts = Facts(network)
        nodes = by_name(network)
        _require(len(inputs) == len(sequence), "its parts differ in length")
        _require(all(place < len(nodes) for place in sequence), "there is no such node")
        _require(all(at < len(sequence) for at in copies), "there is no such copy")
        _require(len(frozenset(copies)) == len(copies), "a copy is named twice")
        self._nodes = [nodes[place] for place in sequence]
        count = len(network.buffer_graph.nodes)
        number = {at: count + rank for rank, at in enumerate(copies)}
        self._sequence = [number.get(at, node) for at, node in enumerate(self._nodes)]
        self._origin = [*range(count), *(self._nodes[at] for at in copies)]
        self._inputs = [list(found) for found in network.inputs] + [[] for _ in copies]
        for at, sources in enumerate(inputs):
            _require(all(source < at for source in sources), "something reads what comes later")
            self._inputs[self._sequence[at]] = [self._sequence[source] for source in sources]
        runs = frozenset(self._sequence)
        self._copied = frozenset(self._origin[count:])
        self._removed = [node for node in network.sequence if node not in runs]

    def check(self) -> None:
        """Check that everything runs, once but for copies, and reads what it did.

        Raises:
            FileError: It does not.
        """
        network = self._network
        _require(len(frozenset(self._sequence)) == len(self._sequence), "something runs twice")
        for instruction, node in zip(self._sequence, self._nodes, strict=True):
            read = [self._origin[source] for source in self._inputs[instruction]]
            _require(read == list(network.inputs[node]), "something reads something else")
        _require(all(map(self._may_run_again, self._copied)), "something may not run again")
        _require(all(map(self._may_go, self._removed)), "something is missing")
        position = {instruction: at for at, instruction in enumerate(self._sequence)}
        last = len(self._sequence)
        for node in network.sequence:
            before = (position.get(p, -1) for p in network.precedence.producers[node])
            _require(max(before, default=-1) < position.get(node, last), "the order is another")

    def plan(self) -> Rematerialized:
        """The plan.

        Raises:
            FileError: Something does not wait for what it has to come after.
        """
        buffers = CloneBuffers(self._facts, self._origin, self._inputs, self._sequence)
        table = ClonedInstructions(buffers, self._removed)
        done = Rematerialized(table, self._sequence, self._removed, 0, len(self._copied))
        try:
            check_sequence(done.buffer_graph, done.sequence)
        except OptionsError as error:
            _require(False, str(error))
        return done

    def _may_run_again(self, node: int) -> bool:
        graph, facts = self._network.buffer_graph, self._facts
        free = not any(graph.lasting[b] or facts.pinned[b] for b in graph.made[node])
        return self._network.recomputable[node] and free

    def _may_go(self, node: int) -> bool:
        if node not in self._copied:
            return False
        return not (self._facts.is_view[node] and self._network.followers[node])
