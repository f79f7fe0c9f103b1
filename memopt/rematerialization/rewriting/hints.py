"""What the user says of single results: keep it, recompute it, or take it to the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from memopt.graph.graph import Node

    Hint = Literal["", "keep", "recompute", "swap"]

ATTRIBUTE = "_memopt_hint"
"""The attribute of a node that says the same: the string "keep", "recompute" or "swap"."""
KEEP: Hint = "keep"
RECOMPUTE: Hint = "recompute"
SWAP: Hint = "swap"
NONE: Hint = ""
_SEPARATOR = ";"
_HINTED_PART = 1_000
"""By what the costs are divided of what a hint asks for: it comes before all else, and the
cheapest of it first."""


@dataclass(frozen=True)
class Hints:
    """Hints by name, as patterns of a shell ("encoder/*;*/dropout*"); attributes come before them.

    What may not run twice is not recomputed, and what cannot be taken to the host is not taken
    there, whatever a hint says. Of several patterns that a name matches, the first of keep,
    recompute and swap counts.

    Attributes:
        keep: Results that stay where they are.
        recompute: Results that are recomputed before any other, where too much is in use.
        swap: Results that are taken to the host before anything else, and never recomputed.
    """

    keep: str = ""
    recompute: str = ""
    swap: str = ""
    _patterns: tuple[tuple[Hint, str], ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        given = ((KEEP, self.keep), (RECOMPUTE, self.recompute), (SWAP, self.swap))
        patterns = tuple(
            (hint, pattern)
            for hint, patterns in given
            for pattern in patterns.split(_SEPARATOR)
            if pattern
        )
        object.__setattr__(self, "_patterns", patterns)

    def of(self, node: Node) -> Hint:
        """What a node's attribute says, or else what matches its name."""
        attribute = node.attributes.get(ATTRIBUTE)
        said = attribute.s if attribute is not None else b""
        for hint in (KEEP, RECOMPUTE, SWAP):
            if said == hint.encode():
                return hint
        return next(
            (hint for hint, pattern in self._patterns if fnmatchcase(node.name, pattern)), NONE
        )


NO_HINTS = Hints()


def preferred(weight: int) -> int:
    """What counts as the cost of something that a hint asks for."""
    return weight // _HINTED_PART + 1
