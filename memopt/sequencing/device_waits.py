"""Lets what is run late for another device wait for that device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.sequencing.enforcement import ControlEdge, find_chains
from memopt.sequencing.frames import find_places

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.devices import Devices

_NEVER = -1


def find_device_waits(
    buffer_graph: BufferGraph, sequence: Sequence[int], devices: Devices, late: Collection[int]
) -> list[ControlEdge]:
    """The edges without which a device would run ahead, and hold what another one reads much later.

    Each device runs its operations in its own order, as soon as it can. Where an operation is to
    run late because of what reads its result on another device, and nothing that comes before it on
    its own device waits for that one, it has to: it waits for what the other one runs just before
    it in the sequence. Near-linear in nodes, edges and devices.

    Args:
        buffer_graph: The graph in numbers.
        sequence: The nodes that run, as numbers, producers first.
        devices: Where they run.
        late: The nodes that are to run no sooner than the sequence has them.
    """
    readers = _devices_of_readers(buffer_graph, sequence, devices, late)
    places = find_places(buffer_graph.nodes, sequence)
    in_queue = {node for chain in find_chains(buffer_graph, sequence) for node in chain.nodes}
    unknown = [_NEVER] * len(devices.names)
    ended: dict[int, list[int]] = {}
    """By node: for each device the position of the last operation that has ended before it does."""
    queues = [unknown for _ in devices.names]
    last: list[dict[object, int]] = [{} for _ in devices.names]
    position = {node: number for number, node in enumerate(sequence)}
    edges = []
    for node in sequence:
        own = devices.of_node[node]
        before = [ended[producer] for producer in buffer_graph.producers[node] if producer in ended]
        if node in in_queue:
            before.append(queues[own])
        known = [max(each) for each in zip(unknown, *before, strict=True)]
        for other in readers.get(node, ()):
            awaited = last[other].get(places[node])
            if awaited is not None and known[other] < position[awaited]:
                edges.append(ControlEdge(awaited, node))
                known = [max(each) for each in zip(known, ended[awaited], strict=True)]
        known[own] = position[node]
        ended[node] = known
        if node in in_queue:
            queues[own] = known
            last[own][places[node]] = node
    return edges


def _devices_of_readers(
    buffer_graph: BufferGraph, sequence: Sequence[int], devices: Devices, late: Collection[int]
) -> dict[int, list[int]]:
    """By late node: the other devices that read what comes of it, through late nodes of its own."""
    found: dict[int, set[int]] = {node: set() for node in late}
    for node in reversed(sequence):
        device = devices.of_node[node]
        for producer in buffer_graph.producers[node]:
            if producer not in found:
                continue
            if devices.of_node[producer] != device:
                found[producer].add(device)
            elif node in found:
                found[producer] |= found[node]
    return {
        node: sorted(others - {devices.of_node[node]}) for node, others in found.items() if others
    }
