"""Which nodes of a graph run in a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.graph.graph import FunctionLibrary, Graph, Node

_FLOWS = op_types.CONTROL_FLOW | frozenset(
    {"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase"}
)
"""Ops of control flow, or which become some when TensorFlow prepares a function."""

_HAND_OVER = frozenset({"Placeholder", "ReadVariableOp", "VarHandleOp", ARGUMENT, RESULT})
"""Ops that are registered as stateful, and allocate nothing."""


def roots_of(
    graph: Graph, fetched: Collection[str], kept: Collection[str], *, in_function: bool = False
) -> frozenset[str]:
    """Names of the nodes because of which others run; in a function's body those kept as well.

    Args:
        graph: The graph.
        fetched: Names of the nodes that the caller asks for.
        kept: Names of further nodes.
        in_function: Whether it runs as a function as it is: then so does what `runs_unasked` tells.
    """
    is_body = any(node.op in (ARGUMENT, RESULT) for node in graph)
    roots = frozenset(fetched) | (frozenset(kept) if is_body else frozenset())
    return roots | runs_unasked(graph, roots) if in_function and roots else roots


def runs_unasked(graph: Graph, roots: Collection[str]) -> frozenset[str]:
    """Names of the nodes that run in a function although none of some others needs them.

    Control flow does, and what has an effect; and calls in whose bodies there is control flow,
    since their operations take their place. Linear in all bodies.
    """
    does = Numbering.of(graph).running_for(roots)
    left = [n for n, runs in zip(Numbering.of(graph).nodes, does, strict=True) if not runs]
    flows: frozenset[str] = frozenset()
    if graph.library is not None:
        called = [name for node in left for name in op_types.called_functions(node, graph.library)]
        flows = _with_flow(graph.library, called)
    return frozenset(
        node.name
        for node in left
        if node.op in _FLOWS
        or (node.op not in _HAND_OVER and _has_effect(node, graph))
        or (flows and graph.library and flows & {*op_types.called_functions(node, graph.library)})
    )


def _with_flow(library: FunctionLibrary, names: Collection[str]) -> frozenset[str]:
    """Those of some functions, and of those that they call, in which there is control flow."""
    known = frozenset(library.names())
    callers: dict[str, list[str]] = {name: [] for name in names if name in known}
    found: dict[str, None] = {}
    pending = list(callers)
    while pending:
        name = pending.pop()
        for node in library.graph(name):
            if node.op in _FLOWS:
                found[name] = None
            for callee in op_types.called_functions(node, library):
                if callee in known and callee not in callers:
                    callers[callee] = []
                    pending.append(callee)
                if callee in known:
                    callers[callee].append(name)
    pending = list(found)
    while pending:
        for caller in callers[pending.pop()]:
            if caller not in found:
                found[caller] = None
                pending.append(caller)
    return frozenset(found)


class Running:
    """Tells which nodes run, and which may.

    Nobody needs what some nodes give. A session leaves them out; in a function those with an effect
    and v1 control flow run all the same, with what they read (`PruneFunctionGraph` in
    tensorflow/core/common_runtime/function_utils.cc).
    """

    def __init__(self, numbering: Numbering, does: list[bool], may: list[bool]) -> None:
        self._numbering = numbering
        self._does = does
        self._may = may

    @classmethod
    def of(cls, graph: Graph, roots: Collection[str]) -> Running:
        """Find out what runs because of nodes of these names; all run if there are none."""
        numbering = Numbering.of(graph)
        does = numbering.running_for(roots)
        if all(does):
            return cls(numbering, does, does)
        effects = {
            node.name
            for node, runs in zip(numbering.nodes, does, strict=True)
            if not runs and (node.op in op_types.CONTROL_FLOW or _has_effect(node, graph))
        }
        may = numbering.running_for({*roots, *effects}) if effects else does
        return cls(numbering, does, may)

    def does(self, node: Node) -> bool:
        """Whether a node runs in any case. So does what was added since."""
        place = self._numbering.place(node)
        return place < 0 or self._does[place]

    def may(self, node: Node) -> bool:
        """Whether a node may run."""
        place = self._numbering.place(node)
        return place < 0 or self._may[place]


def _has_effect(node: Node, graph: Graph) -> bool:
    return node.op not in (ARGUMENT, "Placeholder") and op_types.is_stateful(node, graph.library)
