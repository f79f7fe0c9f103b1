"""InlineCalls: bodies of functions in the place of calls, so that other passes see one graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.graph.copy_names import free_name
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.op_types import MERGES, called_functions, is_stateful, port_types
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.shapes.function_calls import CALLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter

_COLOCATION = "_class"
_WITH_EFFECTS = "StatefulPartitionedCall"
_DEEPEST = 64
"""How many calls may stand in one another; more is recursion."""


@dataclass(frozen=True)
class InlineCalls(Pass):
    """Put the bodies of called functions in the place of the calls, as XLA does when it compiles.

    1. The nodes of a body come into the graph as `call/name`. Arguments are what the call reads,
       results what others read of it.
    2. What in the body reads nothing of the body waits for what the call waited for; what waited
       for the call waits for all in the body that has effects or reads state.
    3. Calls in a body are inlined in turn.
    4. In the place of a call that is fetched or kept there is a node of its name that hands on the
       results; none if the call has effects, because of which it is asked for.

    Left alone, with a reason: a call that is fed; one of a function that calls itself; and a body
    with loops of TensorFlow 1.
    """

    name: ClassVar[str] = "inline-calls"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES}
    )

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Inline one call after the other, with one edit for each; linear in what comes in."""
        library = rewriter.graph.library
        if not isinstance(library, Library):
            return
        pending: list[tuple[Node, tuple[str, ...]]] = [
            (node, ()) for node in rewriter.graph if node.op in CALLS
        ]
        while pending:
            call, callers = pending.pop()
            (name, *_), why = _function_of(call, library), ""
            if name not in library.names():
                why = "there is no body of what it calls"
            elif call.name in context.fed:
                why = "it is fed"
            elif name in callers or len(callers) >= _DEEPEST:
                why = f"{name!r} calls itself"
            elif any(node.op in MERGES for node in library.graph(name)):
                why = f"{name!r} has loops of TensorFlow 1"
            if why:
                rewriter.decline(call, why)
                continue
            with rewriter.edit(f"the body of {name!r} stands in the place of its call"):
                made = _Inlining(rewriter, context, call, name, library).inline()
            pending += [(node, (*callers, name)) for node in made if node.op in CALLS]


def _function_of(call: Node, library: Library) -> tuple[str, ...]:
    return called_functions(call, library) or ("",)


class _Inlining:
    def __init__(
        self, rewriter: Rewriter, context: Context, call: Node, function: str, library: Library
    ) -> None:
        self._rewriter = rewriter
        self._properties = context.properties
        self._is_named = call.name in context.named
        self._known = context.properties.function(function)
        self._call = call
        self._body: Graph = library.graph(function)
        self._effects = library.control_outputs(function)
        self._made: dict[Node, Node] = {}
        self._arguments: dict[Node, Tensor] = {}

    def inline(self) -> Sequence[Node]:
        """Bring the body in and take the call out; what was made."""
        call, rewriter = self._call, self._rewriter
        results: dict[int, Tensor] = {}
        numbering = Numbering.of(self._body)
        for node in (numbering.nodes[place] for place in numbering.order):
            number = node.attributes["index"].i if node.op in (ARGUMENT, RESULT) else 0
            if node.op == ARGUMENT:
                self._arguments[node] = call.inputs[number]
            elif node.op == RESULT:
                results[number] = self._tensor(node.inputs[0])
            else:
                self._made[node] = self._add(node)
        library = rewriter.graph.library
        waits = [self._made[self._body[name]] for name in self._effects]
        # When the rest ends nobody can see.
        waits += [node for node in self._made.values() if is_stateful(node, library)]
        rewriter.replace_waits(call, *waits)
        for number, tensor in results.items():
            rewriter.replace_uses(call.output(number), tensor)
        rewriter.remove_node(call)
        if self._is_named:
            has_effects = call.op == _WITH_EFFECTS
            handed_on = [] if has_effects else [results[number] for number in sorted(results)]
            self._stand_in(handed_on, waits)
        return list(self._made.values())

    def _stand_in(self, results: Sequence[Tensor], waits: Sequence[Node]) -> None:
        """Add what others know by the name of the call."""
        from tensorflow.core.framework import attr_value_pb2

        call, attributes = self._call, {}
        if not results:
            # What is known of the call is not known of this.
            self._properties.add(call.name, ())
        else:
            types = attr_value_pb2.AttrValue()
            types.list.type.extend(
                port_types(tensor.node, self._rewriter.graph.library).outputs[tensor.port]
                for tensor in results
            )
            attributes["T"] = types
        self._rewriter.add_node(
            call.name,
            "IdentityN" if results else "NoOp",
            inputs=results,
            control_inputs=waits,
            device=call.device,
            attributes=attributes,
        )

    def _add(self, node: Node) -> Node:
        call = self._call
        controls = [self._node(before) for before in node.control_inputs]
        inside = (*(tensor.node for tensor in node.inputs), *node.control_inputs)
        if all(before in self._arguments for before in inside):
            controls += call.control_inputs
        attributes = {name: v for name, v in node.attributes.items() if name != _COLOCATION}
        made = self._rewriter.add_node(
            self._free_name(node.name),
            node.op,
            inputs=[self._tensor(tensor) for tensor in node.inputs],
            control_inputs=controls,
            device=node.device or call.device,
            attributes=attributes,
        )
        outputs = self._known.outputs(node.name)
        if outputs:
            self._properties.add(made.name, outputs)
        return made

    def _tensor(self, tensor: Tensor) -> Tensor:
        if tensor.node in self._arguments:
            return self._arguments[tensor.node]
        return self._made[tensor.node].output(tensor.port)

    def _node(self, node: Node) -> Node:
        return self._arguments[node].node if node in self._arguments else self._made[node]

    def _free_name(self, name: str) -> str:
        return free_name(f"{self._call.name}/{name}", self._rewriter.graph, "_")
