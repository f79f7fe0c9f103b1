"""Reads of v1 reference variables: whether an update could overtake a copy that reads later.

A reference variable is updated in place, and Identity hands its buffer on without a copy. An
operation that is recomputed later reads the variable again, so it must still come before every
update that its original comes before. Resource variables are safe: a read keeps its buffer, and an
update of a buffer that is still held writes to a new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.reference_variables import find_writers, variables_read

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.graph.graph import Graph, Node
    from memopt.graph.traversal import Numbering


class ReferenceReads:
    """Answers, for groups of nodes, whether an update of what they read could overtake a copy."""

    def __init__(self, graph: Graph, numbering: Numbering, fetched: Collection[str]) -> None:
        self._graph = graph
        self._numbering = numbering
        self._fetched = fetched
        self._writers: dict[Node, list[int]] = {}
        self._executed: list[bool] | None = None
        self._has_references = any(node.op in op_types.REF_VARIABLES for node in numbering.nodes)

    def overtaken(self, sources: Iterable[int], targets: Collection[int]) -> str | None:
        """Why copies of the sources could read another value than the originals, or `None`.

        The copies come before the targets. They are safe from an update that a target leads to,
        and from one that the original read waits for.
        """
        if not self._has_references:
            return None
        nodes = self._numbering.nodes
        for place in sources:
            for variable in variables_read(self._graph, nodes[place]):
                for writer in self._writers_of(variable):
                    if self._is_after(writer, targets) or self._is_after(place, (writer,)):
                        continue
                    return (
                        f"{nodes[place].name!r} reads the reference variable {variable.name!r}, "
                        f"and nothing keeps {nodes[writer].name!r} from updating it before a copy"
                    )
        return None

    def _writers_of(self, variable: Node) -> list[int]:
        """The nodes of the step that take the variable by reference, positions."""
        if variable not in self._writers:
            executed = self._executed_nodes()
            places = map(self._numbering.place, find_writers(self._graph, variable))
            self._writers[variable] = [place for place in places if place >= 0 and executed[place]]
        return self._writers[variable]

    def _executed_nodes(self) -> list[bool]:
        """Which nodes run in a step: what leads to a fetch, or all when no fetch is known."""
        if self._executed is not None:
            return self._executed
        nodes = self._numbering.nodes
        pending = [place for place, node in enumerate(nodes) if node.name in self._fetched]
        executed = [not pending] * len(nodes)
        while pending:
            place = pending.pop()
            if not executed[place]:
                executed[place] = True
                pending.extend(self._numbering.producers[place])
        self._executed = executed
        return executed

    def _is_after(self, place: int, starts: Collection[int]) -> bool:
        """Whether a path leads from one of the starts to a node."""
        component = self._numbering.component
        # Nothing on such a path comes before the earliest start, so the search stays small.
        earliest = max(component[start] for start in starts)
        seen = {place}
        pending = [place]
        while pending:
            for producer in self._numbering.producers[pending.pop()]:
                if producer in starts:
                    return True
                if producer not in seen and component[producer] < earliest:
                    seen.add(producer)
                    pending.append(producer)
        return False
