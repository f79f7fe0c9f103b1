"""Who uses which state in a step: variables and other resources, and effects that nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.functiondef import Library
from memopt.graph.traversal import Numbering
from memopt.sequencing.state import READERS

if TYPE_CHECKING:
    from memopt.graph.graph import Graph, Node, Tensor

_DECLARATIONS = frozenset(
    "AutoReloadVariable TemporaryVariable VarHandleOp Variable VariableV2".split()
)
"""Ops that name state and do not touch it."""

_OF_ITS_OWN = frozenset(
    "Multinomial ParameterizedTruncatedNormal RandomGamma RandomPoisson RandomPoissonV2 "
    "RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt TensorArrayGradV3 "
    "TensorArrayV3 TruncatedNormal _Arg _Retval".split()
)
"""Stateful ops whose state belongs to the node or to the step, or that have none to speak of."""


class Use(NamedTuple):
    """A node, by position, that uses a state, and whether it may change it."""

    place: int
    writes: bool


class StateUses(NamedTuple):
    """All uses of state in a graph.

    Attributes:
        states: For each state its uses, by position.
        effects: Positions of the nodes that may do what no edge tells of: print, call Python, stop
            the step.
    """

    states: tuple[tuple[Use, ...], ...]
    effects: tuple[int, ...]


def find_state_uses(graph: Graph) -> StateUses:
    """Who uses which state; two handles that are made apart are taken to mean two states.

    TensorFlow takes them so as well when it orders the operations of a function.
    """
    return _Finder(graph).find()


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._numbering = Numbering.of(graph)
        self._uses: dict[tuple[str, int], dict[int, bool]] = {}
        self._is_certain = True
        self._clean_bodies: dict[str, bool] = {}

    def find(self) -> StateUses:
        effects = []
        for place, node in enumerate(self._numbering.nodes):
            if node.op in op_types.REF_VARIABLES:
                self._follow_reference(node)
            if self._touch_resources(place, node):
                has_effects = not self._are_clean(self._called(node))
            else:
                has_effects = self._has_effects(node)
            if has_effects:
                effects.append(place)
        uses = list(self._uses.values())
        if not self._is_certain:
            uses = [_joined(uses)]
        return StateUses(
            tuple(tuple(Use(place, used[place]) for place in sorted(used)) for used in uses),
            tuple(effects),
        )

    def _touch_resources(self, place: int, node: Node) -> bool:
        """Record the uses of resources by a node; whether there are any."""
        if node.op in op_types.FORWARDING:
            return False
        types = op_types.port_types(node, self._graph.library).inputs
        if op_types.DT_RESOURCE not in types:
            return False
        for tensor, dtype in zip(node.inputs, types, strict=True):
            if dtype == op_types.DT_RESOURCE:
                self._record(self._root(tensor), place, writes=node.op not in READERS)
        return True

    def _record(self, state: tuple[str, int], place: int, *, writes: bool) -> None:
        used = self._uses.setdefault(state, {})
        used[place] = used.get(place, False) or writes

    def _root(self, tensor: Tensor) -> tuple[str, int]:
        """The state that a handle means."""
        node = tensor.node
        while node.op in op_types.FORWARDING:
            tensor = node.inputs[tensor.port if node.op == "IdentityN" else 0]
            node = tensor.node
        if node.op == "VarHandleOp":
            shared = node.attributes.get("shared_name")
            return (shared.s.decode(errors="replace") if shared and shared.s else node.name, 0)
        types = op_types.port_types(node, self._graph.library).inputs
        if op_types.DT_RESOURCE in types or op_types.DT_VARIANT in types:
            self._is_certain = False  # It may be any of those that went in.
        return node.name, tensor.port

    def _follow_reference(self, variable: Node) -> None:
        """Record who reads or updates a v1 variable's buffer, however it got it."""
        place_of, state = self._numbering.place, (variable.name, -1)
        seen = {variable}
        pending = [variable]
        for holder in pending:
            for user, slot in (use for tensor in holder.outputs for use in tensor.uses):
                is_writer = user.op not in op_types.FORWARDING and self._takes_reference(user, slot)
                self._record(state, place_of(user), writes=is_writer)
                if user not in seen and self._hands_on(user):
                    seen.add(user)
                    pending.append(user)

    def _takes_reference(self, user: Node, slot: int) -> bool:
        types = op_types.port_types(user, self._graph.library).inputs
        return types[slot] > op_types.REF_TYPE_OFFSET

    def _hands_on(self, node: Node) -> bool:
        if node.op in op_types.FORWARDING:
            return True
        types = op_types.port_types(node, self._graph.library).outputs
        return any(dtype > op_types.REF_TYPE_OFFSET for dtype in types)

    def _has_effects(self, node: Node) -> bool:
        if not op_types.is_stateful(node, self._graph.library):
            return False
        if node.op in _OF_ITS_OWN or node.op in _DECLARATIONS:
            return False
        types = op_types.port_types(node, self._graph.library).inputs
        if any(dtype > op_types.REF_TYPE_OFFSET for dtype in types):
            return False
        calls = self._called(node)
        return not calls or not self._are_clean(calls)

    def _called(self, node: Node) -> tuple[str, ...]:
        library = self._graph.library
        return () if library is None else op_types.called_functions(node, library)

    def _are_clean(self, names: tuple[str, ...]) -> bool:
        """Whether functions touch no state but through their arguments."""
        seen = dict.fromkeys(names)
        for name in (pending := list(seen)):
            if name not in self._clean_bodies:
                self._clean_bodies[name] = self._is_clean(name)
            if not self._clean_bodies[name]:
                return False
            library = self._graph.library
            assert isinstance(library, Library)
            for node in library.graph(name):
                new = [other for other in self._called(node) if other not in seen]
                seen.update(dict.fromkeys(new))
                pending.extend(new)
        return True

    def _is_clean(self, name: str) -> bool:
        library = self._graph.library
        if not isinstance(library, Library) or library.op_def(name) is None:
            return False
        return not any(self._is_dirty(node) for node in library.graph(name))

    def _is_dirty(self, node: Node) -> bool:
        """Whether a node of a body touches what is not given to the body; calls are looked into."""
        library = self._graph.library
        if node.op in _OF_ITS_OWN or self._called(node):
            return False
        if not op_types.is_stateful(node, library):
            return False
        return op_types.DT_RESOURCE not in op_types.port_types(node, library).inputs


def _joined(uses: list[dict[int, bool]]) -> dict[int, bool]:
    """The uses of any state as if there were one."""
    joined: dict[int, bool] = {}
    for used in uses:
        for place, writes in used.items():
            joined[place] = joined.get(place, False) or writes
    return joined
