"""What a step needs in any order and however often: the largest working set of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from memopt.buffers.buffer_graph import BufferGraph


class WorkingSet(NamedTuple):
    """What is in use at least while a node runs.

    Attributes:
        node: The node; -1 if there is none.
        size_bytes: What it reads and makes, its scratch memory, and what is there throughout.
    """

    node: int
    size_bytes: int


def largest_working_set(buffer_graph: BufferGraph, nodes: Iterable[int]) -> WorkingSet:
    """The largest working set; no sequence of these nodes has a lower peak.

    What is there throughout are the buffers that stay and that no node makes, and one value of each
    variable that the step updates, the old one or the new one. Linear in nodes and edges.

    Args:
        buffer_graph: The step as the allocator sees it.
        nodes: Those that run.
    """
    chosen = list(nodes)
    fixed_bytes, sets = working_sets(buffer_graph, chosen)
    largest = WorkingSet(-1, buffer_graph.held_bytes if not chosen else 0)
    for each in sets:
        if fixed_bytes + each.size_bytes > largest.size_bytes:
            largest = WorkingSet(each.node, fixed_bytes + each.size_bytes)
    return largest


def working_sets(
    buffer_graph: BufferGraph, nodes: Iterable[int]
) -> tuple[int, Iterator[WorkingSet]]:
    """What is there throughout a step, and what each of its nodes has besides while it runs.

    Args:
        buffer_graph: The step as the allocator sees it.
        nodes: Those that run.
    """
    graph, chosen = buffer_graph, list(nodes)
    throughout = _held_throughout(graph)
    values = _values_of_variables(graph, chosen)
    fixed_bytes = sum(graph.size_bytes[buffer] for buffer in throughout)
    fixed_bytes += sum(graph.size_bytes[old] for old in values)
    counted = {*throughout, *values, *values.values()}
    return fixed_bytes, (_working_set(graph, node, counted) for node in chosen)


def _working_set(graph: BufferGraph, node: int, counted: Collection[int]) -> WorkingSet:
    own = [b for b in (*graph.read[node], *graph.made[node]) if b not in counted]
    own_bytes = sum(graph.size_bytes[buffer] for buffer in own)
    # What takes over memory that is read takes none of its own.
    taken = (b for b in graph.made[node] if graph.reusable[b] and b not in counted)
    own_bytes -= sum(graph.size_bytes[buffer] for buffer in taken)
    return WorkingSet(node, own_bytes + graph.scratch_bytes[node])


def _held_throughout(graph: BufferGraph) -> list[int]:
    makers = graph.makers
    return [
        buffer
        for buffer, is_lasting in enumerate(graph.lasting)
        if is_lasting and makers[buffer] < 0
    ]


def _values_of_variables(graph: BufferGraph, nodes: Iterable[int]) -> dict[int, int]:
    """By old value of a variable: the new one, as large, that is there when it goes."""
    makers = graph.makers
    found: dict[int, int] = {}
    taken: set[int] = set()
    for node in nodes:
        read = graph.read[node]
        old = [b for b in read if makers[b] < 0 and not graph.lasting[b] and b not in found]
        new = [b for b in (*read, *graph.made[node]) if makers[b] >= 0 and graph.lasting[b]]
        for buffer in old:
            size_bytes = graph.size_bytes[buffer]
            same = [b for b in new if graph.size_bytes[b] == size_bytes and b not in taken]
            if same:
                found[buffer] = same[0]
                taken.add(same[0])
    return found
