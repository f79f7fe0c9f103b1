"""Brings a wiring up to date with a graph that was edited, in the time that the edits take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.op_types import MERGES, SWITCHES
from memopt.simulation.wiring import RECEIVES, SENDS, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memopt.graph.graph import Graph, Node
    from memopt.simulation.wiring import Request, Wiring

_NOT_PLAIN = MERGES | SENDS | RECEIVES | SWITCHES


def rewire(
    wiring: Wiring, graph: Graph, request: Request, touched: Iterable[Node]
) -> list[int] | None:
    """Change a wiring to what it would be if it were built now, up to the order of numbers.

    Only for one device and no v1 control flow, where the order decides nothing.

    Args:
        wiring: The wiring; spoilt if it cannot be brought up to date.
        graph: The graph as it is now.
        request: What the wiring was built for.
        touched: The nodes that were changed or added since.

    Returns:
        The numbers whose costs may have changed, new ones included; `None` if a new wiring must be
        built: a node was taken out, or no longer leads to a fetch, or changed in kind.
    """
    if len(wiring.devices) > 1 or wiring.merges or wiring.sends or wiring.receives:
        return None
    return _Rewiring(wiring, graph, request).apply(touched)


class _Rewiring:
    def __init__(self, wiring: Wiring, graph: Graph, request: Request) -> None:
        self._wiring = wiring
        self._graph = graph
        self._request = request
        self._owners: dict[int, None] = {}
        """The numbers whose users changed."""

    def apply(self, touched: Iterable[Node]) -> list[int] | None:
        wiring, graph = self._wiring, self._graph
        number = wiring.number
        number += [-1] * (graph.index_limit - len(number))
        changed: list[Node] = []
        for node in touched:
            if graph.find(node.name) is not node:
                return None
            if number[node.index] >= 0:
                changed.append(node)
        added = self._reach(changed)
        if added is None or not all(self._fits(node) for node in changed):
            return None
        for node in changed:
            self._disconnect(number[node.index])
        for node in (*changed, *added):
            self._connect(node)
        if not self._settle():
            return None
        return [number[node.index] for node in (*changed, *added)]

    def _reach(self, changed: list[Node]) -> list[Node] | None:
        """Number the nodes that lead to a fetch now and did not before."""
        wiring = self._wiring
        added: list[Node] = []
        pending = list(changed)
        while pending:
            node = pending.pop()
            for producer in (*(tensor.node for tensor in node.inputs), *node.control_inputs):
                if wiring.number[producer.index] >= 0:
                    continue
                if not wiring.add_plain(producer, _NOT_PLAIN):
                    return None
                added.append(producer)
                pending.append(producer)
        return added

    def _fits(self, node: Node) -> bool:
        """Whether a changed node still is the kind of node that its number stands for."""
        wiring = self._wiring
        number = wiring.number[node.index]
        ports = wiring.ports(number)
        return (
            node.op not in _NOT_PLAIN
            and wiring.is_persistent(node) == (number in wiring.persistent)
            and wiring.place(node) == wiring.devices[0]
            and wiring.sizes(node) == wiring.port_bytes[ports.start : ports.stop]
        )

    def _disconnect(self, number: int) -> None:
        wiring = self._wiring
        for port in wiring.edges[number]:
            wiring.port_edges[port] -= 1
            self._owners[wiring.port_owner[port]] = None

    def _connect(self, node: Node) -> None:
        wiring = self._wiring
        number_of, first_port = wiring.number, wiring.first_port
        number = number_of[node.index]
        edges = [first_port[number_of[t.node.index]] + t.port for t in node.inputs]
        edges += [wiring.control_port[number_of[control.index]] for control in node.control_inputs]
        for port in edges:
            wiring.port_edges[port] += 1
            self._owners[wiring.port_owner[port]] = None
        wiring.edges[number] = edges
        wiring.waits[number] = len(edges)
        wiring.reads[number] = wiring.temporary(edges)
        wiring.data_ports[number] = wiring.ports_read(node)

    def _settle(self) -> bool:
        """Bring up to date what depends on a node's users; false if one no longer has any."""
        wiring, request = self._wiring, self._request
        number_of, nodes = wiring.number, wiring.nodes
        for owner in self._owners:
            node = nodes[owner]
            assert not isinstance(node, Transfer)
            # A port that nobody read before has no number.
            if node.port_limit > len(wiring.ports(owner)):
                return False
            readers = [user for tensor in node.outputs for user, _ in tensor.uses]
            readers += node.control_users
            wiring.users[owner] = [number_of[u.index] for u in readers if number_of[u.index] >= 0]
            if not wiring.users[owner] and node.name not in request.fetched:
                return False
            wiring.count_produced(owner)
        waits, fed = wiring.waits, request.fed
        wiring.initial = [
            number
            for number in range(wiring.real)
            if not waits[number] or nodes[number].name in fed
        ]
        return True
