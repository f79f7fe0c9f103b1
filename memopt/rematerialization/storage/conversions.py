"""The operations that store results in other forms and restore them, made in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph.attributes import type_attribute
from memopt.graph.op_types import DT_INT32, DT_STRING
from memopt.rematerialization.storage.compression import SMALLER_TYPES
from memopt.rematerialization.storage.forms import TRANSPOSE
from memopt.rematerialization.storage.offloading import STRING_BYTES
from memopt.rematerialization.storage.storable import swapper_for
from memopt.shapes.tensor_properties import TensorProperties, tensor_properties
from memopt.swapping.history import PREFIXES, SWAP_OUT_PREFIX
from memopt.swapping.ops import SWAP_OPS, Swapped, names_host

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.tensor_properties import Shape

COMPRESSED_PREFIX = "Compressed/"
DECOMPRESSED_PREFIX = "Decompressed/"
_PERMUTATION = "permutation"
"""TensorFlow's enumeration value."""


class Conversions:
    """Adds the operations, and tells their shapes and types.

    1. "transpose": Transpose, which exchanges the two minor-most dimensions, and again; bit for
       bit. The permutation is a Const, one for each rank and device.
    2. "bfloat16" and "float16": Cast, and Cast back.
    3. "serialize", "copy" and "identity": what `Swapper` adds.

    Args:
        rewriter: With an edit open whenever something is added.
        context: Its properties learn what is added.
    """

    def __init__(self, rewriter: Rewriter, context: Context) -> None:
        self._rewriter = rewriter
        self._context = context
        self._permutations: dict[tuple[int, str], Node] = {}
        self._suffixes: dict[Node, str] = {}

    def store(self, method: str, node: Node) -> list[Node]:
        """Add what stores the first output of a node, the last of it what holds the form."""
        if method in SWAP_OPS:
            swapped = self._swapped(node, self._free_name((SWAP_OUT_PREFIX,), node.name))
            copy = swapper_for(method, node, self._rewriter, self._context).copy_out(swapped)
            self._suffixes[copy] = swapped.suffix
            if copy.op == "SerializeTensor" and names_host(node.device):
                held = TensorProperties(DT_STRING, (), STRING_BYTES)
                self._context.properties.add(copy.name, (held,))
            return [copy]
        (tensor,) = self._context.properties.outputs(node.name)
        suffix = self._free_name((COMPRESSED_PREFIX,), node.name)
        name, shape = COMPRESSED_PREFIX + suffix, tensor.shape
        if method == TRANSPOSE:
            return self._transpose(name, node, tensor.dtype, shape, node.device)
        return [self._cast(name, node, tensor.dtype, SMALLER_TYPES[method], shape)]

    def restore(self, method: str, node: Node, form: Node, trigger: Node | None) -> list[Node]:
        """Add what makes the first output of a node of its form again, the last of it the result.

        Args:
            method: How it was stored.
            node: The node whose output was stored, or a copy of it.
            form: What `store` returned last.
            trigger: What has to have run before; `None` for nothing.
        """
        if method in SWAP_OPS:
            return self._swap_in(method, node, form, trigger or form)
        (tensor,) = self._context.properties.outputs(form.name)
        suffix = self._free_name((DECOMPRESSED_PREFIX,), node.name)
        name = DECOMPRESSED_PREFIX + suffix
        if method == TRANSPOSE:
            return self._transpose(name, form, tensor.dtype, tensor.shape, node.device)
        (result,) = self._context.properties.outputs(node.name)
        return [self._cast(name, form, tensor.dtype, result.dtype, tensor.shape)]

    def _swap_in(self, method: str, node: Node, form: Node, trigger: Node) -> list[Node]:
        swapped = self._swapped(node, self._free_name(PREFIXES[1:], self._suffixes[form]))
        swapper = swapper_for(method, node, self._rewriter, self._context)
        last = swapper.copy_in(swapped, form, trigger)
        wait = last.inputs[0].node
        return [last] if wait is form else [wait, last]

    def _swapped(self, node: Node, suffix: str) -> Swapped:
        (tensor,) = self._context.properties.outputs(node.name)
        return Swapped(node.output(), tensor.dtype, node.device, suffix)

    def _transpose(
        self, name: str, source: Node, dtype: int, shape: Shape, device: str
    ) -> list[Node]:
        assert shape is not None
        permutation = self._permutations.get((len(shape), device))
        added = []
        if permutation is None:
            permutation = self._add_permutation(len(shape), device)
            self._permutations[len(shape), device] = permutation
            added.append(permutation)
        node = self._rewriter.add_node(
            name,
            "Transpose",
            inputs=(source.output(), permutation.output()),
            device=device,
            attributes={"T": type_attribute(dtype), "Tperm": type_attribute(DT_INT32)},
        )
        exchanged = (*shape[:-2], shape[-1], shape[-2])
        self._context.properties.add(name, (tensor_properties(dtype, exchanged),))
        return [*added, node]

    def _add_permutation(self, rank: int, device: str) -> Node:
        import numpy as np

        from memopt.shapes.integer_evaluation import constant_attributes

        numbers = np.array([*range(rank - 2), rank - 1, rank - 2])
        suffix = self._free_name((COMPRESSED_PREFIX,), f"{_PERMUTATION}_{rank}")
        name = COMPRESSED_PREFIX + suffix
        attributes = constant_attributes(numbers, DT_INT32)
        node = self._rewriter.add_node(name, "Const", device=device, attributes=attributes)
        self._context.properties.add(name, (tensor_properties(DT_INT32, (rank,)),))
        return node

    def _cast(self, name: str, source: Node, dtype: int, to: int, shape: Shape) -> Node:
        node = self._rewriter.add_node(
            name,
            "Cast",
            inputs=(source.output(),),
            device=source.device,
            attributes={"SrcT": type_attribute(dtype), "DstT": type_attribute(to)},
        )
        self._context.properties.add(name, (tensor_properties(to, shape),))
        return node

    def _free_name(self, prefixes: tuple[str, ...], name: str) -> str:
        """What is not taken behind any of the prefixes: the name, or with a number."""
        graph, number, found = self._rewriter.graph, 0, name
        while any(prefix + found in graph for prefix in prefixes):
            number += 1
            found = f"{name}/{number}"
        return found
