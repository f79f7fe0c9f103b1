"""GrapplerItem: a graph with what its caller feeds, fetches and keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from memopt.display import Displayed, DisplayedFields, Overview, Table, count_text, names_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

STEP_SIGNATURE = "step"
"""The signature under which a training step's inputs and outputs stand in a MetaGraphDef."""

TRAIN_OP_COLLECTION = "train_op"
"""The collection that names what runs for its effects; Grappler's item builder reads it too."""


COMPILED = "_XlaMustCompile"
"""The attribute of functions, and of calls of them, that XLA compiles."""


@dataclass(frozen=True, repr=False)
class VariableSpec(DisplayedFields):
    """What is known of the variable behind a captured resource: the handle data.

    Attributes:
        dtype: TensorFlow's enumeration value of the element type (`types_pb2.DataType`).
        shape: Dimensions in elements; -1 for one that is not known.
    """

    dtype: int
    shape: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class GrapplerItem(Displayed):
    """A graph and how it is used: what no rewrite may change.

    Attributes:
        graph_def: The graph. Never changed by memopt.
        feed: Names of the tensors (`"x:0"`) that the caller gives, in the order of the call.
        fetch: What the caller asks for: tensors (`"loss:0"`) and operations that run for their
            effects (`"train"`, no port).
        keep: Names of further nodes that must stay as they are called.
        variables: For captured resources that arrive as Placeholders (a `tf.function`'s graph):
            node name to what is known of the variable.
        compiled: Whether XLA compiles all of it, as of a `tf.function(jit_compile=True)`.
        in_function: Whether it runs as a function as it is. Then branches and loops run that nobody
            asks for; whoever runs a graph for its fetches leaves them out.
        assumed_shapes: By node: the shapes of its outputs as one call gives them, where the graph
            leaves them open; -1 for a dimension, and `None` for a shape, that is not known. Sizes
            are told by them. What a graph is rewritten to holds for other shapes as well.
        data_ends: Whether the data that it reads itself, from an iterator or a queue, may come to
            an end in a step, which fails then.
    """

    graph_def: GraphDef
    feed: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    variables: Mapping[str, VariableSpec] = field(default_factory=lambda: MappingProxyType({}))
    compiled: bool = False
    in_function: bool = False
    assumed_shapes: Mapping[str, tuple[tuple[int, ...] | None, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    data_ends: bool = True

    @property
    def fetched_tensors(self) -> tuple[str, ...]:
        """The fetches that are tensors, in order."""
        return tuple(name for name in self.fetch if ":" in name)

    @property
    def fetched_operations(self) -> tuple[str, ...]:
        """The fetches that are operations, in order."""
        return tuple(name for name in self.fetch if ":" not in name)

    def _overview(self) -> Overview:
        functions = count_text(len(self.graph_def.library.function), "function")
        outcome = f"{count_text(len(self.graph_def.node), 'node')}, {functions}"
        named = {
            "feed": self.feed,
            "fetch": self.fetch,
            "keep": self.keep,
            "variables": tuple(self.variables),
        }
        rows = tuple((role, names_text(names)) for role, names in named.items())
        return Overview("GrapplerItem", outcome, (Table(("", ""), rows),))

    def with_variable_handles(self) -> GraphDef:
        """The graph with captured variables as VarHandleOps of known type and shape: a new message.

        A Placeholder says nothing of the variable behind it, so all that is read from it would have
        no shape.
        """
        from tensorflow.core.framework import graph_pb2

        graph_def: GraphDef = graph_pb2.GraphDef()
        graph_def.CopyFrom(self.graph_def)
        for node in graph_def.node:
            variable = self.variables.get(node.name)
            if variable is None:
                continue
            node.op = "VarHandleOp"
            node.ClearField("attr")
            node.attr["dtype"].type = variable.dtype
            node.attr["shared_name"].s = node.name.encode()
            node.attr["shape"].shape.SetInParent()
            for size in variable.shape:
                node.attr["shape"].shape.dim.add().size = size
        return graph_def

    @classmethod
    def from_concrete_function(cls, function: ConcreteFunction) -> GrapplerItem:
        """The graph of a `tf.function`, as its caller uses it.

        Fed are the arguments and the captured tensors that are no variables; fetched are the
        outputs and the control outputs (variable updates and other effects).
        """
        import tensorflow as tf
        from tensorflow.python.ops import handle_data_util

        graph = function.graph
        variables: dict[str, VariableSpec] = {}
        for placeholder in graph.internal_captures:
            if placeholder.dtype != tf.resource:
                continue
            handle = handle_data_util.get_resource_handle_data(placeholder)
            if handle is None or not handle.is_set or len(handle.shape_and_type) != 1:
                continue
            known = handle.shape_and_type[0]
            shape = tf.TensorShape(known.shape)
            if shape.rank is None:
                continue
            dimensions = tuple(-1 if size is None else int(size) for size in shape)
            variables[placeholder.op.name] = VariableSpec(int(known.dtype), dimensions)
        return cls(
            graph_def=graph.as_graph_def(),
            feed=tuple(t.name for t in graph.inputs if t.op.name not in variables),
            # The order of control outputs differs from process to process; sorted it does not.
            fetch=(
                *(tensor.name for tensor in graph.outputs),
                *sorted(operation.name for operation in graph.control_outputs),
            ),
            variables=MappingProxyType(variables),
            compiled=is_compiled(function),
            in_function=True,
        )


def is_compiled(function: ConcreteFunction) -> bool:
    """Whether XLA compiles a function; what is none is not compiled."""
    declared = getattr(function, "function_def", None)
    if declared is None or COMPILED not in declared.attr:
        return False
    return bool(declared.attr[COMPILED].b)
