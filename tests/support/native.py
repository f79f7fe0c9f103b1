"""TensorFlow's own Grappler as an oracle: only its memory optimizer, on any graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


_ATTRIBUTES_OF_OTHER_STEPS = frozenset(
    {
        # Set by Grappler's RelaxAllocatorConstraints, which runs at every level.
        "_grappler_relax_allocator_constraints",
        # Taken away by Grappler's item builder, but not from functions that stay as they are.
        "_class",
    }
)


def optimize_native(
    graph_def: GraphDef, level: str, fetch: Sequence[str], target_scope: str = ""
) -> GraphDef:
    """Run Grappler's memory optimizer and no other pass.

    Default attributes are added, `_output_shapes` and `_class` taken away, and the graph is sorted.

    Args:
        graph_def: The graph; every Placeholder counts as fed.
        level: A name of RewriterConfig's MemOptType.
        fetch: Names of nodes or tensors.
        target_scope: The scope of gradient operations; "" is Grappler's default.
    """
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.grappler import cluster as cluster_lib
    from tensorflow.python.grappler import tf_optimizer

    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(fetch)
    cluster = cluster_lib.Cluster(devices=[_cpu()])
    try:
        return tf_optimizer.OptimizeGraph(
            memory_only_config(level, target_scope), meta_graph, cluster=cluster
        )
    finally:
        cluster.Shutdown()


def normalize_native(graph_def: GraphDef, fetch: Sequence[str]) -> GraphDef:
    """The graph as Grappler's optimizers receive it, in its own order."""
    return optimize_native(graph_def, "NO_MEM_OPT", fetch)


def memory_only_config(level: str, target_scope: str) -> Any:
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
    return config


def canonical(graph_def: GraphDef) -> dict[str, tuple[object, ...]]:
    """Every node, functions' bodies included: op, device, attributes and inputs in order.

    Control inputs that are repeated are dropped: they mean nothing, and memopt does not repeat
    them in the first place.
    """
    nodes = {node.name: _canonical_node(node) for node in graph_def.node}
    for function in graph_def.library.function:
        for node in function.node_def:
            nodes[f"{function.signature.name}//{node.name}"] = _canonical_node(node)
    return nodes


def differences(ours: GraphDef, native: GraphDef) -> list[str]:
    """The nodes that differ, with both sides, readable."""
    mine, theirs = canonical(ours), canonical(native)
    return [
        f"{name}\n  memopt {mine.get(name)}\n  native {theirs.get(name)}"
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name) != theirs.get(name)
    ]


def _canonical_node(node: NodeDef) -> tuple[object, ...]:
    inputs = tuple(dict.fromkeys(node.input)) if _has_repeated_controls(node) else tuple(node.input)
    attributes = {
        key: _canonical_value(value)
        for key, value in node.attr.items()
        if key not in _ATTRIBUTES_OF_OTHER_STEPS
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


def _cpu() -> Any:
    from tensorflow.core.protobuf import device_properties_pb2

    device = device_properties_pb2.NamedDevice(name=CPU)
    device.properties.type = "CPU"
    device.properties.frequency = 2000
    device.properties.num_cores = 4
    device.properties.memory_size = 1 << 36
    device.properties.bandwidth = 32 * 10**6
    return device
