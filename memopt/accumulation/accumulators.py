"""AddN turned into an accumulator: three forms in which each input is added when it is there.

The first is that of Grappler's `SchedulingPass`, node by node
(tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.accumulation.addition_order import addition_groups
from memopt.graph.op_types import NEXT_ITERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.graph.traversal import Numbering

VARIABLE = "tmp_var"
ZEROS = "tmp_var_zeros"
INITIALIZER = "tmp_var_initializer"
ADDITION = "tmp_var_accum_"
RUNNING_SUM = "sum_"

_KEEP_APART = "_grappler_ArithmeticOptimizer_AddOpsRewriteStage"
"""Grappler's own mark for sums that it has dealt with; others it joins to one AddN again."""


class Start(NamedTuple):
    """Where the accumulation of a sum begins.

    Attributes:
        first: The input that is there first.
        before: The sum's control inputs that the variable waits for.
        after: The others, for which the result waits.
    """

    first: Tensor
    before: tuple[Node, ...]
    after: tuple[Node, ...]


class FaninOrder:
    """The order in which a depth-first search from a node finishes what the node reads from.

    Grappler's `DfsTraversal` on a `GraphTopologyView`: of a node's producers the one that is last
    in the graph is searched first.
    """

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        # Through a loop's back edge, what comes late may lead to what comes early.
        self._has_loops = any(node.op in NEXT_ITERATIONS for node in numbering.nodes)

    def start(self, node: Node) -> Start:
        """Where Grappler starts: at the input that the search finishes first."""
        place = self._numbering.place
        rank = self._ranks(place(node))
        first = min(node.inputs, key=lambda tensor: rank[place(tensor.node)])
        limit = rank[place(first.node)]
        before: list[Node] = []
        after: list[Node] = []
        for control in reversed(node.control_inputs):
            (before if rank[place(control)] < limit else after).append(control)
        return Start(first, tuple(before), tuple(after))

    def _ranks(self, root: int) -> dict[int, int]:
        """The producers of a node, numbered as the search finishes them."""
        producers, component = self._numbering.producers, self._numbering.component
        direct = set(producers[root])
        # What comes before the earliest of them cannot lead from one of them to another.
        earliest = max(component[place] for place in direct)
        rank: dict[int, int] = {}
        entered: set[int] = set()
        pending = [(root, False)]
        while len(rank) < len(direct):
            place, finished = pending.pop()
            if finished:
                if place in direct:
                    rank[place] = len(rank)
                continue
            if place in entered:
                continue
            entered.add(place)
            pending.append((place, True))
            for producer in sorted(set(producers[place])):
                matters = component[producer] < earliest or producer in direct
                if producer not in entered and (matters or self._has_loops):
                    pending.append((producer, False))
        return rank


def variable_names(node: Node, *, ordered: bool) -> list[str]:
    """The names of the nodes that the forms with a variable add; the variable's is the first."""
    slots = range(1 if ordered else 0, len(node.inputs))
    additions = [f"{node.name}/{ADDITION}{slot}" for slot in slots]
    others = (VARIABLE, INITIALIZER) if ordered else (VARIABLE, ZEROS, INITIALIZER)
    return [*(f"{node.name}/{other}" for other in others), *additions]


def running_sum_names(node: Node) -> list[str]:
    """The names of the nodes that the form without a variable adds."""
    return [f"{node.name}/{RUNNING_SUM}{number}" for number in range(1, len(node.inputs) - 1)]


def accumulate(
    rewriter: Rewriter, node: Node, start: Start, shape: Sequence[int]
) -> tuple[Node, ...]:
    """Grappler's form: a variable of zeros to which the inputs are added in any order.

    Returns the new nodes.
    """
    controls = (*start.before, start.first.node)
    variable = _add_variable(rewriter, node, controls, shape)
    zeros = _add(rewriter, node, ZEROS, "ZerosLike", [start.first])
    initializer = _add_initializer(rewriter, node, variable, zeros.output())
    additions = [
        _add_to_variable(rewriter, node, slot, initializer, tensor)
        for slot, tensor in enumerate(node.inputs)
    ]
    _destroy(rewriter, node, initializer, (*additions, *start.after))
    return (variable, zeros, initializer, *additions)


