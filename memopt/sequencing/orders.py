"""The sequences that can be asked for by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.sequencing.depth_first import dfs_sequence, postorder_sequence
from memopt.sequencing.free_running import free_running_sequence
from memopt.sequencing.late_updates import late_updates_sequence
from memopt.sequencing.list_order import list_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Graph
    from memopt.sequencing.precedence import Precedence

LIST = "list"
DFS = "dfs"
POSTORDER = "postorder"
PROGRAM = "program"
LATE_UPDATES = "late_updates"
EXECUTOR = "executor"
DEFAULT = "default"
BEST = "best"

_OF_BUFFERS: Mapping[str, Callable[[BufferGraph, Precedence], list[int]]] = MappingProxyType(
    {
        LIST: list_sequence,
        DFS: dfs_sequence,
        POSTORDER: postorder_sequence,
        EXECUTOR: free_running_sequence,
    }
)
_SETS = MappingProxyType(
    {
        DEFAULT: (LIST, DFS, POSTORDER),
        BEST: (LIST, DFS, POSTORDER, LATE_UPDATES, PROGRAM, EXECUTOR),
    }
)

SEQUENCERS = (LIST, DFS, POSTORDER, DEFAULT, PROGRAM, LATE_UPDATES, EXECUTOR, BEST)
"""The names of the sequencers.

- `list`, `dfs`, `postorder`: as in XLA.
- `default`: that of these three with the lowest simulated peak, the earlier one if equal, as in
  XLA.
- `program`: the order of the graph's nodes as far as edges allow.
- `late_updates`: program order, but every update where it needs least memory.
- `executor`: the order in which TensorFlow's executor would run the graph with one thread.
- `best`: that of all these with the lowest simulated peak.
"""


def make_sequences(
    sequencer: str, graph: Graph, buffer_graph: BufferGraph, precedence: Precedence
) -> list[list[int]]:
    """The nodes that run, as numbers, in the orders among which a sequencer chooses.

    Args:
        sequencer: One of `SEQUENCERS`.
        graph: The graph.
        buffer_graph: The same in numbers.
        precedence: What runs, and what must come before what.

    Raises:
        OptionsError: There is no such sequencer.
    """
    if sequencer not in SEQUENCERS:
        raise OptionsError(f"the sequencer is one of {', '.join(SEQUENCERS)}, not {sequencer!r}")
    names = _SETS.get(sequencer, (sequencer,))
    return [_make_sequence(name, graph, buffer_graph, precedence) for name in names]


def make_sequence(
    sequencer: str,
    graph: Graph,
    buffer_graph: BufferGraph,
    precedence: Precedence,
    settle: Callable[[list[int]], list[int]] = list,
) -> list[int]:
    """Of the sequences of a sequencer that with the lowest peak, the first of equals.

    Args:
        sequencer: One of `SEQUENCERS`.
        graph: The graph.
        buffer_graph: The same in numbers.
        precedence: What runs, and what must come before what.
        settle: What becomes of a sequence before it runs; that is compared.

    Raises:
        OptionsError: There is no such sequencer.
    """
    found = make_sequences(sequencer, graph, buffer_graph, precedence)
    return lowest(buffer_graph, [settle(sequence) for sequence in found])


def lowest(buffer_graph: BufferGraph, sequences: Sequence[list[int]]) -> list[int]:
    """The sequence with the lowest simulated peak, the first of equals."""
    if len(sequences) == 1:
        return sequences[0]
    return min(sequences, key=lambda sequence: simulate(buffer_graph, sequence).peak_bytes)


def _make_sequence(
    sequencer: str, graph: Graph, buffer_graph: BufferGraph, precedence: Precedence
) -> list[int]:
    if sequencer == PROGRAM:
        return list(precedence.program)
    if sequencer == LATE_UPDATES:
        return late_updates_sequence(graph, buffer_graph, precedence)
    return _OF_BUFFERS[sequencer](buffer_graph, precedence)
