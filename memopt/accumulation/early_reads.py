"""Reads of v1 reference variables that a rewrite makes earlier, and the updates they could miss.

A reference variable is updated in place. An operation that reads one sees the updates that ran
before it; one that reads a part of what it read earlier may not. Resource variables are safe: their
value is read by an operation of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.paths import leads_to
from memopt.graph.reference_variables import find_writers, variables_read

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.graph.graph import Graph, Node
    from memopt.graph.traversal import Numbering


def find_missed_update(
    graph: Graph, numbering: Numbering, runs: Callable[[Node], bool], node: Node
) -> str | None:
    """Why reading the inputs of a node before all of them are there could change what it reads.

    Args:
        graph: The graph.
        numbering: Its nodes in numbers.
        runs: Whether a node may run in the step.
        node: The node.

    Returns:
        The reason. `None` if every node of the step that may update what is read comes after the
        node in any case.
    """
    for variable in variables_read(graph, node):
        for writer in find_writers(graph, variable):
            if runs(writer) and not leads_to(numbering, node, writer):
                return (
                    f"reads the reference variable {variable.name!r}, "
                    f"which {writer.name!r} may update before the sum is complete"
                )
    return None
