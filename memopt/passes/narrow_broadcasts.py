"""NarrowBroadcasts: what repeats a few numbers is computed before it is repeated, or never is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from memopt.accumulation.shared_inputs import find_added, root_of
from memopt.buffers.device_types import is_on_host
from memopt.errors import OptionsError
from memopt.graph.attributes import op_attributes, own_attributes
from memopt.graph.op_types import CONTROL_FLOW, REF_VARIABLES
from memopt.graph.removal import Removal
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.shapes.function_calls import unused_name
from memopt.shapes.symbolic import SymbolicShapes, together

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.symbolic import Dimensions

_REPEATS = frozenset({"BroadcastTo", "Tile"})
_BINARY = ("Add", "AddV2", "Maximum", "Minimum", "Mul", "RealDiv", "SquaredDifference", "Sub")
"""Ops that repeat the numbers of a smaller input themselves; each number is one IEEE operation."""
_UNARY = frozenset({"Neg", "Square"})
_SUM = "AddN"
_TWO = 2
_IN_A_SUM = "the order in which a sum adds could change"
_DTYPES = frozenset({1, 2})
"""float32 and float64."""


@dataclass(frozen=True)
class NarrowBroadcasts(Pass):
    """Compute with the few numbers that a broadcast repeats, and let who needs all repeat them.

    The gradient of a mean is one number for all that were averaged: each normalization spreads two
    such gradients over tensors as large as its input, divides them there, and multiplies them by
    something else.

    1. Considered is a BroadcastTo, or a Tile along dimensions of one element, that makes at least
       `least_bytes`.
    2. A reader that computes each number by itself and has another input of the full size reads
       what is repeated instead: such kernels repeat it as they go. A sum of two by AddN is an
       AddV2 then.
    3. A reader whose other input is no larger than what is repeated computes with that, in a node
       `<name>/narrow`, and so do its readers in turn; where one needs all, it repeats the result.
    4. The broadcast goes. Who waited for it, or for such a reader, waits for what is repeated.

    Every number is computed by the same operation from the same numbers, so the bits are those of
    before; less is held, and less is moved.

    Nothing is done where what operations give is fed, which may have other shapes. Refused, with a
    reason in the report: a broadcast that has to stay as it is called; one with readers that need
    all of it; shapes that are not certain; what a sum adds whose order of addition could change
    with who else reads it; a GPU, whose kernels were not compared.
    """

    name: ClassVar[str] = "narrow-broadcasts"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    least_bytes: int = 4096
    """What a broadcast makes at least; of less nothing is won."""

    def __post_init__(self) -> None:
        if self.least_bytes < 0:
            raise OptionsError(f"{self.name}: least_bytes is {self.least_bytes}, less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Go from producers to readers: a reader may be the next broadcast."""
        graph = rewriter.graph
        fed = filter(None, map(graph.find, context.fed))
        if not any(node.op in _REPEATS for node in graph) or any(n.inputs for n in fed):
            return
        numbering = Numbering.of(graph)
        narrowing = _Narrowing(rewriter, context, numbering)
        for place in numbering.order:
            node = numbering.nodes[place]
            if node.op in _REPEATS and narrowing.is_large(node, self.least_bytes):
                narrowing.narrow(node)


class _Reader(NamedTuple):
    """Who reads a broadcast.

    Attributes:
        node: The reader.
        slot: Where it reads it.
        is_repeated: Whether it gives a broadcast itself when it reads what is repeated.
    """

    node: Node
    slot: int
    is_repeated: bool


