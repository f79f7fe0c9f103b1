"""Networks for rematerialization: from small buffer graphs, and random ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.rematerialization.network import Network

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from random import Random

    from memopt.buffers.buffer_graph import BufferGraph
    from support.small_buffers import SmallGraph

from support.small_buffers import Step, small_graph


def network_of(
    graph: SmallGraph,
    *,
    fixed: Collection[str] = (),
    only_reads: Mapping[str, Sequence[str]] | None = None,
    returned_bytes: int = 0,
) -> Network:
    """The network of a small graph in the order in which it stands.

    Args:
        graph: The graph.
        fixed: The nodes that must not be recomputed.
        only_reads: By node: those makers whose buffers it really reads, where aliases say more.
        returned_bytes: What is held for the result before the step.
    """
    buffers = graph.buffers
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    read = [list(found) for found in buffers.read]
    for name, makers in (only_reads or {}).items():
        made = {buffer for maker in makers for buffer in buffers.made[place[maker]]}
        read[place[name]] = [buffer for buffer in read[place[name]] if buffer in made]
    buffers = replace(
        buffers,
        read=read,
        size_bytes=[*buffers.size_bytes, returned_bytes],
        lasting=[*buffers.lasting, True],
        reusable=[*buffers.reusable, []],
    )
    return Network(
        buffer_graph=buffers,
        sequence=range(len(buffers.nodes)),
        inputs=data_inputs(buffers),
        followers=control_users(buffers),
        recomputable=[node.name not in fixed for node in buffers.nodes],
        weights=[1] * len(buffers.nodes),
    )


def data_inputs(buffers: BufferGraph) -> list[list[int]]:
    """By node: the nodes whose outputs it reads."""
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    return [
        list(dict.fromkeys(place[tensor.node.name] for tensor in node.inputs))
        for node in buffers.nodes
    ]


def control_users(buffers: BufferGraph) -> list[list[int]]:
    """By node: the nodes that wait for it by control."""
    place = {node.name: number for number, node in enumerate(buffers.nodes)}
    return [[place[user.name] for user in node.control_users] for node in buffers.nodes]


def random_network(random: Random, count: int) -> Network:
    """A network of all that can happen: views, scratch memory, memory taken over, lasting results.

    Args:
        random: Draws it.
        count: How many nodes.
    """
    steps = [Step("n0", (), random.randrange(1, 9))]
    for number in range(1, count):
        reads = tuple(
            dict.fromkeys(f"n{random.randrange(max(0, number - 8), number)}" for _ in range(2))
        )
        if random.random() < 0.3:
            reads = tuple(dict.fromkeys((*reads, f"n{random.randrange(number)}")))
        waits = (f"n{random.randrange(number)}",) if random.random() < 0.1 else ()
        is_view = random.random() < 0.2
        size_bytes = 0 if is_view else random.randrange(1, 9)
        steps.append(
            Step(
                f"n{number}",
                reads[:1] if is_view else reads,
                size_bytes,
                aliases=is_view,
                waits=waits,
                scratch_bytes=random.randrange(4) if random.random() < 0.2 else 0,
                lasting=random.random() < 0.05,
            )
        )
    graph = small_graph(steps)
    buffers = graph.buffers
    maker = {buffer: node for node, made in enumerate(buffers.made) for buffer in made}
    for buffer, node in maker.items():
        if random.random() < 0.5:
            buffers.reusable[buffer].extend(
                other
                for other in buffers.read[node]
                if buffers.size_bytes[other] == buffers.size_bytes[buffer]
            )
    fixed = [node.name for node in buffers.nodes if random.random() < 0.15]
    network = network_of(graph, fixed=fixed)
    return replace(network, weights=[random.choice((1, 1, 3)) for _ in buffers.nodes])
