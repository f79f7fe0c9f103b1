"""Shapes, types and sizes of every tensor of a graph; what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.shapes.assumed import assuming
from memopt.shapes.grappler_inference import GrapplerInference
from memopt.shapes.inference import FullInference, Given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.item import GrapplerItem
    from memopt.shapes.inference import Inference
    from memopt.shapes.tensor_properties import NodeProperties, Shape, TensorProperties


class Properties:
    """The tensors of a graph by node name, and those of its functions; inferred when asked for.

    Where TensorFlow refuses the graph, `failure` says why: then `outputs` and `tensor`, which
    passes go by, raise the error, and for reports the sizes are simply not known.
    """

    def __init__(
        self,
        inference: Inference,
        without_feeds: Inference | None = None,
        function: str = "",
        root: Properties | None = None,
        copies: dict[str, str] | None = None,
        certain: Properties | None = None,
    ) -> None:
        self._inference = inference
        self._inference_without_feeds = inference if without_feeds is None else without_feeds
        self._function = function
        self._root = root
        self._certain = certain
        self._bodies: dict[str, Properties] = {}
        self._copies = {} if copies is None else copies
        self._without_feeds: Properties | None = None
        self._outputs: dict[str, tuple[TensorProperties, ...]] = {}
        self._inferred: NodeProperties | InvalidGraphError | None = None

    @classmethod
    def unknown(cls) -> Properties:
        """Properties of a graph of which nothing is known."""
        return cls(Given({}))

    @classmethod
    def given(cls, nodes: NodeProperties, certain: Properties | None = None) -> Properties:
        """What somebody else has inferred of a graph: for each node of its outputs.

        Args:
            nodes: What is known of one call.
            certain: What holds for every call, if that is less.
        """
        return cls(Given(nodes), certain=certain)

    @classmethod
    def of(cls, item: GrapplerItem) -> Properties:
        """All that TensorFlow knows of an item's graph; see `FullInference`."""
        certain = None
        if item.assumed_shapes:
            certain = cls.of(replace(item, assumed_shapes={}))
            item = replace(item, graph_def=assuming(item.graph_def, item.assumed_shapes))
        return cls(FullInference(item), GrapplerInference(item, feeds_known=False), certain=certain)

    @classmethod
    def as_in_grappler(cls, item: GrapplerItem) -> Properties:
        """What Grappler knows of an item's graph when it simulates; see `GrapplerInference`."""
        return cls(GrapplerInference(item), GrapplerInference(item, feeds_known=False))

    def function(self, name: str) -> Properties:
        """The properties of a function's body, always the same object; of the main graph for ""."""
        if self._root is not None:
            return self._root.function(name)
        if name == self._function:
            return self
        if name not in self._bodies:
            self._bodies[name] = Properties(
                self._inference, self._inference_without_feeds, name, root=self
            )
        return self._bodies[name]

    @property
    def certain(self) -> Properties:
        """What holds for every call, by which graphs are rewritten; it knows of no added nodes.

        The same object where nothing is assumed of one call: see `GrapplerItem.assumed_shapes`.
        """
        if self._root is not None:
            root = self._root.certain
            return self if root is self._root else root.function(self._function)
        return self if self._certain is None else self._certain

    def without_feeds(self) -> Properties:
        """What Grappler knows where it does not assume that feeds have the shapes of the graph.

        So its passes ask for shapes (`assume_valid_feeds=false`). In a function's body the
        arguments are fed. Always the same object; it shares `copy`, not `add`.
        """
        if self._without_feeds is None:
            self._without_feeds = Properties(
                self._inference_without_feeds, function=self._function, copies=self._copies
            )
        return self._without_feeds

    @property
    def failure(self) -> str:
        """Why TensorFlow refuses the graph, or "". Infers the graph if that was not done."""
        try:
            self._nodes()
        except InvalidGraphError as error:
            return str(error)
        return ""

    def require(self) -> None:
        """Infer the graph if that was not done.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        self._nodes()

    def _nodes(self) -> NodeProperties:
        """What was inferred, once; where it failed, the same error again."""
        if self._inferred is None:
            try:
                self._inferred = self._inference.nodes(self._function)
            except InvalidGraphError as error:
                self._inferred = error
        if isinstance(self._inferred, InvalidGraphError):
            raise self._inferred
        return self._inferred

    def outputs(self, node: str) -> tuple[TensorProperties, ...]:
        """What is known of each output of a node, by port; empty for an unknown node.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        found = self._outputs.get(node)
        if found is None and node in self._copies:
            return self.outputs(self._copies[node])
        if found is None:
            found = self._nodes().get(node)
            if found is None:
                return ()
            self._outputs[node] = found
        return found

    def add(self, node: str, outputs: tuple[TensorProperties, ...]) -> None:
        """Tell the outputs of a node that a pass adds; the inference did not see it."""
        self._outputs[node] = outputs

    def copy(self, node: str, original: str) -> None:
        """Tell that a node that a pass adds computes what another computes; infers nothing yet."""
        while original in self._copies:
            original = self._copies[original]
        if original != node:
            self._copies[node] = original

    def tensor(self, name: str) -> TensorProperties | None:
        """What is known of a tensor, `node:port`.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        node, _, port = name.rpartition(":")
        outputs = self.outputs(node)
        return outputs[int(port)] if int(port) < len(outputs) else None

    def shape(self, name: str) -> Shape:
        """The shape of a tensor, `node:port`; `None` when nothing is known of it.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        tensor = self.tensor(name)
        return None if tensor is None else tensor.shape

    def size_bytes(self, name: str) -> int | None:
        """The bytes of a tensor, `node:port`; `None` when not known."""
        try:
            tensor = self.tensor(name)
        except InvalidGraphError:
            return None
        return None if tensor is None else tensor.size_bytes

    def unknown_sizes(self) -> Iterator[str]:
        """The names of the tensors whose size is not known; none where there is a `failure`."""
        if self.failure:
            return
        for node in self._nodes():
            for port, tensor in enumerate(self.outputs(node)):
                if tensor.size_bytes is None:
                    yield f"{node}:{port}"
