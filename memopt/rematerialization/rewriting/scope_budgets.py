"""Budgets of single scopes: what the results of operations of some names may take together."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from memopt.errors import OptionsError
from memopt.options import parse_bytes
from memopt.rematerialization.rewriting.apply import original_names
from memopt.rematerialization.rewriting.part_budget import PartBudget

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph

_SEPARATOR, _ASSIGNMENT = ";", ":"


@dataclass(frozen=True)
class ScopeBudget(PartBudget):
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
        holds = [maker >= 0 and is_inside[maker] for maker in buffer_graph.makers]
        return buffer_graph.only(holds, is_inside)


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
