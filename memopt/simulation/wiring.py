"""A graph as the virtual scheduler runs it: integers for nodes, ports, edges and devices.

What `SchedulerState::Init` builds (tensorflow/core/grappler/costs/virtual_scheduler.cc): the nodes
that lead to a fetch, an implicit Send and Recv for each tensor and device that it is needed on, and
the sizes of all outputs.
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.op_types import MERGES, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.item import GrapplerItem
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties
    from memopt.simulation.placer import VirtualPlacer

SENDS = frozenset({"_Send", "_HostSend"})
RECEIVES = frozenset({"_Recv", "_HostRecv"})

CONTROL_MESSAGE_BYTES = 4
"""What a control edge is taken to hold (`CalculateOutputSize` of port -1)."""

_TENSOR_NAME = "tensor_name"
_OUTPUT_SLOTS = "_output_slot_vector"
_STREAMING = "_streaming"
_SWAPPED_INPUTS = "_swap_to_host"


class Request(NamedTuple):
    """What a step is run for.

    Attributes:
        fetched: Names of the nodes that the caller asks for, in order.
        fed: Names of the nodes whose outputs the caller gives: ready at the start.
    """

    fetched: tuple[str, ...]
    fed: frozenset[str]

    @classmethod
    def of(cls, item: GrapplerItem) -> Request:
        """What an item is used for."""
        fetched = dict.fromkeys(name.partition(":")[0] for name in item.fetch)
        return cls(tuple(fetched), frozenset(name.partition(":")[0] for name in item.feed))


class Transfer(NamedTuple):
    """An implicit Send or Recv.

    Attributes:
        name: As TensorFlow calls it.
        op: "_Send" or "_Recv".
        reads: Name of the node that it waits for.
        tensor: What is sent; `None` for a control message.
        source: Full name of the device that it comes from.
        destination: Full name of the device that it goes to.
    """

    name: str
    op: str
    reads: str
    tensor: Tensor | None
    source: str
    destination: str


class Wiring:
    """The part of a graph that leads to its fetches, frozen.

    A node's number is its place in the depth-first order in which Grappler finds it, implicit
    transfers behind; a port's number is `first_port[node] + port`, and `control_port[node]`, the
    one after the last, stands for its control edges.

    Attributes:
        nodes: What runs, by number.
        number: For each node of the graph, by its index, its number, or -1 if it does not run.
        device: For each number the device, an index into `devices`.
        devices: Full names of devices and channels.
        users: For each number those that wait for it, repeated for each edge: control edges
            first, then from the last port down, as TensorFlow's hash table has them.
        waits: For each number how many edges it waits for.
        reads: For each number the ports that it reads, repeated for each edge, without those that
            hold no temporary memory.
        produced_bytes: For each number the bytes of its outputs that someone reads; 0 if they are
            persistent.
        port_bytes: For each port its bytes.
        temporary_bytes: For each port the bytes that are freed after its last use: none for what is
            persistent or streams.
        port_edges: For each port how many edges read it.
        port_owner: For each port the number of its node.
        real: How many of `nodes` are nodes of the graph; they come first.
        persistent: The numbers of nodes whose outputs last for ever.
        merges: The numbers of Merges.
        sends: The numbers of Sends, implicit ones included.
        receives: The numbers of Recvs.
        initial: The numbers that are ready at the start.
        edges: For each number the ports that it waits for, repeated for each edge.
        data_ports: For each number the ports of the tensors that it reads, on whatever device;
            those that an annotation says to swap are left out.
    """

    def __init__(
        self,
        graph: Graph,
        request: Request,
        properties: Properties,
        placer: VirtualPlacer,
        persistent_ops: Collection[str],
        *,
        sends_controls: bool = False,
    ) -> None:
        self._properties = properties
        self._placer = placer
        self._persistent_ops = persistent_ops
        self._sends_controls = sends_controls
        self._send_by_tensor = _explicit_sends(graph)
        self._graph_nodes: list[Node] = []
        self.number = [-1] * graph.index_limit
        self._find(graph, request.fetched)
        self.nodes: list[Node | Transfer] = list(self._graph_nodes)
        self.real = len(self.nodes)
        self.devices: list[str] = []
        self._device_number: dict[str, int] = {}
        self._placed: list[int] = []
        self.device: list[int] = []
        self.persistent: set[int] = set()
        self.merges: set[int] = set()
        self.sends: set[int] = set()
        self.receives: set[int] = set()
        self._place()
        self.first_port: list[int] = []
        self.control_port: list[int] = []
        self.port_bytes: list[int] = []
        self.temporary_bytes: list[int] = []
        self.port_owner: list[int] = []
        self.port_edges: list[int] = []
        self._uses: list[list[tuple[int, int]]] = []
        self._number_ports()
        self._receivers: dict[tuple[int, int], int] = {}
        self.waits: list[int] = []
        self.reads: list[list[int]] = []
        self.initial: list[int] = []
        self.edges: list[list[int]] = []
        self.data_ports: list[list[int]] = []
        self._connect(request.fed)
        self.users = [_in_native_order(uses) for uses in self._uses]
        self._keep_one_branch()
        self._uses.clear()
        self.produced_bytes = [0] * len(self.nodes)
        for number in range(len(self.nodes)):
            self.count_produced(number)

    def name(self, number: int) -> str:
        """The name of what runs under a number."""
        return self.nodes[number].name

    def ports(self, number: int) -> range:
        """The ports of a number, that of its control edges not counted."""
        return range(self.first_port[number], self.control_port[number])

    def outputs(self, number: int) -> tuple[TensorProperties, ...]:
        """What is known of the outputs of a number; a transfer's is that of what it carries."""
        node = self.nodes[number]
        if not isinstance(node, Transfer):
            return self._properties.outputs(node.name)
        if node.tensor is None:
            return ()
        outputs = self._properties.outputs(node.tensor.node.name)
        return outputs[node.tensor.port : node.tensor.port + 1]

    def add_plain(self, node: Node, special_ops: Collection[str]) -> bool:
        """Number one more node, on the only device; false if its kind is not that simple."""
        if node.op in special_ops or self.place(node) != self.devices[0]:
            return False
        if _STREAMING in node.attributes:
            return False
        number = len(self.nodes)
        self.number[node.index] = number
        self.nodes.append(node)
        self.real += 1
        self.device.append(0)
        if self.is_persistent(node):
            self.persistent.add(number)
        self._add_ports(number, self.sizes(node))
        self.waits.append(0)
        self.users.append([])
        self.produced_bytes.append(0)
        for lists in (self.edges, self.reads, self.data_ports):
            lists.append([])
        return True

    def is_persistent(self, node: Node) -> bool:
        """Whether a node's outputs last for ever."""
        return node.op in self._persistent_ops

    def place(self, node: Node) -> str:
        """Full name of the device that a node runs on."""
        return self._placer.place(node.device)

    def _find(self, graph: Graph, fetched: Iterable[str]) -> None:
        """Number everything that leads to a fetch (`ComputeTransitiveFanin`)."""
        number, nodes = self.number, self._graph_nodes
        pending = [graph[name] for name in fetched]
        while pending:
            node = pending.pop()
            if number[node.index] >= 0:
                continue
            number[node.index] = len(nodes)
            nodes.append(node)
            pending += [tensor.node for tensor in node.inputs]
            pending += node.control_inputs
            send = self._send_for(node)
            if send is not None:
                pending.append(send)

    def _send_for(self, node: Node) -> Node | None:
        """The Send of the graph that a Recv of the graph waits for."""
        if node.op not in RECEIVES or _TENSOR_NAME not in node.attributes:
            return None
        return self._send_by_tensor.get(node.attributes[_TENSOR_NAME].s)

    def _place(self) -> None:
        place = self._placer.place
        sets = dict.fromkeys(SENDS, self.sends)
        sets |= dict.fromkeys(RECEIVES, self.receives)
        sets |= dict.fromkeys(MERGES, self.merges)
        sets |= dict.fromkeys(self._persistent_ops, self.persistent)
        for number, node in enumerate(self._graph_nodes):
            self._placed.append(self._device(place(node.device)))
            if node.op in sets:
                sets[node.op].add(number)
        self.device = list(self._placed)
        for number in self.sends:
            # TensorFlow leaves the device of a graph's own Send empty when it runs it.
            self.device[number] = self._device("")

    def _device(self, name: str) -> int:
        number = self._device_number.get(name)
        if number is None:
            number = self._device_number[name] = len(self.devices)
            self.devices.append(name)
        return number

    def _number_ports(self) -> None:
        for number, node in enumerate(self._graph_nodes):
            sizes = self.sizes(node)
            self._add_ports(number, sizes)
            self._uses.append([])
            if _STREAMING in node.attributes:
                for port, streams in enumerate(node.attributes[_STREAMING].list.b[: len(sizes)]):
                    if streams:
                        self.temporary_bytes[self.first_port[number] + port] = 0

    def sizes(self, node: Node) -> list[int]:
        """The bytes of each output of a node, as TensorFlow counts them."""
        sizes = [output.least_bytes for output in self._properties.outputs(node.name)]
        # Of a node of which nothing is known there is what is read of it all the same.
        return sizes + [0] * (node.port_limit - len(sizes))

    def _add_ports(self, number: int, sizes: list[int]) -> None:
        self.first_port.append(len(self.port_bytes))
        self.port_bytes += sizes
        self.control_port.append(len(self.port_bytes))
        self.port_bytes.append(CONTROL_MESSAGE_BYTES)
        if number in self.persistent:
            self.temporary_bytes += [0] * (len(sizes) + 1)
        else:
            self.temporary_bytes += sizes
            self.temporary_bytes.append(CONTROL_MESSAGE_BYTES)
        self.port_owner += [number] * (len(sizes) + 1)
        self.port_edges += [0] * (len(sizes) + 1)

    def _connect(self, fed: Collection[str]) -> None:
        """Make every edge, with a Send and a Recv where it crosses devices."""
        number_of, edge = self.number, self._edge
        self.waits = [0] * self.real
        self.reads = [[] for _ in self._graph_nodes]
        self.edges = [[] for _ in self._graph_nodes]
        self.data_ports = [[] for _ in self._graph_nodes]
        for number, node in enumerate(self._graph_nodes):
            data, controls = node.inputs, node.control_inputs
            if node.op in RECEIVES:
                send = self._send_for(node)
                data, controls = (() if send is None else (send.output(0),)), ()
            elif not node.inputs and not node.control_inputs:
                self.initial.append(number)
                continue
            self.data_ports[number] = self.ports_read(node)
            ports = [edge(number_of[t.node.index], t.port, t, number) for t in data]
            ports += [edge(number_of[control.index], -1, None, number) for control in controls]
            self.waits[number] = len(ports)
            self.edges[number] = ports
            self.reads[number] = self.temporary(ports)
            if not ports or node.name in fed:
                self.initial.append(number)

    def ports_read(self, node: Node) -> list[int]:
        """The ports of the tensors that a node reads, without those that are to be swapped."""
        first_port, number_of = self.first_port, self.number
        ports = [first_port[number_of[t.node.index]] + t.port for t in node.inputs]
        if _SWAPPED_INPUTS in node.attributes:
            swapped = set(node.attributes[_SWAPPED_INPUTS].list.i)
            ports = [port for slot, port in enumerate(ports) if slot not in swapped]
        return ports

    def _edge(self, producer: int, port: int, tensor: Tensor | None, user: int) -> int:
        """Connect a port to a user, through a Recv if need be; returns the port that is read."""
        placed = self._placed
        if placed[producer] != placed[user] and (port >= 0 or self._sends_controls):
            producer, port = self._received(producer, port, tensor, user), 0
        self._uses[producer].append((port, user))
        place = self.first_port[producer] + port if port >= 0 else self.control_port[producer]
        self.port_edges[place] += 1
        return place

    def _received(self, producer: int, port: int, tensor: Tensor | None, user: int) -> int:
        """The Recv of a port on a user's device, one for all users there (`CreateSendRecv`)."""
        place = self.first_port[producer] + port if port >= 0 else self.control_port[producer]
        known = self._receivers.get((place, self._placed[user]))
        if known is not None:
            return known
        source = self.devices[self._placed[producer]]
        destination = self.devices[self._placed[user]]
        start, end = source.replace(":", "_"), destination.replace(":", "_")
        what = f"{self.name(producer)}_{port if port >= 0 else 'minus1'}"
        names = (f"Send_{what}_from_{start}_to_{end}", f"Recv_{what}_on_{end}")
        places = (f"Channel_from_{start}_to_{end}", destination)
        waits_for = (self.name(producer), names[0])
        send, receive = (
            self._add_transfer(Transfer(name, op, reads, tensor, source, destination), on, place)
            for name, op, reads, on in zip(
                names, ("_Send", "_Recv"), waits_for, places, strict=True
            )
        )
        self.sends.add(send)
        self.receives.add(receive)
        self._receivers[place, self._placed[user]] = receive
        for port_read, reader in ((place, send), (self.first_port[send], receive)):
            owner = self.port_owner[port_read]
            self._uses[owner].append((port if owner == producer else 0, reader))
            self.port_edges[port_read] += 1
            self.edges[reader] = [port_read]
            self.reads[reader] = self.temporary([port_read])
        return receive

    def _add_transfer(self, transfer: Transfer, device: str, port: int) -> int:
        number = len(self.nodes)
        self.nodes.append(transfer)
        self.device.append(self._device(device))
        self.waits.append(1)
        self.edges.append([])
        self.reads.append([])
        self.data_ports.append([])
        self._uses.append([])
        self._add_ports(number, [self.port_bytes[port]])
        return number

    def temporary(self, ports: list[int]) -> list[int]:
        """Those ports whose memory is freed after their last use."""
        temporary = self.temporary_bytes
        return [port for port in ports if temporary[port]]

    def _keep_one_branch(self) -> None:
        """Of a Switch that is known to take one output always, only that one goes on."""
        for number, node in enumerate(self._graph_nodes):
            if node.op not in SWITCHES or _OUTPUT_SLOTS not in node.attributes:
                continue
            slots = set(node.attributes[_OUTPUT_SLOTS].list.i)
            if len(slots) == 1 and min(slots) >= 0:
                self.users[number] = [user for port, user in self._uses[number] if port in slots]

    def count_produced(self, number: int) -> None:
        """Add up the bytes that a number holds from when it ran: the outputs that someone reads."""
        ports = slice(self.first_port[number], self.control_port[number] + 1)
        read = compress(self.temporary_bytes[ports], self.port_edges[ports])
        self.produced_bytes[number] = sum(read)


def _explicit_sends(graph: Graph) -> dict[bytes, Node]:
    return {
        node.attributes[_TENSOR_NAME].s: node
        for node in graph
        if node.op in SENDS and _TENSOR_NAME in node.attributes
    }


def _in_native_order(uses: list[tuple[int, int]]) -> list[int]:
    """Users by descending port, in their own order within a port; control edges first."""
    if len(uses) > 1:
        ports = {port for port, _ in uses}
        if len(ports) > 1:
            uses = sorted(uses, key=lambda use: -use[0] if use[0] >= 0 else -1 << 30)
    return [user for _, user in uses]
