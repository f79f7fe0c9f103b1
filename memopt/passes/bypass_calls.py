"""Calls bypassed: what a call hands on unchanged is read where it came from, not out of a copy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.buffers.kernel_signature import is_compiled
from memopt.control_dependencies.lost_orders import loses_order
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT, body_of
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.sequencing.frames import find_places
from memopt.shapes.function_calls import HANDLES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from memopt.context import Context
    from memopt.graph.graph import FunctionLibrary, Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.sequencing.frames import Place

_SUM = "AddN"


@dataclass(frozen=True)
class BypassCalls(Pass):
    """Let who reads what a call was given, out of the call's results, read what it was given.

    A function whose gradient is asked for gives what the gradient reads besides its results, also
    where that is an argument. Where XLA compiles it, that is a copy, which is kept for the gradient
    beside what was copied: so it is with every convolution of groups that Keras makes on a CPU.

    1. The readers of a result that is an argument, handed on by Identities at most, read the
       call's input.
    2. The call itself stays, and so do its results: what asks for it by name finds it.

    Refused, with a reason in the report: where uses of state could lose their order, since readers
    no longer wait for the call; what comes from another device, a v1 reference, a handle, or from
    outside of the branch or loop that the call is in; what is fed; and before sums of more than two
    inputs, of which AddN changes the order with who else reads them.
    """

    name: ClassVar[str] = "bypass-calls"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.DATA_EDGES})

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at every call that XLA compiles; linear in edges."""
        graph = rewriter.graph
        found = list(_find(graph, context))
        if not found:
            return
        numbering = Numbering.of(graph)
        places = dict(
            zip(numbering.nodes, find_places(numbering.nodes, numbering.order), strict=True)
        )
        free = []
        for each in found:
            reason = _why_not(each, graph, places)
            if reason:
                rewriter.decline(each.result.node, reason)
            else:
                free.append(each)
        place, bypassed = numbering.place, {each.result for each in free}
        gone = {
            (place(result.node), place(reader))
            for result in bypassed
            for reader in _who_waits_no_longer(result, bypassed)
        }
        if gone and loses_order(graph, numbering, gone):
            for each in free:
                rewriter.decline(each.result.node, "uses of state could lose their order without")
            return
        for each in free:
            with rewriter.edit(f"{each.given.name} is read where it comes from"):
                rewriter.replace_uses(each.result, each.given)


class _HandedOn(NamedTuple):
    """A result of a call that is one of its inputs.

    Attributes:
        result: The result.
        slot: That of the input.
    """

    result: Tensor
    slot: int

    @property
    def given(self) -> Tensor:
        """What the call is given there now."""
        return self.result.node.inputs[self.slot]


def _find(graph: Graph, context: Context) -> Iterator[_HandedOn]:
    """The results that somebody reads and that calls only hand on."""
    handed_on = cache(partial(_arguments_handed_on, library=graph.library))
    for node in graph:
        if not is_compiled(node) or node.name in context.fed:
            continue
        for port, slot in handed_on(node.attributes["f"].func.name):
            result = node.output(port)
            if result.uses and slot < len(node.inputs):
                yield _HandedOn(result, slot)


def _arguments_handed_on(name: str, library: FunctionLibrary | None) -> list[tuple[int, int]]:
    """The numbers of a function's results that are arguments, each with the argument's."""
    handed_on = []
    for node in body_of(name, library) or ():
        if node.op != RESULT:
            continue
        maker, seen = node.inputs[0].node, {node}
        # Whom an Identity waits for inside the call, others wait for as they wait for the call.
        while maker.op == "Identity" and maker not in seen:
            seen.add(maker)
            maker = maker.inputs[0].node
        if maker.op == ARGUMENT:
            handed_on.append((node.attributes["index"].i, maker.attributes["index"].i))
    return sorted(handed_on)


def _why_not(each: _HandedOn, graph: Graph, places: Mapping[Node, Place]) -> str:
    """Why what a call was given cannot be read directly, as far as its neighbours tell; or ""."""
    call, maker = each.result.node, each.given.node
    dtype = op_types.port_types(maker, graph.library).outputs[each.given.port]
    if dtype in HANDLES or dtype > op_types.REF_TYPE_OFFSET:
        return f"{each.given.name!r} is a handle, not a value"
    if maker.device != call.device:
        return f"{each.given.name!r} is on another device"
    if places[maker] != places[call]:
        return f"{each.given.name!r} is there where the call does not run, too"
    readers = [reader for tensor in (each.result, each.given) for reader, _ in tensor.uses]
    if any(reader.op == _SUM and len(reader.inputs) > 2 for reader in readers):  # noqa: PLR2004
        return "a sum of many goes by who else reads its addends"
    if any(reader.op in op_types.MERGES for reader, _ in each.result.uses):
        return "a Merge reads it, whose other side may be dead"
    return ""


def _who_waits_no_longer(result: Tensor, bypassed: Collection[Tensor]) -> Iterator[Node]:
    """The readers of a result that read nothing else of the call, and do not wait for it."""
    call = result.node
    for reader, _ in result.uses:
        others = (t for t in reader.inputs if t.node is call and t not in bypassed)
        if not any(others) and not reader.has_control_input(call):
            yield reader