class _Narrowing:
    def __init__(self, rewriter: Rewriter, context: Context, numbering: Numbering) -> None:
        self._rewriter = rewriter
        self._context = context
        self._properties = context.properties
        self._shapes = SymbolicShapes(numbering, context.properties.certain)
        self._removal = Removal(rewriter.graph, fetched=context.fetched, named=context.named)
        self._added = find_added(rewriter.graph, context.properties)

    def is_large(self, node: Node, least_bytes: int) -> bool:
        """Whether a broadcast makes much of less; where nobody knows how much, it may be."""
        wide = self._properties.tensor(node.output().name)
        narrow = self._properties.tensor(node.inputs[0].name)
        if wide is None or narrow is None or wide.dtype not in _DTYPES:
            return False
        if wide.size_bytes is None or narrow.size_bytes is None:
            return True
        return wide.size_bytes >= least_bytes and narrow.size_bytes < wide.size_bytes

    def narrow(self, broadcast: Node) -> None:
        """Take a broadcast out, and all that only computes with what it repeats, or say why not."""
        source = broadcast.inputs[0]
        readers = self._why_not(broadcast) or self._readers(broadcast, source)
        if isinstance(readers, str):
            self._rewriter.decline(broadcast, readers)
            return
        reason = f"{len(readers)} operations compute with the numbers that it repeats"
        with self._rewriter.edit(reason):
            gone = []
            pending = [(broadcast, source)]
            while pending:
                node, narrow = pending.pop()
                # Anew for each, as what else a reader reads may have become narrow meanwhile.
                readers = self._readers(node, narrow)
                if isinstance(readers, str):
                    self._repeat_here(node, narrow, broadcast)
                    continue
                gone.append(node)
                for reader in readers:
                    if reader.is_repeated:
                        pending.append((reader.node, self._compute_narrow(node, reader, narrow)))
                    else:
                        self._read_narrow(node, reader, narrow)
                self._rewriter.replace_waits(node, narrow.node)
            self._remove(gone)

    def _why_not(self, broadcast: Node) -> str:
        """Why a broadcast has to stay whoever reads it; "" if nothing speaks against it."""
        source = broadcast.inputs[0]
        if not is_on_host(broadcast.device):
            return "that the bits stay the same is known of the host's kernels alone"
        narrow, wide = (self._shapes.find(each) for each in (source, broadcast.output()))
        if narrow is None or wide is None:
            return "how many dimensions it has is not known"
        if broadcast.op == "Tile" and together(narrow, wide) != wide:
            return "it may repeat more than single elements"
        if root_of(source, self._properties).node.op in REF_VARIABLES:
            return "what it repeats may change before it is read"
        if broadcast.control_users and source.node.op in CONTROL_FLOW:
            return "who waits for it would not know whether it runs"
        return _IN_A_SUM if self._is_added(source) else ""

    def _readers(self, node: Node, narrow: Tensor) -> list[_Reader] | str:
        """What is to become of each reader of what is repeated, or why all of it has to be there.

        Args:
            node: It gives what is repeated.
            narrow: What it repeats.
        """
        if not self._can_go(node):
            return "it has to stay as it is"
        if self._is_added(node.output()):
            return _IN_A_SUM
        readers = []
        for user, slot in node.output().uses:
            if user.name in self._context.fed or user.device != node.device:
                return f"{user.name!r} is fed, or on another device"
            reader = self._reader(node, user, slot, self._shapes.find(narrow))
            if isinstance(reader, str):
                return f"{user.name!r} {reader}"
            readers.append(reader)
        return readers or "nothing reads it"

    def _reader(
        self, node: Node, user: Node, slot: int, narrow: Dimensions | None
    ) -> _Reader | str:
        """How a reader can do without a broadcast, or what of it speaks against that."""
        if user.op in _UNARY:
            return _Reader(user, slot, is_repeated=True)
        if len(user.inputs) != _TWO or user.op not in (*_BINARY, _SUM):
            return "needs all of it"
        other = user.inputs[1 - slot]
        if other.node is node:
            return "reads it twice"
        wide, found = self._shapes.find(node.output()), self._shapes.find(other)
        if user.op == _SUM or (wide is not None and found == wide):
            return _Reader(user, slot, is_repeated=False)
        small, large = together(narrow, found), together(wide, found)
        if small is None or large is None:
            return f"reads {str(other)!r}, of which the shape is not certain"
        return self._reader_of_smaller(_Reader(user, slot, small != large), small == narrow)

    def _reader_of_smaller(self, reader: _Reader, is_narrow: bool) -> _Reader | str:
        """The reader, if it makes all of what is repeated, or no more than that repeats."""
        if not reader.is_repeated:
            return reader
        if not is_narrow:
            return "makes more of it than it repeats, and less than all"
        other = reader.node.inputs[1 - reader.slot]
        if self._is_added(other):
            return f"reads {str(other)!r}, and the order in which a sum adds that could change"
        return reader

    def _read_narrow(self, node: Node, reader: _Reader, narrow: Tensor) -> None:
        """Let a reader repeat by itself."""
        rewriter, user = self._rewriter, reader.node
        rewriter.set_input(user, reader.slot, narrow)
        rewriter.set_control_inputs(user, (*user.control_inputs, *node.control_inputs))
        if user.op == _SUM:
            rewriter.set_op(user, *_sum_of_two(user))

    def _compute_narrow(self, node: Node, reader: _Reader, narrow: Tensor) -> Tensor:
        """What a reader computes, of what is repeated."""
        user = reader.node
        inputs = list(user.inputs)
        inputs[reader.slot] = narrow
        op, attributes = _sum_of_two(user) if user.op == _SUM else (user.op, user.attributes)
        added = self._rewriter.add_node(
            unused_name(self._rewriter.graph, f"{user.name}/narrow"),
            op,
            inputs=inputs,
            control_inputs=(*user.control_inputs, *node.control_inputs),
            device=user.device,
            attributes=op_attributes(attributes),
        )
        known = self._properties.tensor(narrow.name)
        self._properties.add(added.name, () if known is None else (known,))
        self._shapes.add(added.output(), self._shapes.find(narrow))
        return added.output()

    def _repeat_here(self, node: Node, computed: Tensor, broadcast: Node) -> None:
        """Let a node give what it gave by repeating what was computed instead of it."""
        rewriter = self._rewriter
        if node.name not in self._context.named:
            rewriter.replace_waits(node, computed.node)
        rewriter.set_inputs(node, (computed, *broadcast.inputs[1:]))
        rewriter.set_control_inputs(node, ())
        attributes = own_attributes(node.attributes) | op_attributes(broadcast.attributes)
        rewriter.set_op(node, broadcast.op, attributes)

    def _remove(self, gone: list[Node]) -> None:
        """Take out what nothing reads any longer, readers before what they read."""
        constants = gone[0].inputs[1:]
        for node in reversed(gone):
            self._rewriter.remove_node(node)
        for tensor in constants:
            if self._removal.can_remove(tensor.node):
                self._rewriter.remove_node(tensor.node)

    def _can_go(self, node: Node) -> bool:
        """Whether nobody asks for a broadcast by its name."""
        named = self._context.named
        return (
            bool(self._context.fetched)
            and node.name not in named
            and node.name not in self._removal.companions
        )

    def _is_added(self, tensor: Tensor) -> bool:
        return root_of(tensor, self._properties) in self._added


def _sum_of_two(node: Node) -> tuple[str, dict[str, Any]]:
    """The op that adds two tensors of which one may be smaller, and its attributes."""
    return "AddV2", {key: value for key, value in node.attributes.items() if key != "N"}
