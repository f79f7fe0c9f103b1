"""Shapes folded: what only asks how large a tensor is need not keep it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from memopt.accumulation.shared_inputs import find_disturbed_sum
from memopt.graph import op_types
from memopt.graph.attributes import own_attributes
from memopt.graph.removal import Removal
from memopt.graph.rewriter import Touches
from memopt.graph.traversal import Numbering
from memopt.passes.base import Pass
from memopt.shapes.certainty import CertainShapes
from memopt.shapes.function_calls import unused_name
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.integer_evaluation import Array

SHAPE_OPS = frozenset({"Rank", "Shape", "ShapeN", "Size"})

_SHAPES_ALONE = frozenset({"BroadcastArgs", "BroadcastGradientArgs", "ConcatOffset"})
"""Ops whose inputs are shapes in any case."""

_SUMS = frozenset({"AccumulateNV2", "AddN"})
_ROOTS = frozenset({"Const", "Placeholder", "VarHandleOp", "Variable", "VariableV2", "_Arg"})
"""Ops for which nothing has to wait: they run at the start, or have run before it."""

_MOST_CONTROLS = 8
"""So many control inputs a constant has at most; else the operation is left as it is."""


@dataclass(frozen=True)
class FoldShapes(Pass):
    """Replace operations that only ask for shapes by constants, so that they keep no large tensor.

    1. Shape, ShapeN, Size and Rank of tensors whose whole shape is certain are constants. With one
       output, the node becomes a Const and keeps its name; with several, there is a Const
       `<name>/shape_<port>` for each output that is read.
    2. So are operations on these and on other small integer constants, and operations that take
       nothing but shapes: the arithmetic that gradients do on shapes, see `EVALUATORS`; and what
       computes the order of dimensions for a Transpose.
    3. A constant waits for what made the tensors whose shape it holds, as the operation did: it is
       in the same frame of a loop, dead in the same branch, and what needs it starts no earlier.
       Waiting for a node keeps none of its outputs.
    4. What has no readers after that is taken out, unless it is fetched or kept. An operation with
       several outputs that is fetched becomes an IdentityN of the constants; one that others wait
       for becomes a NoOp.

    Refused, with a reason in the report: shapes that are not known, or not certain because of what
    is fed (see `CertainShapes`); kept and fed nodes; an output of a v1 Switch, since nothing but a
    reader of it tells whether it is dead; numbers that do not fit; and a shape of a tensor that is
    added with others by an AddN, which takes another order with who else reads its inputs.
    """

    name: ClassVar[str] = "fold-shapes"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.OPS,
            Touches.ATTRIBUTES,
        }
    )

    values: bool = True
    """Also fold what is computed from shapes alone."""

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Go through the graph from producers to readers and fold what is certain."""
        if not any(_is_candidate(node) for node in rewriter.graph):
            return
        fold = _Fold(rewriter, context)
        for place in fold.numbering.order:
            node = fold.numbering.nodes[place]
            if node.op in SHAPE_OPS:
                fold.shapes(node)
            elif self.values:
                fold.values(node)
        fold.remove_useless()


class _Folded(NamedTuple):
    """What a node gives, and whom a constant in its place has to wait for."""

    values: tuple[Array, ...]
    controls: tuple[Node, ...]


def _is_candidate(node: Node) -> bool:
    return node.op in SHAPE_OPS or node.op in _SHAPES_ALONE


