"""Rewritten main graphs in which everything that a program may ask for runs what it ran before.

A session runs what is asked for and all that this needs, by data and by control edges. The edges
that order a training step may let a part of it that others ask for as well, such as a loss or a
prediction, wait for something that has an effect: who asks for the loss alone would then train, or
be asked for a label that a prediction does not need.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def
from memopt.graph.op_types import NEXT_ITERATIONS, REF_TYPE_OFFSET, is_stateful, port_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph, Node

_HARMLESS = frozenset(
    {"VarHandleOp", "ReadVariableOp", "Variable", "VariableV2", "VarIsInitializedOp"}
)
"""Ops with state that may run more often than before: they only look at it."""
_FED = "Placeholder"
_NOTHING = "NoOp"
_MOST_LOOKED_AT = 256


def effects(graph_def: GraphDef) -> set[str]:
    """The nodes that have an effect."""
    graph = from_graph_def(graph_def)
    return {node.name for node in graph if node.op != _FED and _is_root(node, graph)}


def keep_uses(before: GraphDef, after: GraphDef, *, same_ops: bool = True) -> GraphDef:
    """A rewritten graph without the control edges that would let others run more than before.

    Whatever node of the original is asked for, the operations with effects that run, and what has
    to be fed, are among those of the original. An edge from an operation that would change that is
    replaced by edges from the last ones before it that would not. What a pass has taken out of the
    step, as nothing in the step reads it any longer, is there again for others.

    Args:
        before: The original.
        after: The rewritten graph, in which no edge orders what has not been in order by data but
            for the sake of memory.
        same_ops: Whether every node of the original has to give the same still. Passes keep what a
            node gives as long as it has its name, but that a NoOp gives nothing.

    Returns:
        The graph itself where nothing has to change, else a copy.

    Raises:
        InvalidGraphError: A node of the original is lost, gives nothing any more, or cannot but run
            more.
    """
    if same_ops:
        after = _with_lost(before, after)
    kept = _UsesKept.of(before, after, same_ops=same_ops)
    edges = kept.edges()
    if not edges:
        return after
    changed = type(after)()
    changed.CopyFrom(after)
    for node in changed.node:
        if node.name not in edges:
            continue
        data = [source for source in node.input if not source.startswith("^")]
        del node.input[:]
        node.input.extend([*data, *(f"^{name}" for name in edges[node.name])])
    return changed


def _with_lost(before: GraphDef, after: GraphDef) -> GraphDef:
    """A rewritten graph with the nodes of the original that it has no longer, as they were."""
    names = {node.name for node in after.node}
    lost = [node for node in before.node if node.name not in names]
    if not lost:
        return after
    changed = type(after)()
    changed.CopyFrom(after)
    changed.node.extend(lost)
    return changed


@dataclass(frozen=True)
class _UsesKept:
    """Two graphs, and what each node runs, as sets of bits: one for each effect and each feed.

    Attributes:
        order: Names of the nodes of the rewritten graph, each after all that it needs.
        data: By node what it reads.
        controls: By node what it waits for.
        old_controls: The same in the original.
        own: The bit of each node that has an effect or is fed.
        allowed: By node of the original what it ran.
    """

    order: Sequence[str]
    data: Mapping[str, Sequence[str]]
    controls: Mapping[str, Sequence[str]]
    old_controls: Mapping[str, frozenset[str]]
    own: Mapping[str, int]
    allowed: Mapping[str, int]

    @classmethod
    def of(cls, before: GraphDef, after: GraphDef, *, same_ops: bool) -> _UsesKept:
        """What the two graphs say.

        Raises:
            InvalidGraphError: A node of the original is lost, or gives nothing any more.
        """
        kinds = {node.name: node.op for node in after.node}
        for node in before.node:
            is_empty = same_ops and kinds.get(node.name) == _NOTHING != node.op
            if is_empty or node.name not in kinds:
                raise InvalidGraphError(
                    f"others may ask for {node.name!r}, which is lost or gives nothing any more",
                    node.name,
                )
        old, new = from_graph_def(before), from_graph_def(after)
        roots = [node.name for node in old if _is_root(node, old)]
        own = {name: 1 << number for number, name in enumerate(roots)}
        old_data, old_controls = _sources(old)
        allowed: dict[str, int] = {}
        for name in _in_order(old_data, old_controls):
            bits = own.get(name, 0)
            for source in (*old_data[name], *old_controls[name]):
                bits |= allowed.get(source, 0)
            allowed[name] = bits
        data, controls = _sources(new)
        return cls(
            _in_order(data, controls),
            data,
            controls,
            {name: frozenset(sources) for name, sources in old_controls.items()},
            own,
            allowed,
        )

    def edges(self) -> dict[str, list[str]]:
        """The control inputs of the nodes that get others than they have.

        Raises:
            InvalidGraphError: What a node reads now runs more than it ran.
        """
        permitted = self._permitted()
        runs: dict[str, int] = {}
        found: dict[str, list[str]] = {}
        for name in self.order:
            bits = self.own.get(name, 0)
            for source in self.data[name]:
                bits |= runs.get(source, 0)
            sources = self._sources_kept(name, permitted, runs)
            for source in sources:
                bits |= runs.get(source, 0)
            runs[name] = bits
            if bits & ~self.allowed.get(name, bits):
                raise InvalidGraphError(
                    f"who asks for {name!r} alone would run more than before", name
                )
            if list(sources) != list(self.controls[name]):
                found[name] = list(sources)
        return found

    def _permitted(self) -> dict[str, int]:
        """What each node may run: what it did, and what is new no more than all that read it."""
        everything = (1 << len(self.own)) - 1
        permitted: dict[str, int] = dict(self.allowed)
        for name in reversed(self.order):
            mine = permitted.setdefault(name, everything)
            for source in self.data[name]:
                if source not in self.allowed:
                    permitted[source] = permitted.get(source, everything) & mine
        return permitted

    def _sources_kept(
        self,
        name: str,
        permitted: Mapping[str, int],
        runs: Mapping[str, int],
    ) -> Sequence[str]:
        """What a node waits for: where it may not, the nearest before it that it may wait for."""
        sources = self.controls[name]
        before = self.old_controls.get(name, frozenset())
        forbidden = ~permitted[name]
        if all(one in before or not runs.get(one, 0) & forbidden for one in sources):
            return sources
        found: dict[str, None] = {}
        pending = deque(sources)
        seen: set[str] = set()
        while pending and len(seen) < _MOST_LOOKED_AT:
            one = pending.popleft()
            if one in seen:
                continue
            seen.add(one)
            if one in before or not runs.get(one, 0) & forbidden:
                found[one] = None
            else:
                pending.extend((*self.controls[one], *self.data[one]))
        return [one for one in found if one not in self.data[name]]


def _is_root(node: Node, graph: Graph) -> bool:
    """Whether a node has an effect, or has to be fed."""
    library = graph.library if isinstance(graph.library, Library) else None
    if node.op == _FED:
        return True
    if node.op in _HARMLESS:
        return False
    if is_stateful(node, library):
        return True
    # What takes references writes to them, but for what passes them on.
    types = port_types(node, library)
    takes = any(dtype > REF_TYPE_OFFSET for dtype in types.inputs)
    return takes and not node.op.startswith("Identity")


def _sources(graph: Graph) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By node what it reads and what it waits for; what closes loops does neither."""
    data: dict[str, list[str]] = {}
    controls: dict[str, list[str]] = {}
    for node in graph:
        data[node.name] = [
            tensor.node.name for tensor in node.inputs if tensor.node.op not in NEXT_ITERATIONS
        ]
        controls[node.name] = [source.name for source in node.control_inputs]
    return data, controls


def _in_order(
    data: Mapping[str, Iterable[str]], controls: Mapping[str, Iterable[str]]
) -> list[str]:
    """Names of the nodes, each after all that it needs; those in a cycle are left out."""
    waits: dict[str, int] = {}
    readers: dict[str, list[str]] = {}
    for name, sources in data.items():
        needed = {*sources, *controls[name]}
        waits[name] = len(needed)
        for source in needed:
            readers.setdefault(source, []).append(name)
    ready = deque(name for name, count in waits.items() if not count)
    order = []
    while ready:
        name = ready.popleft()
        order.append(name)
        for reader in readers.get(name, ()):
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return order
