"""Graph, Node and Tensor: a dataflow graph whose edges know both of their ends.

Data edges lead from a `Tensor` (an output port of a node) to an input slot of a node; control
edges lead from node to node. Both directions are maintained by the graph, so a pass never searches
and never looks up names. A node's identity is the object; its `index` is a small integer that is
never reused, so arrays of `graph.index_limit` entries can stand beside the graph on hot paths.

The methods that change a graph are for the loaders and the `Rewriter`; passes use the `Rewriter`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from memopt.errors import InvalidGraphError, RewriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

Use = tuple["Node", int]
"""The consumer of a tensor and the input slot at which it consumes it."""


class Tensor:
    """One output port of a node, printed `node:port`."""

    __slots__ = ("_uses", "node", "port")

    def __init__(self, node: Node, port: int) -> None:
        self.node = node
        self.port = port
        self._uses: dict[Use, None] = {}

    @property
    def name(self) -> str:
        """The tensor's full name, `node:port`."""
        return f"{self.node.name}:{self.port}"

    @property
    def uses(self) -> tuple[Use, ...]:
        """Every data input that reads this tensor; safe to edit the graph while iterating."""
        return tuple(self._uses)

    def __str__(self) -> str:
        return self.name if self.port else self.node.name

    def __repr__(self) -> str:
        return f"Tensor({self.name})"


_NO_NODES: dict[Node, None] = {}
"""Shared by all nodes without control edges, and never written to; most nodes have none."""


_NO_TENSORS: dict[int, Tensor] = {}
"""Shared likewise: most nodes have one output at most."""


class NodeState(NamedTuple):
    """Everything about a node that an edit can change."""

    op: str
    device: str
    attributes: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    controls: tuple[Node, ...]
    changed: bool

    def with_inputs(self, inputs: tuple[Tensor, ...]) -> NodeState:
        """The same with other data inputs; on the hot path, where `_replace` is slow."""
        return NodeState(self.op, self.device, self.attributes, inputs, self.controls, self.changed)


class Node:
    """One operation: name, op, device, attributes and its edges. Changed only by its graph."""

    __slots__ = (
        "_control_users",
        "_controls",
        "_first",
        "_inputs",
        "_others",
        "attributes",
        "changed",
        "device",
        "index",
        "name",
        "op",
        "origin",
    )

    name: str
    op: str
    device: str
    attributes: Mapping[str, Any]
    """Attribute values, carried as the loader gave them; read-only."""
    index: int
    """Position in insertion order; never reused within the graph."""
    origin: object | None
    """What the node was loaded from, if it was."""
    changed: bool
    """Whether anything about the node differs from its origin."""

    def __init__(
        self,
        name: str,
        op: str,
        device: str,
        attributes: Mapping[str, Any],
        index: int,
        origin: object | None,
    ) -> None:
        self.name = name
        self.op = op
        self.device = device
        self.attributes = attributes
        self.index = index
        self.origin = origin
        self.changed = origin is None
        self._inputs: tuple[Tensor, ...] = ()
        self._controls: dict[Node, None] = _NO_NODES
        self._first: Tensor | None = None
        self._others: dict[int, Tensor] = _NO_TENSORS
        self._control_users: dict[Node, None] = _NO_NODES

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors read, by input slot."""
        return self._inputs

    @property
    def control_inputs(self) -> tuple[Node, ...]:
        """The nodes that must end before this one starts, in order, without repeats."""
        return tuple(self._controls)

    @property
    def control_users(self) -> tuple[Node, ...]:
        """The nodes that have this one as a control input."""
        return tuple(self._control_users)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The output ports that have been referred to so far, by port number."""
        others = tuple(self._others[port] for port in sorted(self._others))
        return others if self._first is None else (self._first, *others)

    @property
    def port_limit(self) -> int:
        """One more than the largest output port that has been referred to so far."""
        if self._others:
            return max(self._others) + 1
        return 0 if self._first is None else 1

    @property
    def users(self) -> tuple[Node, ...]:
        """Every node that depends on this one by data or control, each once."""
        found: dict[Node, None] = {}
        for tensor in self.outputs:
            found.update((node, None) for node, _ in tensor._uses)
        found.update(self._control_users)
        return tuple(found)

    @property
    def state(self) -> NodeState:
        """What an edit would replace; `Graph.set_state` puts it back."""
        return NodeState(
            self.op, self.device, self.attributes, self._inputs, tuple(self._controls), self.changed
        )

    def output(self, port: int = 0) -> Tensor:
        """The tensor at an output port. The op's signature is not consulted; `verify` does that."""
        if not port:
            if self._first is None:
                self._first = Tensor(self, 0)
            return self._first
        if port not in self._others:
            if self._others is _NO_TENSORS:
                self._others = {}
            self._others[port] = Tensor(self, port)
        return self._others[port]

    def has_control_input(self, node: Node) -> bool:
        """Whether `node` is a control input of this node."""
        return node in self._controls

    def __repr__(self) -> str:
        return f"Node({self.name}: {self.op})"


class FunctionLibrary(Protocol):
    """The functions that a graph's nodes call, by name."""

    def names(self) -> tuple[str, ...]:
        """Every function's name, in the order of the library."""

    def op_def(self, name: str) -> Any | None:
        """The signature of a function (an OpDef), or `None` when there is none of that name."""

    def graph(self, name: str) -> Graph:
        """The body as a graph, loaded once and then the same object."""

    def control_outputs(self, name: str) -> tuple[str, ...]:
        """The nodes of a function's body that run for their effects."""

    def stays_a_call(self, name: str) -> bool:
        """Whether a function is declared not to be inlined: TensorFlow prepares it by itself."""


