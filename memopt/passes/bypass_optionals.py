"""Optionals bypassed: the gradient of a branch reads what the branch made, not a container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.control_dependencies.lost_orders import loses_order
from memopt.graph import op_types
from memopt.graph.attributes import own_attributes, type_attribute
from memopt.graph.removal import Removal
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.sequencing.frames import OUTSIDE, find_places, place_of_reader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_GET, _MADE, _EMPTY = "OptionalGetValue", "OptionalFromValue", "OptionalNone"
_HANDED_ON = op_types.SWITCHES | {"Identity"}


@dataclass(frozen=True)
class BypassOptionals(Pass):
    """Let what takes a value out of an optional read what was put into it.

    The gradient of `tf.cond` needs what one side of it has made. TensorFlow hands that over in an
    optional, which is empty if the other side was taken: so nothing can tell its size, and nothing
    can compute it again.

    1. An `OptionalGetValue` is followed back through Switches and Merges to the `OptionalFromValue`
       that can have made what it opens. Its readers read the value.
    2. What waits for it, as constants do that are to be dead where it is, waits for what says that
       its side of a branch is taken. It becomes an Identity, and is waited for still, where no node
       says that or uses of state could lose their order; its readers read that if it waits for
       more than for its side to be taken.
    3. What made the optional and handed it on is taken out if nobody needs it any longer.

    Refused, with a reason in the report: where the value comes from elsewhere (a data set, a
    caller), from several places, by way of what waits for others, or from a side that need not be
    taken for the reader to run; and what the caller names.
    """

    name: ClassVar[str] = "bypass-optionals"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at every optional that is opened; linear in edges."""
        opened = [node for node in rewriter.graph if node.op == _GET]
        if not opened or not context.fetched:
            return
        bypass = _Bypass(rewriter, context)
        makers = {node: made for node in opened if (made := bypass.maker(node)) is not None}
        if makers:
            with rewriter.edit(f"what was put into {len(makers)} optionals is read directly"):
                bypass.apply(makers)


def find_maker(opened: Node) -> Node | None:
    """What put in the value that an `OptionalGetValue` takes out; `None` if it is not one node."""
    makers: list[Node] = []
    pending = [opened.inputs[0].node]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen or node.op == _EMPTY:
            continue
        seen.add(node)
        if not all(map(_is_pivot, node.control_inputs)):
            return None  # It waits for what may be an effect.
        if node.op == _MADE:
            makers.append(node)
        elif node.op in op_types.MERGES:
            pending += [tensor.node for tensor in node.inputs]
        elif node.op in _HANDED_ON:
            pending.append(node.inputs[0].node)
        else:
            return None
    return makers[0] if len(makers) == 1 else None


class _Bypass:
    """Lets the readers of opened optionals read what was put in."""

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        graph = rewriter.graph
        self._rewriter = rewriter
        self._context = context
        self._removal = Removal(graph, fetched=context.fetched, named=context.named)
        numbering = Numbering.of(graph)
        places = find_places(numbering.nodes, numbering.order)
        self._places = dict(zip(numbering.nodes, places, strict=True))

    def maker(self, opened: Node) -> Node | None:
        """What put in the value, if that can be read directly; if not, says why."""
        made = find_maker(opened)
        reason = self._why_not(made, opened)
        if reason:
            self._rewriter.decline(opened, reason)
        return None if reason else made

    def apply(self, makers: Mapping[Node, Node]) -> None:
        """Let all that can be read directly be read, and take out what only handed it on."""
        rewriter = self._rewriter
        waited_for = []
        for opened, made in makers.items():
            if self._can_be_read(made, opened):
                for output in opened.outputs:
                    rewriter.replace_uses(output, made.inputs[output.port])
                if opened.control_users:
                    waited_for.append(opened)
        for opened in self._find_idle(waited_for):
            rewriter.replace_waits(opened, *opened.control_inputs)
        optionals = [opened.inputs[0].node for opened in makers]
        for opened, made in makers.items():
            if opened.users:
                self._become_identity(opened, *made.inputs)
        self._remove([*optionals, *makers])

    def _find_idle(self, waited_for: Sequence[Node]) -> Sequence[Node]:
        """Those that nobody has to wait for, but for what says that their side is taken."""
        idle = [n for n in waited_for if n.control_inputs or self._places[n] == OUTSIDE]
        numbering = Numbering.of(self._rewriter.graph)
        place = numbering.place
        gone = {(place(node), place(user)) for node in idle for user in node.control_users}
        return idle if gone and not loses_order(self._rewriter.graph, numbering, gone) else ()

    def _why_not(self, made: Node | None, opened: Node) -> str:
        """Why the value cannot be read directly, or ""."""
        if made is None:
            return "what it opens is not made here, or in more than one place, or waits for others"
        if opened.name in self._context.named or made.name in self._context.fed:
            return "it has to stay as it is"
        where, there = self._places[made], self._places[opened]
        if where.frames != there.frames or not where.conditions <= there.conditions:
            return f"what {made.name!r} put in need not be there when it is asked for"
        if len(made.inputs) > 1 and not (
            self._can_be_read(made, opened) and not opened.control_users
        ):
            return "others wait for all that it takes out"
        is_dead_alike = self._is_dead_alike(made, opened)
        if is_dead_alike or any(self._places[node] == there for node in opened.control_inputs):
            return ""
        return f"what {made.name!r} put in is there on other sides of branches, too"

    def _is_dead_alike(self, made: Node, opened: Node) -> bool:
        """Whether a reader of the values is dead whenever one of what is taken out is."""
        readers = (place_of_reader(value, self._places) for value in made.inputs)
        return all(place == self._places[opened] for place in readers)

    def _can_be_read(self, made: Node, opened: Node) -> bool:
        """Whether readers need not wait for an optional to be opened.

        It may wait for nothing but what says that its side of a branch is taken.
        """
        return self._is_dead_alike(made, opened) and all(map(_is_pivot, opened.control_inputs))

    def _become_identity(self, opened: Node, value: Tensor) -> None:
        types = opened.attributes["output_types"].list.type
        attributes = {**own_attributes(opened.attributes), "T": type_attribute(types[0])}
        self._rewriter.set_inputs(opened, (value,))
        self._rewriter.set_op(opened, "Identity", attributes)

    def _remove(self, nodes: Sequence[Node]) -> None:
        """Take out what only handed on an optional, if nobody needs it."""
        pending = list(nodes)
        opened = set(nodes)
        while pending:
            node = pending.pop()
            is_optional = node.op in op_types.OPTIONALS | op_types.MERGES | _HANDED_ON
            if node.name not in self._rewriter.graph or not (is_optional or node in opened):
                continue
            if self._removal.can_remove(node):
                pending += dict.fromkeys((*(t.node for t in node.inputs), *node.control_inputs))
                self._rewriter.remove_node(node)


def _is_pivot(node: Node) -> bool:
    """Whether a node, a constant maybe, only says that a side of a branch is taken."""
    pending = [node]
    seen = set(pending)
    while pending:
        each = pending.pop()
        if each.op == "Const":
            pending += [before for before in each.control_inputs if before not in seen]
            seen.update(each.control_inputs)
        elif not _is_choice(each):
            return False
    return True


def _is_choice(node: Node) -> bool:
    """Whether a node hands on the predicate of a branch on one side of it."""
    if node.op != "Identity" or node.control_inputs or node.inputs[0].node.op != "Switch":
        return False
    switch = node.inputs[0].node
    return switch.inputs[0] == switch.inputs[1] and not switch.control_inputs
