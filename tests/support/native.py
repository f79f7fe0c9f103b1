"""TensorFlow's own Grappler as an oracle: only its memory optimizer, on any graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.cluster import Device
from memopt.graph import op_types
from memopt.graph.graphdef import from_graph_def

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

# Large enough for any test's graph.
CPU = Device("CPU:0", "CPU", 1 << 36, 2000, 4, 32 * 10**6)

RELAX_ATTRIBUTE = "_grappler_relax_allocator_constraints"
"""Set by Grappler's RelaxAllocatorConstraints, which runs at every level."""

# Taken away by Grappler's item builder, but not from functions that stay as they are.
_CLASS_ATTRIBUTE = "_class"


def optimize_native(  # noqa: PLR0913 - what a test wants to vary, by keyword
    graph_def: GraphDef,
    level: str,
    fetch: Sequence[str],
    target_scope: str = "",
    *,
    devices: Sequence[Device] | None = None,
    feeds: Sequence[str] = (),
    jit_level: int = 0,
) -> GraphDef:
    """Run Grappler's memory optimizer and no other pass.

    Default attributes are added, `_output_shapes` and `_class` taken away, and the graph is sorted.

    Args:
        graph_def: The graph; every Placeholder counts as fed.
        level: A name of RewriterConfig's MemOptType.
        fetch: Names of nodes or tensors.
        target_scope: The scope of gradient operations; "" is Grappler's default.
        devices: The machine, one CPU unless told otherwise.
        feeds: Tensors that are fed beside the Placeholders.
        jit_level: A number of GlobalJitLevel: whether XLA compiles by itself.
    """
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import cluster as cluster_lib
    from tensorflow.python.grappler import tf_optimizer

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(fetch)
    for tensor in feeds:
        _add_feed(meta_graph, tensor)
    machine = [CPU] if devices is None else devices
    cluster = cluster_lib.Cluster(devices=[device.to_proto() for device in machine])
    try:
        return tf_optimizer.OptimizeGraph(
            memory_only_config(level, target_scope, jit_level), meta_graph, cluster=cluster
        )
    finally:
        cluster.Shutdown()


def _add_feed(meta_graph: MetaGraphDef, tensor: str) -> None:
    """Declare a tensor to be fed, as an input of a signature."""
    node, _, port = tensor.partition(":")
    graph = from_graph_def(meta_graph.graph_def)
    fed = meta_graph.signature_def["feeds"].inputs[tensor]
    fed.name = tensor
    # Grappler makes a tensor of this type, and of no dimensions, which nothing looks at.
    dtype = op_types.port_types(graph[node], graph.library).outputs[int(port or 0)]
    fed.dtype = dtype % op_types.REF_TYPE_OFFSET


def normalize_native(
    graph_def: GraphDef,
    fetch: Sequence[str],
    *,
    devices: Sequence[Device] | None = None,
    feeds: Sequence[str] = (),
) -> GraphDef:
    """The graph as Grappler's optimizers receive it, in its own order."""
    return optimize_native(graph_def, "NO_MEM_OPT", fetch, devices=devices, feeds=feeds)


def memory_only_config(level: str, target_scope: str, jit_level: int = 0) -> Any:
    """A ConfigProto with which the memory optimizer is the only pass."""
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2

    rewriter_config = rewriter_config_pb2.RewriterConfig
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    for field in options.DESCRIPTOR.fields:
        if field.enum_type is not None and field.enum_type.name == "Toggle":
            setattr(options, field.name, rewriter_config.OFF)
    options.disable_model_pruning = True
    options.disable_tfg_optimizer = True
    options.min_graph_nodes = -1
    options.meta_optimizer_iterations = rewriter_config.ONE
    options.fail_on_optimizer_errors = True
    options.memory_optimization = rewriter_config.MemOptType.Value(level)
    options.memory_optimizer_target_node_name_scope = target_scope
    config.graph_options.optimizer_options.global_jit_level = jit_level
    return config


def canonical(
    graph_def: GraphDef, *, ignored: frozenset[str] = frozenset()
) -> dict[str, tuple[object, ...]]:
    """Every node, functions' bodies included: op, device, attributes and inputs in order.

    Control inputs that are repeated are dropped: they mean nothing, and memopt does not repeat
    them in the first place. Attributes of the names in `ignored` are left out.
    """
    nodes = {node.name: _canonical_node(node, ignored) for node in graph_def.node}
    for function in graph_def.library.function:
        for node in function.node_def:
            nodes[f"{function.signature.name}//{node.name}"] = _canonical_node(node, ignored)
    return nodes


def differences(ours: GraphDef, native: GraphDef, *, relaxing: bool = False) -> list[str]:
    """The nodes that differ, with both sides, readable.

    Args:
        ours: One graph.
        native: The other.
        relaxing: Whether to compare the attribute that relaxed Assigns carry as well.
    """
    ignored = frozenset({_CLASS_ATTRIBUTE} if relaxing else {_CLASS_ATTRIBUTE, RELAX_ATTRIBUTE})
    mine, theirs = canonical(ours, ignored=ignored), canonical(native, ignored=ignored)
    return [
        f"{name}\n  memopt {mine.get(name)}\n  native {theirs.get(name)}"
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name) != theirs.get(name)
    ]


def _canonical_node(node: NodeDef, ignored: frozenset[str]) -> tuple[object, ...]:
    inputs = tuple(dict.fromkeys(node.input)) if _has_repeated_controls(node) else tuple(node.input)
    attributes = {
        key: _canonical_value(value) for key, value in node.attr.items() if key not in ignored
    }
    return node.op, node.device, inputs, attributes


def _canonical_value(value: AttrValue) -> bytes:
    """A value as bytes; tensors by their elements, since Grappler encodes constants anew."""
    from tensorflow.python.framework import tensor_util

    if value.WhichOneof("value") != "tensor":
        return bytes(value.SerializeToString(deterministic=True))
    array = tensor_util.MakeNdarray(value.tensor)
    return f"{array.dtype} {array.shape} ".encode() + bytes(array.tobytes())


def _has_repeated_controls(node: NodeDef) -> bool:
    controls = [name for name in node.input if name.startswith("^")]
    return len(set(controls)) < len(controls) and len(controls) == len(node.input)
