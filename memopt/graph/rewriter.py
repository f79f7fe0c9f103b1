"""The only mutator of a graph: every edit has a reason, and all of it can be undone."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import Overview, Table, names_text
from memopt.errors import RewriteError
from memopt.graph.functiondef import Library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memopt.graph.graph import Graph, Node, NodeState, Tensor


class Touches(Enum):
    """The kinds of change that an edit can make; passes declare which are theirs."""

    NODES = auto()
    DATA_EDGES = auto()
    CONTROL_EDGES = auto()
    ATTRIBUTES = auto()
    OPS = auto()
    DEVICES = auto()
    FUNCTIONS = auto()


class Decision(NamedTuple):
    """One of the decisions that an edit consists of: about which node, and why."""

    node: str
    reason: str


class Planned(NamedTuple):
    """What a plan comes to that an edit carries out, as estimated.

    Attributes:
        step_bytes: What the step's own results take at the peak.
        overhead: The share of its time that the step takes longer.
    """

    step_bytes: int = 0
    overhead: float = 0.0


NO_PLAN = Planned()
"""Of edits that carry out none."""


class Edit(NamedTuple):
    """One change that belongs together, as it is reported.

    Attributes:
        reason: Why, in words.
        added: Names of the new nodes.
        removed: Names of the nodes taken out.
        changed: Names of the nodes that were there before and after and differ.
        releases: Tensors (`node:port`) that no longer have to be kept because of this edit.
        holds: Tensors that have to be kept longer, or that come new, because of it.
        touches: What kinds of change were made.
        decisions: The decisions that it consists of, where there are several; what matters most
            comes first.
        planned: What the plan comes to that it carries out.
    """

    reason: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    releases: tuple[str, ...]
    holds: tuple[str, ...]
    touches: frozenset[Touches]
    decisions: tuple[Decision, ...] = ()
    planned: Planned = NO_PLAN

    def __repr__(self) -> str:
        return _overview(self).text()

    def _repr_html_(self) -> str:
        return _overview(self).html()


class Declined(NamedTuple):
    """A candidate that a pass left alone, and why."""

    node: str
    reason: str

    def __repr__(self) -> str:
        return Overview("Declined", f"{self.node}: {self.reason}").text()

    def _repr_html_(self) -> str:
        return Overview("Declined", f"{self.node}: {self.reason}").html()


def _overview(edit: Edit) -> Overview:
    """The edit's reason, names and decisions."""
    named = {
        "added": edit.added,
        "removed": edit.removed,
        "changed": edit.changed,
        "releases": edit.releases,
        "holds": edit.holds,
    }
    rows = tuple((role, names_text(names)) for role, names in named.items() if names)
    decisions = Table.of(("decision about", "reason"), edit.decisions, tuple)
    return Overview("Edit", edit.reason, (Table(("", ""), rows), decisions))


class Checkpoint(NamedTuple):
    """A moment in a rewriter's history to which it can go back."""

    steps: int
    edits: int
    declined: int