class Graph:
    """Nodes in insertion order.

    Iterating is safe while the graph is edited: the nodes present at the start are visited in
    insertion order, those removed meanwhile are left out, those added meanwhile are not visited.
    """

    def __init__(self, library: FunctionLibrary | None = None, envelope: Any = None) -> None:
        self.library = library
        self.envelope = envelope
        """The message that the graph was loaded from: versions, and what memopt does not know."""
        self._touched: list[Node] = []
        """The node of every change since the graph was loaded."""
        self._first_version = 0
        self._loaded_version = -1
        self._derived: dict[Callable[[Graph], Any], tuple[int, Any]] = {}
        self._slots: list[Node | None] = []
        self._by_name: dict[str, Node] = {}
        self._order: tuple[int, tuple[Node, ...]] = (-1, ())

    def __iter__(self) -> Iterator[Node]:
        slots = self._slots
        for index in range(len(slots)):
            node = slots[index]
            if node is not None:
                yield node

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Node:
        node = self._by_name.get(name)
        if node is None:
            raise InvalidGraphError(f"the graph has no node {name!r}", node=name)
        return node

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._first_version + len(self._touched)

    def touched_since(self, version: int) -> tuple[Node, ...] | None:
        """The nodes that were changed, added or taken out since then, each once.

        `None` if that is too long ago: before the graph was loaded.
        """
        if version < self._first_version:
            return None
        return tuple(dict.fromkeys(self._touched[version - self._first_version :]))

    @property
    def order(self) -> tuple[Node, ...]:
        """The order that edges hold the nodes that run to; empty if none is known.

        It is known to whoever looks before the graph changes again.
        """
        version, nodes = self._order
        return nodes if version == self.version else ()

    def set_order(self, nodes: tuple[Node, ...]) -> None:
        """Say in which order the graph as it is now is held."""
        self._order = (self.version, nodes)

    @property
    def index_limit(self) -> int:
        """One more than the largest index that any node of this graph has had."""
        return len(self._slots)

    @property
    def by_name(self) -> Mapping[str, Node]:
        """The nodes by name: a read-only view that follows the graph."""
        return MappingProxyType(self._by_name)

    @property
    def changed(self) -> bool:
        """Whether anything happened to the graph since it was loaded."""
        return self.version != self._loaded_version

    def mark_loaded(self) -> None:
        """Declare the graph as it is now to be what its envelope describes."""
        self._loaded_version = self._first_version = self.version
        self._touched.clear()

    def derived(self, kind: Callable[[Graph], T]) -> T:
        """`kind(self)`, made once for each version of the graph."""
        version, value = self._derived.get(kind, (-1, None))
        if version != self.version:
            value = kind(self)
            self._derived[kind] = (self.version, value)
        result: T = value
        return result

    def find(self, name: str) -> Node | None:
        """The node of that name, or `None`."""
        return self._by_name.get(name)

    def add_node(
        self,
        name: str,
        op: str,
        *,
        device: str = "",
        attributes: Mapping[str, Any],
        origin: object | None = None,
    ) -> Node:
        """Append a node without edges.

        Raises:
            InvalidGraphError: The name is taken.
        """
        if name in self._by_name:
            raise InvalidGraphError(f"two nodes are called {name!r}", node=name)
        node = Node(name, op, device, attributes, len(self._slots), origin)
        self._slots.append(node)
        self._by_name[name] = node
        self._touched.append(node)
        return node

    def remove_node(self, node: Node) -> None:
        """Take out a node that nothing uses; its input edges go with it.

        Raises:
            RewriteError: The node still has users, or is not in this graph.
        """
        self._require_member(node)
        users = node.users
        if users:
            raise RewriteError(f"cannot remove {node.name!r}: {users[0].name!r} still uses it")
        self._unlink(node)
        self._slots[node.index] = None
        del self._by_name[node.name]
        self._touched.append(node)

    def restore_node(self, node: Node) -> None:
        """Put a removed node back at its place in the insertion order, with its input edges."""
        if self._slots[node.index] is not None or node.name in self._by_name:
            raise RewriteError(f"cannot restore {node.name!r}: its place is taken")
        self._slots[node.index] = node
        self._by_name[node.name] = node
        self._link(node)
        self._touched.append(node)

    def set_state(self, node: Node, state: NodeState) -> None:
        """Give a node another op, device, attributes and input edges, all at once."""
        self._require_member(node)
        self._unlink(node)
        node.op, node.device, node.attributes, node._inputs, controls, node.changed = state
        node._controls = dict.fromkeys(controls)
        self._link(node)
        self._touched.append(node)

    def connect(
        self,
        node: Node,
        inputs: tuple[Tensor, ...],
        controls: dict[Node, None] = _NO_NODES,
    ) -> None:
        """Give a node that was just added its edges; the loaders' short way to `set_state`."""
        node._inputs = inputs
        node._controls = controls
        self._link(node)
        self._touched.append(node)

    def _require_member(self, node: Node) -> None:
        if self._by_name.get(node.name) is not node:
            raise RewriteError(f"{node.name!r} is not a node of this graph")

    def _link(self, node: Node) -> None:
        slot = 0
        for tensor in node._inputs:
            tensor._uses[node, slot] = None
            slot += 1  # noqa: SIM113 - the hottest loop of all; enumerate costs a tuple a turn
        for producer in node._controls:
            if producer._control_users is _NO_NODES:
                producer._control_users = {}
            producer._control_users[node] = None

    def _unlink(self, node: Node) -> None:
        for slot, tensor in enumerate(node._inputs):
            del tensor._uses[node, slot]
        for producer in node._controls:
            del producer._control_users[node]
