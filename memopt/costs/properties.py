"""Shapes, types and sizes of every tensor of a graph; what is unknown stays unknown."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from memopt.costs.inference import infer_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from memopt.costs.tensor_properties import NodeProperties, TensorProperties
    from memopt.item import GrapplerItem


class Properties:
    """The tensors of a graph by node name, and those of its functions; inferred when asked for."""

    def __init__(self, infer: Callable[[], Mapping[str, NodeProperties]], function: str) -> None:
        self._infer = infer
        self._function = function

    @classmethod
    def unknown(cls) -> Properties:
        """Properties of a graph of which nothing is known."""
        return cls(dict, "")

    @classmethod
    def of(cls, item: GrapplerItem) -> Properties:
        """The properties of an item's graph; inferred when first asked for."""
        return cls(cache(lambda: infer_properties(item)), "")

    def function(self, name: str) -> Properties:
        """The properties of a function's body; of the main graph for ""."""
        return Properties(self._infer, name)

    @property
    def _nodes(self) -> NodeProperties:
        return self._infer().get(self._function, {})

    def outputs(self, node: str) -> tuple[TensorProperties, ...]:
        """What is known of each output of a node, by port; empty for an unknown node."""
        return self._nodes.get(node, ())

    def tensor(self, name: str) -> TensorProperties | None:
        """What is known of a tensor, `node:port`."""
        node, _, port = name.rpartition(":")
        outputs = self.outputs(node)
        return outputs[int(port)] if int(port) < len(outputs) else None

    def size_bytes(self, name: str) -> int | None:
        """The bytes of a tensor, `node:port`; `None` when not known."""
        tensor = self.tensor(name)
        return None if tensor is None else tensor.size_bytes

    def unknown_sizes(self) -> Iterator[str]:
        """The names of the tensors whose size is not known."""
        for node, outputs in self._nodes.items():
            for port, tensor in enumerate(outputs):
                if tensor.size_bytes is None:
                    yield f"{node}:{port}"