class OpenEdit:
    """The edit that is being made: a context manager, from `Rewriter.edit`."""

    def __init__(
        self,
        rewriter: Rewriter,
        reason: str,
        releases: tuple[str, ...],
        holds: tuple[str, ...],
        decisions: tuple[Decision, ...],
        planned: Planned,
    ) -> None:
        self._rewriter = rewriter
        self._decisions = decisions
        self._planned = planned
        self._start = rewriter.checkpoint()
        self.reason = reason
        self.releases = releases
        self.holds = holds
        self.added: dict[str, None] = {}
        self.removed: dict[str, None] = {}
        self.changed: dict[str, None] = {}
        self.touches: set[Touches] = set()

    def __enter__(self) -> None:
        self._rewriter.open_edit(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._rewriter.close_edit(self, self._start, failed=kind is not None)

    def record(self) -> Edit:
        """The edit as it is reported."""
        return Edit(
            self.reason,
            tuple(self.added),
            tuple(self.removed),
            tuple(name for name in self.changed if name not in self.removed),
            self.releases,
            self.holds,
            frozenset(self.touches),
            self._decisions,
            self._planned,
        )


class Rewriter:
    """Changes a graph on behalf of a pass, and keeps the record.

    Changes are made inside `with rewriter.edit(reason): ...`. An exception inside undoes that edit.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._steps: list[tuple[Node | str, NodeState | None, bool]] = []
        """What to undo: a node with the state that it had, or a function by its name."""
        self._edits: list[Edit] = []
        self._declined: list[Declined] = []
        self._open: OpenEdit | None = None

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What was changed, in order."""
        return tuple(self._edits)

    @property
    def declined(self) -> tuple[Declined, ...]:
        """What was considered and left alone, in order."""
        return tuple(self._declined)

    @property
    def modified(self) -> bool:
        """Whether any edit stands."""
        return bool(self._edits)

    def edit(
        self,
        reason: str,
        *,
        releases: Iterable[Tensor] = (),
        holds: Iterable[Tensor] = (),
        decisions: Iterable[Decision] = (),
        planned: Planned = NO_PLAN,
    ) -> OpenEdit:
        """Make the changes of one edit: `with rewriter.edit(reason): ...`.

        Args:
            reason: Why, in words, for the report.
            releases: Tensors that need not be kept any longer because of the edit.
            holds: Tensors that must be kept longer because of it.
            decisions: What it consists of, for the report.
            planned: What the plan comes to that it carries out.

        Raises:
            RewriteError: Another edit is open.
        """
        released = tuple(tensor.name for tensor in releases)
        held = tuple(tensor.name for tensor in holds)
        return OpenEdit(self, reason, released, held, tuple(decisions), planned)

    def open_edit(self, edit: OpenEdit) -> None:
        """Begin an edit; `with rewriter.edit(reason)` does it."""
        if self._open is not None:
            raise RewriteError("an edit is already open")
        self._open = edit

    def close_edit(self, edit: OpenEdit, start: Checkpoint, *, failed: bool) -> None:
        """End an edit, and undo it if it failed; `with rewriter.edit(reason)` does it."""
        self._open = None
        if failed:
            self._undo(start.steps)
        elif len(self._steps) > start.steps:
            self._edits.append(edit.record())

    def hold_to(self, order: Iterable[Node]) -> None:
        """Record in which order edges now hold the nodes that run."""
        self.graph.set_order(tuple(order))

    def decline(self, node: Node, reason: str) -> None:
        """Record that a candidate was considered and left alone."""
        self._declined.append(Declined(node.name, reason))

    def checkpoint(self) -> Checkpoint:
        """This moment, for `revert`."""
        return Checkpoint(len(self._steps), len(self._edits), len(self._declined))

    def revert(self, checkpoint: Checkpoint) -> None:
        """Undo everything since the checkpoint, records included."""
        self._undo(checkpoint.steps)
        del self._edits[checkpoint.edits :]
        del self._declined[checkpoint.declined :]

    def add_node(
        self,
        name: str,
        op: str,
        *,
        inputs: Iterable[Tensor] = (),
        control_inputs: Iterable[Node] = (),
        device: str = "",
        attributes: Mapping[str, Any] | None = None,
    ) -> Node:
        """Append a node.

        Raises:
            InvalidGraphError: The name is taken.
            RewriteError: No edit is open.
        """
        record = self._require_open()
        node = self.graph.add_node(
            name, op, device=device, attributes={} if attributes is None else attributes
        )
        self._steps.append((node, None, True))
        self.graph.connect(node, tuple(inputs), dict.fromkeys(control_inputs))
        record.added[name] = None
        record.touches.add(Touches.NODES)
        return node

    def add_function(self, function: Any) -> None:
        """Put a function, a FunctionDef, into the library of the graph.

        Raises:
            RewriteError: No edit is open, or the graph has no library of its own.
        """
        record = self._require_open()
        self._library().add(function)
        self._steps.append((function.signature.name, None, True))
        record.touches.add(Touches.FUNCTIONS)

    def remove_node(self, node: Node) -> None:
        """Take out a node that nothing uses.

        Raises:
            RewriteError: The node still has users, or no edit is open.
        """
        record = self._require_open()
        self.graph.remove_node(node)
        self._steps.append((node, None, False))
        record.removed[node.name] = None
        record.touches.add(Touches.NODES)

    def set_inputs(self, node: Node, inputs: Iterable[Tensor]) -> None:
        """Replace all data inputs of a node."""
        self._change(node, node.state.with_inputs(tuple(inputs)), Touches.DATA_EDGES)

    def set_input(self, node: Node, slot: int, tensor: Tensor) -> None:
        """Make a node read another tensor at one input slot."""
        inputs = list(node.inputs)
        inputs[slot] = tensor
        self.set_inputs(node, inputs)

    def replace_uses(self, tensor: Tensor, replacement: Tensor) -> None:
        """Make every reader of a tensor read another one."""
        for node, slot in tensor.uses:
            self.set_input(node, slot, replacement)

    def set_control_inputs(self, node: Node, controls: Iterable[Node]) -> None:
        """Replace all control inputs of a node; repeats count once."""
        state = node.state._replace(controls=tuple(dict.fromkeys(controls)))
        self._change(node, state, Touches.CONTROL_EDGES)

    def add_control_input(self, node: Node, control: Node) -> None:
        """Make a node wait for another; nothing happens if it does already."""
        if not node.has_control_input(control):
            self.set_control_inputs(node, (*node.control_inputs, control))

    def replace_waits(self, node: Node, *replacements: Node) -> None:
        """Make all that wait for a node wait for others instead."""
        for user in node.control_users:
            others = [before for before in user.control_inputs if before is not node]
            self.set_control_inputs(user, (*others, *replacements))

    def set_op(self, node: Node, op: str, attributes: dict[str, Any]) -> None:
        """Turn a node into another operation, with that operation's attributes."""
        state = node.state._replace(op=op, attributes=attributes)
        self._change(node, state, Touches.OPS, Touches.ATTRIBUTES)

    def set_attribute(self, node: Node, name: str, value: Any) -> None:
        """Set one attribute of a node."""
        state = node.state._replace(attributes={**node.attributes, name: value})
        self._change(node, state, Touches.ATTRIBUTES)

    def set_device(self, node: Node, device: str) -> None:
        """Place a node on another device."""
        self._change(node, node.state._replace(device=device), Touches.DEVICES)

    def _change(self, node: Node, state: NodeState, *touches: Touches) -> None:
        record = self._require_open()
        before = node.state
        if state == before:
            return
        self.graph.set_state(node, state)
        node.changed = True
        self._steps.append((node, before, False))
        if node.name not in record.added:
            record.changed[node.name] = None
        record.touches.update(touches)

    def _library(self) -> Library:
        library = self.graph.library
        if not isinstance(library, Library):
            raise RewriteError("the graph has no library for a new function")
        return library

    def _require_open(self) -> OpenEdit:
        if self._open is None:
            raise RewriteError("a graph is changed inside `with rewriter.edit(reason)`")
        return self._open

    def _undo(self, steps: int) -> None:
        while len(self._steps) > steps:
            node, state, added = self._steps.pop()
            if isinstance(node, str):
                self._library().remove_added(node)
            elif state is not None:
                self.graph.set_state(node, state)
            elif added:
                self.graph.remove_node(node)
            else:
                self.graph.restore_node(node)
