"""Budgets of single scopes: what the results of operations of some names may take together."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.buffer_graph import simulate
from memopt.errors import OptionsError
from memopt.options import parse_bytes
from memopt.rematerialization.rewriting.apply import original_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph

_SEPARATOR, _ASSIGNMENT = ";", ":"


class ScopeBudget(NamedTuple):
    """What the results of the operations of a scope may take together at any moment.

    Attributes:
        pattern: The names of the operations, as a pattern of a shell ("encoder/*"); copies count
            by the names of their originals.
        limit_bytes: What their results, and their kernels' scratch memory, may take.
    """

    pattern: str
    limit_bytes: int

    def __str__(self) -> str:
        return f"the scope {self.pattern!r}"

    def buffers(self, buffer_graph: BufferGraph) -> BufferGraph:
        """The same buffers, of which those of other operations take nothing."""
        is_inside = [
            any(fnmatchcase(name, self.pattern) for name in original_names(node.name))
            for node in buffer_graph.nodes
        ]
        makers = buffer_graph.makers
        size_bytes = [
            size if makers[buffer] >= 0 and is_inside[makers[buffer]] else 0
            for buffer, size in enumerate(buffer_graph.size_bytes)
        ]
        return replace(
            buffer_graph,
            size_bytes=size_bytes,
            scratch_bytes=[
                scratch if is_inside[node] else 0
                for node, scratch in enumerate(buffer_graph.scratch_bytes)
            ],
            # Memory that comes from outside of the scope counts as the scope's from then on.
            reusable=[
                [source for source in sources if size_bytes[source] == size_bytes[buffer]]
                for buffer, sources in enumerate(buffer_graph.reusable)
            ],
        )

    def peak_bytes(self, buffer_graph: BufferGraph, sequence: Sequence[int]) -> int:
        """The most that the scope has in use in a step."""
        return simulate(self.buffers(buffer_graph), sequence).peak_bytes

    def is_kept(self, buffer_graph: BufferGraph, sequence: Sequence[int]) -> bool:
        """Whether that is within the budget."""
        return self.peak_bytes(buffer_graph, sequence) <= self.limit_bytes


def parse_scopes(text: str) -> tuple[ScopeBudget, ...]:
    """Budgets as people write them: "encoder/*:100MiB;decoder/*:1GiB".

    Raises:
        OptionsError: The text does not say that.
    """
    found = []
    for part in filter(None, text.split(_SEPARATOR)):
        pattern, _, limit = part.rpartition(_ASSIGNMENT)
        if not pattern:
            raise OptionsError(f"{part!r} is no budget of a scope, such as encoder/*:100MiB")
        found.append(ScopeBudget(pattern, parse_bytes(limit)))
    return tuple(found)
