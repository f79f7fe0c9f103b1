"""Adds operations to a graph, under names of their own, with the shapes that they have."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from memopt.graph.attributes import type_attribute
from memopt.graph.copy_names import free_name
from memopt.graph.op_types import DT_INT32
from memopt.shapes.tensor_properties import ELEMENT_BYTES, TensorProperties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter


class NodeBuilder:
    """Adds nodes under names of their own; the properties learn what they make.

    Args:
        rewriter: The graph's; an edit has to be open.
        context: What is known of the graph.
        prefix: What all names begin with.
    """

    def __init__(self, rewriter: Rewriter, context: Context, prefix: str) -> None:
        self.rewriter = rewriter
        self.properties = context.properties
        self._prefix = prefix
        self._constants: dict[tuple[str, int, str], Tensor] = {}

    def add(self, of: Tensor, op: str, inputs: Sequence[Tensor], **types: int) -> Tensor:
        """A node of one output on the device of another one, with attributes that are types."""
        attributes = {name: type_attribute(dtype) for name, dtype in types.items()}
        return self.add_with(of, op, inputs, attributes)

    def add_with(
        self, of: Tensor, op: str, inputs: Sequence[Tensor], attributes: dict[str, AttrValue]
    ) -> Tensor:
        """The same with attributes of any kind."""
        node = self.rewriter.add_node(
            self.free_name(f"{of.node.name}/{op}"),
            op,
            inputs=inputs,
            device=of.node.device,
            attributes=attributes,
        )
        return node.output(0)

    def learn(self, made: Tensor, like: Tensor, dtype: int) -> Tensor:
        """Note that a tensor has the shape of another, in elements of a type."""
        known = self.properties.tensor(like.name)
        return made if known is None else self.note(made, known.shape, dtype)

    def note(self, made: Tensor, shape: tuple[int, ...] | None, dtype: int) -> Tensor:
        """Note the shape of a tensor, in elements of a type."""
        size_bytes = None
        if shape is not None and -1 not in shape:
            size_bytes = ELEMENT_BYTES.get(dtype, 0) * prod(shape)
        self.properties.add(made.node.name, (TensorProperties(dtype, shape, size_bytes),))
        return made

    def constant(self, of: Tensor, numbers: Any, dtype: int = DT_INT32) -> Tensor:
        """A number, or a list of some, on the device of a node; the same one for the same."""
        from tensorflow.core.framework import attr_value_pb2
        from tensorflow.python.framework import tensor_util

        key = (str(numbers), dtype, of.node.device)
        if key not in self._constants:
            value = attr_value_pb2.AttrValue()
            value.tensor.CopyFrom(tensor_util.make_tensor_proto(numbers, dtype))
            node = self.rewriter.add_node(
                self.free_name("Const"),
                "Const",
                device=of.node.device,
                attributes={"dtype": type_attribute(dtype), "value": value},
            )
            shape = tuple(dim.size for dim in value.tensor.tensor_shape.dim)
            self._constants[key] = self.note(node.output(0), shape, dtype)
        return self._constants[key]

    def read_instead(self, readers: Iterable[Node], before: Tensor, after: Tensor) -> None:
        """Let nodes read a tensor in the place of another."""
        for reader in dict.fromkeys(readers):
            inputs = [after if one == before else one for one in reader.inputs]
            self.rewriter.set_inputs(reader, inputs)

    def free_name(self, name: str) -> str:
        """A name with the prefix that no node has."""
        return free_name(self._prefix + name, self.rewriter.graph)