class _Fold:
    """Folds one operation after the other; an operation comes after what it reads."""

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        # Here, since numpy is not light.
        from memopt.shapes import integer_evaluation

        self.numbering = Numbering.of(rewriter.graph)
        self._rewriter = rewriter
        self._context = context
        self._arithmetic = integer_evaluation
        self._certain = CertainShapes(rewriter.graph, context.properties.certain, context.fed)
        self._has_sums = any(node.op in _SUMS for node in rewriter.graph)
        self._known: dict[Tensor, Array] = {}
        self._controls: dict[Node, tuple[Node, ...]] = {}
        """For each constant that was made, by node, what it waits for."""
        self._read: dict[Node, None] = {}
        self._wanted = _find_arithmetic(self.numbering, integer_evaluation.EVALUATORS)

    def shapes(self, node: Node) -> None:
        """Fold an operation that asks for shapes, or say why not."""
        found = self._shapes_of(node)
        if isinstance(found, str):
            self._rewriter.decline(node, found)
        else:
            self._replace(node, found, "the shapes that it asks for are certain")

    def values(self, node: Node) -> None:
        """Fold an operation on shapes, if it is one and all of its inputs are known."""
        if node.op not in self._arithmetic.EVALUATORS or not node.inputs:
            return
        if node not in self._wanted and not any(t.node in self._controls for t in node.inputs):
            return
        inputs = [value for t in node.inputs if (value := self._value(t)) is not None]
        if len(inputs) < len(node.inputs) or self._is_named(node):
            return
        values = self._arithmetic.evaluate(node, inputs)
        controls = self._waits(node)
        if values is None or not self._fits(node, values) or len(controls) > _MOST_CONTROLS:
            return
        self._replace(node, _Folded(values, controls), "it is computed from certain shapes alone")

    def remove_useless(self) -> None:
        """Take out what was only read by what is folded."""
        removal = Removal(
            self._rewriter.graph,
            fetched=self._context.fetched,
            named=self._context.named,
        )
        useless = [node for node in self._read if removal.can_remove(node)]
        if not useless:
            return
        with self._rewriter.edit("nothing reads what shapes were computed from any longer"):
            for node in useless:
                self._rewriter.remove_node(node)

    def _is_named(self, node: Node) -> bool:
        return node.name in self._context.fed or node.name in self._context.kept

    def _shapes_of(self, node: Node) -> _Folded | str:
        values = []
        for tensor in node.inputs:
            shape = self._certain.find(tensor)
            if isinstance(shape, str):
                return shape
            values.append(self._answer(node.op, shape))
        controls = self._waits(node)
        reason = self._why_not(node, values, controls)
        return _Folded(tuple(values), controls) if reason is None else reason

    def _why_not(self, node: Node, values: list[Array], controls: tuple[Node, ...]) -> str | None:
        """Why an operation cannot be replaced, though its values are certain."""
        if self._is_named(node):
            return "it has to stay as it is"
        branches = [tensor.node for tensor in node.inputs if tensor.node.op in op_types.SWITCHES]
        if branches:
            return f"only one branch of the Switch {branches[0].name!r} is alive"
        if not self._fits(node, values):
            return "a number does not fit its type"
        if len(controls) > _MOST_CONTROLS:
            return f"a constant would have to wait for {len(controls)} nodes"
        disturbed = self._find_disturbed_sum(node) if self._has_sums else None
        if disturbed is not None:
            return f"the order in which {disturbed.name!r} adds could change"
        return None

    def _find_disturbed_sum(self, node: Node) -> Node | None:
        return find_disturbed_sum(self.numbering, node, self._context.properties)

    def _answer(self, op: str, shape: tuple[int, ...]) -> Array:
        as_array = self._arithmetic.as_array
        if op == "Rank":
            return as_array(len(shape))
        dimensions = as_array(shape)
        return as_array(dimensions.prod()) if op == "Size" else dimensions

    def _fits(self, node: Node, values: Sequence[Array]) -> bool:
        types = op_types.port_types(node, self._rewriter.graph.library).outputs
        return self._arithmetic.all_fit(values, types)

    def _value(self, tensor: Tensor) -> Array | None:
        """The value of a tensor, if it is a constant and nobody feeds another."""
        node = tensor.node
        if node.op != "Const" or node.name in self._context.fed:
            return None
        if tensor not in self._known:
            value = self._arithmetic.read_constant(node)
            if value is None:
                return None
            self._known[tensor] = value
        return self._known[tensor]

    def _waits(self, node: Node) -> tuple[Node, ...]:
        """Whom a constant waits for instead of a node."""
        controls: dict[Node, None] = {}
        for tensor in node.inputs:
            producer = tensor.node
            if producer.op == "Const":
                controls.update(dict.fromkeys(producer.control_inputs))
            elif producer.op not in _ROOTS or producer.control_inputs:
                controls[producer] = None
        controls.update(dict.fromkeys(node.control_inputs))
        return tuple(controls)

    def _replace(self, node: Node, folded: _Folded, reason: str) -> None:
        types = op_types.port_types(node, self._rewriter.graph.library).outputs
        self._read.update(
            (tensor.node, None) for tensor in node.inputs if tensor.node.op == "Const"
        )
        with self._rewriter.edit(reason, releases=_released(node)):
            if len(types) == 1:
                self._become_constant(node, folded, types[0])
            else:
                self._split(node, folded, types)

    def _become_constant(self, node: Node, folded: _Folded, dtype: int) -> None:
        rewriter = self._rewriter
        (value,) = folded.values
        attributes = self._arithmetic.constant_attributes(value, dtype)
        rewriter.set_inputs(node, ())
        rewriter.set_control_inputs(node, folded.controls)
        rewriter.set_op(node, "Const", {**own_attributes(node.attributes), **attributes})
        self._known[node.output()] = value
        self._controls[node] = folded.controls

    def _split(self, node: Node, folded: _Folded, types: tuple[int, ...]) -> None:
        """Give every output that is read a constant of its own."""
        rewriter = self._rewriter
        is_fetched = node.name in self._context.fetched
        constants = []
        for port, (value, dtype) in enumerate(zip(folded.values, types, strict=True)):
            tensor = node.output(port)
            if not tensor.uses and not is_fetched:
                continue
            constant = rewriter.add_node(
                unused_name(rewriter.graph, f"{node.name}/shape_{port}"),
                "Const",
                control_inputs=folded.controls,
                device=node.device,
                attributes=self._arithmetic.constant_attributes(value, dtype),
            )
            rewriter.replace_uses(tensor, constant.output())
            constants.append(constant.output())
            self._known[constant.output()] = value
            self._controls[constant] = folded.controls
            self._context.properties.add(constant.name, (tensor_properties(dtype, value.shape),))
        if is_fetched:
            rewriter.set_inputs(node, constants)
            rewriter.set_op(
                node, "IdentityN", {**own_attributes(node.attributes), "T": _type_list(types)}
            )
        elif node.control_users:
            rewriter.set_inputs(node, ())
            rewriter.set_control_inputs(node, folded.controls)
            rewriter.set_op(node, "NoOp", own_attributes(node.attributes))
        else:
            self._read[node] = None


def _find_arithmetic(numbering: Numbering, known: Container[str]) -> set[Node]:
    """The operations that take nothing but shapes, and what those are computed by.

    And what computes the order of dimensions that a transposition gives: one that changes nothing
    copies nothing, which can only be told of a constant.
    """
    orders = [node.inputs[1].node for node in numbering.nodes if node.op == "Transpose"]
    pending = [node for node in numbering.nodes if node.op in _SHAPES_ALONE]
    pending += [node for node in dict.fromkeys(orders) if node.op in known]
    found = set(pending)
    while pending:
        for tensor in pending.pop().inputs:
            if tensor.node.op in known and tensor.node not in found:
                found.add(tensor.node)
                pending.append(tensor.node)
    return found


def _released(node: Node) -> list[Tensor]:
    """The tensors that the node reads and that no reader of its result reads as well."""
    if node.op not in SHAPE_OPS:
        return []
    users = set(node.users)
    return [
        tensor
        for tensor in dict.fromkeys(node.inputs)
        if not any(reader in users for reader, _ in tensor.uses)
    ]


def _type_list(types: tuple[int, ...]) -> Any:
    from tensorflow.core.framework import attr_value_pb2

    value = attr_value_pb2.AttrValue()
    value.list.type.extend(types)
    return value
