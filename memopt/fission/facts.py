"""What splitting goes by: shapes, small constants, who may be split, what sums must not notice."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from memopt.accumulation.shared_inputs import find_added, root_of
from memopt.buffers.device_types import is_on_host
from memopt.buffers.kernel_call import Runtime
from memopt.fission.dimensions import SPLITTABLE, Role, Shapes, find_roles
from memopt.fission.products import GRADIENTS, products_of
from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT
from memopt.graph.op_types import REF_VARIABLES
from memopt.graph.removal import Removal
from memopt.graph.traversal import Numbering
from memopt.rematerialization.rewriting.eligibility import can_run_twice
from memopt.sequencing.frames import find_frames
from memopt.shapes.constants import constant_numbers

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.context import Context
    from memopt.fission.dimensions import Roles
    from memopt.fission.gradients import Gradient
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.tensor_properties import TensorProperties

_HELD = frozenset({"Const", "Placeholder", ARGUMENT, "ReadVariableOp", "VarHandleOp"})
"""What these give is there before the step, and stays."""
_NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 9, 10, 14, 19})
"""Types that kernels pad and write in place: floating point, integers and bool."""


class Facts:
    """What is known of a graph as it is now.

    Args:
        graph: The graph.
        context: What the pass knows.
        parts: Names of the nodes that are parts already.
    """

    def __init__(self, graph: Graph, context: Context, parts: Collection[str] = ()) -> None:
        self.graph = graph
        self.numbering = Numbering.of(graph)
        self._context = context
        self._properties = context.properties.certain
        self._parts = parts
        self._roles: dict[Node, Roles | str] = {}

    @property
    def runtime(self) -> Runtime:
        """What the kernels run on."""
        return self._context.runtime or Runtime()

    def rank(self, node: Node) -> int:
        """The position of a node in a topological order."""
        numbering = self.numbering
        return len(numbering.nodes) - numbering.component[numbering.place(node)]

    def roles(self, node: Node) -> Roles | str:
        """What a part of a node needs of each input, or why it is not split."""
        found = self._roles.get(node)
        if found is None:
            found = self._roles[node] = self._find(node)
        return found

    def is_split(self, node: Node) -> bool:
        """Whether a node can be split."""
        return not isinstance(self.roles(node), str)

    def products(self, node: Node) -> Gradient | str:
        """How a gradient of a convolution can be computed as products, or why it is not."""
        if node.op not in GRADIENTS:
            return f"it is a {node.op}"
        if self.runtime.onednn:
            return "oneDNN's kernel needs no columns of images"
        threads = self.runtime.intra_op_threads
        return self._why_not_here(node) or products_of(node, self._properties, threads)

    def can_need_less(self, node: Node) -> bool:
        """Whether a node can be split, or computed in a way that needs less."""
        return self.is_split(node) or not isinstance(self.products(node), str)

    def exclude(self, node: Node, why: str) -> None:
        """Let a node not be split any more."""
        self._roles[node] = why

    def known(self, tensor: Tensor) -> TensorProperties:
        """What is known of a tensor of a node that can be split, or that one of them reads."""
        found = self._properties.tensor(tensor.name)
        assert found is not None
        return found

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """Its dimensions."""
        return self.known(tensor).shape or ()

    def outputs(self, node: Node) -> tuple[TensorProperties, ...]:
        """What is known of a node's outputs."""
        return self._properties.outputs(node.name)

    def units(self, node: Node) -> set[int]:
        """The numbers of rows that splitting a node divides."""
        roles = self.roles(node)
        assert not isinstance(roles, str)
        rows = {(each.shape or (1,))[0] for each in self.outputs(node)}
        for tensor, role in zip(node.inputs, roles, strict=True):
            if role is Role.ROWS:
                rows.add(self.shape(tensor)[0])
        return rows

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor whose buffer another one has."""
        return root_of(tensor, self._properties)

    def is_held(self, tensor: Tensor) -> bool:
        """Whether a tensor is there in any case."""
        node = self.root(tensor).node
        return node.op in _HELD or node.name in self._context.fed

    def is_added(self, tensor: Tensor) -> bool:
        """Whether the order in which a sum adds could depend on who else reads a tensor."""
        return self.root(tensor) in self._added

    def can_go(self, node: Node) -> bool:
        """Whether parts can take the place of a node."""
        return node.name not in self._context.named and node.name not in self._companions

    @cached_property
    def _added(self) -> frozenset[Tensor]:
        return frozenset(find_added(self.numbering.nodes, self._properties))

    @cached_property
    def _companions(self) -> frozenset[str]:
        return Removal(self.graph, fetched=(), named=()).companions

    @cached_property
    def _frames(self) -> dict[Node, int]:
        nodes = self.numbering.nodes
        return dict(zip(nodes, find_frames(nodes, self.numbering.order), strict=True))

    @cached_property
    def _runs(self) -> dict[Node, bool]:
        roots = self._context.fetched | self._context.kept
        return dict(zip(self.numbering.nodes, self.numbering.running_for(roots), strict=True))

    def _find(self, node: Node) -> Roles | str:
        reason = self._why_not(node)
        if reason:
            return reason
        inputs = [self._properties.tensor(tensor.name) for tensor in node.inputs]
        outputs = self.outputs(node)
        if not outputs or not all(
            each is not None and each.is_known for each in (*inputs, *outputs)
        ):
            return "the shape of what it reads or makes is not known"
        if any(each.dtype not in _NUMBERS for each in (*inputs, *outputs) if each is not None):
            return "it works on something else than numbers"
        shapes = Shapes(
            [(each.shape or ()) for each in inputs if each is not None],
            [each.shape or () for each in outputs],
            lambda slot: constant_numbers(node.inputs[slot].node),
        )
        roles = find_roles(node, shapes)
        if roles is None:
            return f"its rows, or what this {node.op} makes of them, depend on one another"
        if any(
            role is Role.SHAPE and node.inputs[slot].node.op != "Const"
            for slot, role in enumerate(roles)
        ):
            return "a shape that it is given is no constant"
        return roles

    def _why_not(self, node: Node) -> str:
        """Why a node is not split whatever its shapes are; "" if nothing speaks against it."""
        if node.name in self._parts or node.op not in SPLITTABLE:
            is_part = node.name in self._parts
            return (
                "it is a part itself" if is_part else f"of {node.op} no rows are known to be apart"
            )
        return self._why_not_here(node)

    def _why_not_here(self, node: Node) -> str:
        """Why a node stays whatever it computes, because of where it stands; "" if it need not."""
        if not is_on_host(node.device):
            return "that parts have the same bits is known of the host's kernels alone"
        if node.name in self._context.fed or not self._runs[node] or self._frames[node]:
            return "it is fed, does not run, or is in a loop or a branch of TensorFlow 1"
        if not can_run_twice(node, self.graph.library):
            return "it may not run more than once"
        if any(before.op in op_types.CONTROL_FLOW for before in node.control_inputs):
            return "it waits for a branch"
        return self._why_not_later(node)

    def _why_not_later(self, node: Node) -> str:
        reads = {self.root(tensor).node.op for tensor in node.inputs}
        return "what it reads may change meanwhile" if REF_VARIABLES & reads else ""
