"""What stays in use at the peak of a plan, and why it was left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.rewriting.apply import find_original
from memopt.rematerialization.rewriting.hints import KEEP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.graph.graph import Node
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rewriting.hints import Hints

_MOST = 5
"""How many results are told of, the largest ones."""
_SMALLEST_PART = 50
"""Of what the step needs, what a result has to be at least for that."""
_NS_PER_US = 1_000


class Remaining(NamedTuple):
    """A result that is in use at the peak.

    Attributes:
        node: Who made it.
        size_bytes: Its size.
        why: Why it was not recomputed.
    """

    node: Node
    size_bytes: int
    why: str


def find_remaining(
    final: MemoryTimeline, network: Network, hints: Hints, limit_bytes: int
) -> Iterator[Remaining]:
    """The largest results of the step that are in use at its peak, and why each of them is.

    Args:
        final: The memory of the step as it was planned.
        network: The step before; it tells what may run twice and how long that takes.
        hints: What the user said.
        limit_bytes: What the plan was to keep to.
    """
    graph = final.buffer_graph
    place = {node.name: number for number, node in enumerate(network.buffer_graph.nodes)}
    is_kept = final.peak_bytes <= limit_bytes
    for buffer in final.results_at_peak()[:_MOST]:
        size_bytes = final.memory_bytes(buffer)
        if size_bytes * _SMALLEST_PART < final.step_peak_bytes:
            return
        node = graph.nodes[graph.makers[buffer]]
        why = _why_it_must(final, buffer)
        if not why:
            why = _why_not_again(node, place, network, hints, is_kept=is_kept)
        yield Remaining(node, size_bytes, why)


def _why_it_must(final: MemoryTimeline, buffer: int) -> str:
    """Why a buffer has to be in use at the peak whatever is recomputed; "" if it has not."""
    graph = final.buffer_graph
    at_peak = final.sequence[final.peak_position]
    if graph.makers[buffer] == at_peak:
        return "it is made there"
    if buffer in graph.read[at_peak]:
        return f"{graph.nodes[at_peak].name!r} reads it there"
    if graph.lasting[buffer]:
        return "it is kept to the end of the step"
    return ""


def _why_not_again(
    node: Node, place: Mapping[str, int], network: Network, hints: Hints, *, is_kept: bool
) -> str:
    original = find_original(node.name, place)
    if original is None:
        return "it restores what is kept in another form"
    number = place[original]
    if not network.recomputable[number]:
        if number in network.bound:
            return f"the order in which {network.bound[number]!r} adds could change"
        is_hinted = hints.of(network.buffer_graph.nodes[number]) == KEEP
        return "a hint says to keep it" if is_hinted else "what makes it may not run twice"
    time_us = network.weights[number] / _NS_PER_US
    if is_kept:
        return f"the limit is kept without recomputing it, which takes about {time_us:.1f} us"
    return f"recomputing it, in about {time_us:.1f} us, was of no use in any plan that was found"
