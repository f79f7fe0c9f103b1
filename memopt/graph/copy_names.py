"""Names of the nodes that recomputation adds to a graph, as Grappler gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, MutableSet

    from memopt.graph.graph import Graph

COPY_PREFIX = "Recomputed/"
TRIGGER_PREFIX = "RecomputeTrigger/"


def is_copy(name: str) -> bool:
    """Whether a node of that name is what was recomputed."""
    return name.startswith(COPY_PREFIX)


def free_name(name: str, taken: Graph | Container[str], separator: str = "/") -> str:
    """A name that is not taken: the name itself, or with a number behind it."""
    number, found = 0, name
    while found in taken:
        number += 1
        found = f"{name}{separator}{number}"
    return found


def take_name(name: str, taken: MutableSet[str]) -> str:
    """A name that is not taken, and is from now on."""
    found = free_name(name, taken, "_")
    taken.add(found)
    return found