def accumulate_in_order(
    rewriter: Rewriter, node: Node, terms: Sequence[Tensor], shape: Sequence[int]
) -> tuple[Node, ...]:
    """A variable that begins as the first term, to which the others are added one after another.

    It does not begin as zeros because 0.0 and -0.0 make 0.0. Returns the new nodes.
    """
    variable = _add_variable(rewriter, node, (terms[0].node,), shape)
    initializer = _add_initializer(rewriter, node, variable, terms[0])
    additions: list[Node] = []
    for slot, tensor in enumerate(terms[1:], start=1):
        addition = _add_to_variable(rewriter, node, slot, initializer, tensor, additions[-1:])
        additions.append(addition)
    _destroy(rewriter, node, initializer, (additions[-1], *node.control_inputs))
    return (variable, initializer, *additions)


def add_running_sums(rewriter: Rewriter, node: Node, terms: tuple[Tensor, ...]) -> tuple[Node, ...]:
    """AddNs of two inputs, each in the buffer of the one before; there is no variable.

    The terms are added in the groups in which TensorFlow's kernel adds them. Returns the new nodes.
    """
    dtype = node.attributes["T"]
    attributes = {"T": dtype, "N": _attribute(i=2), _KEEP_APART: _attribute(b=True)}
    names = iter(running_sum_names(node))
    sums: list[Node] = []

    def add(left: Tensor, right: Tensor) -> Tensor:
        name = next(names, None)
        if name is None:
            rewriter.set_op(node, "AddN", _private_attributes(node) | attributes)
            rewriter.set_inputs(node, [left, right])
            return node.output()
        sums.append(
            rewriter.add_node(
                name, "AddN", inputs=[left, right], device=node.device, attributes=attributes
            )
        )
        return sums[-1].output()

    reduce(add, (reduce(add, group) for group in addition_groups(terms)))
    return tuple(sums)


def _add_variable(
    rewriter: Rewriter, node: Node, controls: Iterable[Node], shape: Sequence[int]
) -> Node:
    from tensorflow.core.framework import tensor_shape_pb2

    dimensions = [tensor_shape_pb2.TensorShapeProto.Dim(size=size) for size in shape]
    name = f"{node.name}/{VARIABLE}"
    attributes = {
        "dtype": node.attributes["T"],
        "shape": _attribute(shape=tensor_shape_pb2.TensorShapeProto(dim=dimensions)),
        "var_name": _attribute(s=name.encode()),
    }
    return rewriter.add_node(
        name,
        "TemporaryVariable",
        control_inputs=controls,
        device=node.device,
        attributes=attributes,
    )


def _add_initializer(rewriter: Rewriter, node: Node, variable: Node, value: Tensor) -> Node:
    # Without validation, a sum that turns out to have another shape than was known gets its own.
    options = {"use_locking": _attribute(b=False), "validate_shape": _attribute(b=False)}
    return _add(rewriter, node, INITIALIZER, "Assign", [variable.output(), value], **options)


def _add_to_variable(
    rewriter: Rewriter,
    node: Node,
    slot: int,
    initializer: Node,
    tensor: Tensor,
    controls: Iterable[Node] = (),
) -> Node:
    return rewriter.add_node(
        f"{node.name}/{ADDITION}{slot}",
        "AssignAdd",
        inputs=[initializer.output(), tensor],
        control_inputs=controls,
        device=node.device,
        attributes={"T": node.attributes["T"], "use_locking": _attribute(b=True)},
    )


def _destroy(rewriter: Rewriter, node: Node, initializer: Node, controls: Iterable[Node]) -> None:
    """Turn the sum into the operation that takes the value out of the variable."""
    attributes = _private_attributes(node)
    attributes["T"] = node.attributes["T"]
    attributes["var_name"] = _attribute(s=f"{node.name}/{VARIABLE}".encode())
    rewriter.set_op(node, "DestroyTemporaryVariable", attributes)
    rewriter.set_inputs(node, [initializer.output()])
    rewriter.set_control_inputs(node, controls)


def _add(
    rewriter: Rewriter,
    node: Node,
    suffix: str,
    op: str,
    inputs: Iterable[Tensor],
    **attributes: AttrValue,
) -> Node:
    return rewriter.add_node(
        f"{node.name}/{suffix}",
        op,
        inputs=inputs,
        device=node.device,
        attributes={"T": node.attributes["T"], **attributes},
    )


def _private_attributes(node: Node) -> dict[str, Any]:
    """The attributes that belong to no op in particular, which Grappler keeps."""
    return {key: node.attributes[key] for key in sorted(node.attributes) if key.startswith("_")}


def _attribute(**value: Any) -> AttrValue:
    from tensorflow.core.framework import attr_value_pb2

    return attr_value_pb2.AttrValue(**value)
