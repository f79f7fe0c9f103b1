"""EffectsBeforeData: what the end of the data does not keep from running runs before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.sequencing.state import has_effect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node
    from memopt.graph.rewriter import Rewriter

_GIVE_DATA = ("IteratorGetNext", "QueueDequeue", "ReaderRead")
_OPTIONAL = "IteratorGetNextAsOptional"
"""It gives nothing where there is nothing, and does not fail."""
_HANDLES = (op_types.DT_RESOURCE, op_types.DT_VARIANT)


@dataclass(frozen=True)
class EffectsBeforeData(Pass):
    """Let data be read after all effects that do not depend on it.

    When a data set comes to its end, reading from it fails, and the step with it. All that does not
    depend on the data has run then: an optimizer's count of steps goes up once more, and decay that
    is not part of the gradient is taken off the weights. An order of execution, in which most of
    that waits for something made of data, would keep it from running, and the training would go on
    from another state.

    1. Considered is what reads data and fails at its end: an iterator's next element, what comes
       out of a queue. Not an element that may be missing (`IteratorGetNextAsOptional`), unless a
       branch reads one that is not there, as `MirroredStrategy` ends its data.
    2. Where the data may come to an end (`GrapplerItem.data_ends`), it waits for every operation
       of the same task with an effect to which no path leads from any of those, nor from what waits
       for others without an edge (queues, collectives) or calls functions that have state. Where
       it does not end as far as is known, it waits for those alone that read and make little: that
       costs nothing, and others may call the same graph.

    Nothing is done in a graph that reads no data. Refused, with a reason in the report: what reads
    data where TensorFlow 1's control flow decides whether it runs, or how often, and nothing asks
    before whether there is more.
    """

    name: ClassVar[str] = "effects-before-data"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.CONTROL_EDGES})

    small_bytes: int = 4096
    """What is little: the inputs and outputs of an operation together."""

    def __post_init__(self) -> None:
        if self.small_bytes < 0:
            raise OptionsError(f"{self.name}: small_bytes is less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Find what is independent of all data, and let data wait for it; linear in edges."""
        graph = rewriter.graph
        failing = [node for node in graph if _gives_data(node) and node.name not in context.fed]
        if not failing:
            return
        flow = _Flow(graph)
        readers = _unconditional(graph, failing, flow)
        if not readers:
            for node in failing:
                rewriter.decline(node, "whether it runs, or how often, is decided by control flow")
            return
        flow.follow([*failing, *readers])
        effects = self._effects(graph, flow, context)
        found = {reader: flow.last_of(_beside(reader, effects)) for reader in readers}
        waits = {at: last for at, last in found.items() if not {*last} <= {*at.control_inputs}}
        if not waits:
            return
        count = len({node for last in waits.values() for node in last})
        with rewriter.edit(f"{count} effects that do not depend on data come before it is read"):
            for reader, last in waits.items():
                controls = dict.fromkeys((*reader.control_inputs, *last))
                rewriter.set_control_inputs(reader, tuple(controls))

    def _effects(self, graph: Graph, flow: _Flow, context: Context) -> list[Node]:
        """What runs whatever becomes of the data, has an effect, and is to come first."""
        return [
            node
            for node in graph
            if has_effect(node, graph.library)
            and flow.is_independent(node)
            and node.name not in context.fed
            and (context.data_ends or self._is_small(node, context))
        ]

    def _is_small(self, node: Node, context: Context) -> bool:
        total_bytes = 0
        for tensor in (*node.inputs, *node.outputs):
            outputs = context.properties.outputs(tensor.node.name)
            known = outputs[tensor.port] if tensor.port < len(outputs) else None
            if known is not None and known.dtype in _HANDLES:
                continue
            if known is None or known.size_bytes is None:
                return False
            total_bytes += known.size_bytes
        return total_bytes <= self.small_bytes


class _Flow:
    """What leads where in a graph that reads data."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._numbering = Numbering.of(graph)
        nodes = self._numbering.nodes
        self._from_flow = self._behind(
            at for at, node in enumerate(nodes) if node.op in op_types.CONTROL_FLOW
        )
        self._from_data = [False] * len(nodes)

    def follow(self, readers: list[Node]) -> None:
        """Find out what depends on data, or on what nobody can tell."""
        nodes = self._numbering.nodes
        waiting = (at for at, node in enumerate(nodes) if _may_wait(node, self._graph))
        self._from_data = self._behind((*map(self._numbering.place, readers), *waiting))

    def _behind(self, places: Iterable[int]) -> list[bool]:
        """By node: whether it is one of some, or a path leads to it from one of them."""
        found = [False] * len(self._numbering.nodes)
        for place in places:
            found[place] = True
        for place in self._numbering.order:
            found[place] |= any(found[p] for p in self._numbering.producers[place])
        return found

    def is_conditional(self, node: Node) -> bool:
        """Whether control flow decides if a node runs."""
        return self._from_flow[self._numbering.place(node)]

    def is_independent(self, node: Node) -> bool:
        """Whether a node runs whatever becomes of the data."""
        place = self._numbering.place(node)
        return not (self._from_data[place] or self._from_flow[place])

    def last_of(self, nodes: list[Node]) -> list[Node]:
        """Those of some nodes from which no path leads to another one of them."""
        places = {self._numbering.place(node) for node in nodes}
        leads_on = [False] * len(self._numbering.nodes)
        for place in reversed(self._numbering.order):
            leads_on[place] = any(
                user in places or leads_on[user] for user in self._numbering.users[place]
            )
        return [node for node in nodes if not leads_on[self._numbering.place(node)]]


def _unconditional(graph: Graph, failing: list[Node], flow: _Flow) -> list[Node]:
    """What reads data in any case: of what fails at its end, and of what asks for more before."""
    readers = [node for node in failing if not flow.is_conditional(node)]
    if len(readers) < len(failing):
        # Whether there is more is asked first then, and what is not there read in a branch.
        asking = [node for node in graph if node.op == _OPTIONAL]
        readers += [node for node in asking if not flow.is_conditional(node)]
    return readers


def _beside(reader: Node, nodes: list[Node]) -> list[Node]:
    """Those of some nodes that run in a reader's task."""
    where = _task(reader)
    return [node for node in nodes if not where or _task(node) in ("", where)]


def _task(node: Node) -> str:
    return node.device.partition("/device:")[0]


def _may_wait(node: Node, graph: Graph) -> bool:
    """Whether a node waits for what no edge leads to, or may, or read data, in what it calls."""
    if node.op.startswith(op_types.WAITING):
        return True
    library = graph.library
    if library is None or not op_types.called_functions(node, library):
        return False
    return op_types.is_stateful(node, library)


def _gives_data(node: Node) -> bool:
    return node.op.startswith(_GIVE_DATA) and node.op != _OPTIONAL
