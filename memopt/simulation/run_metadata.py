"""A simulated step as RunMetadata, which TensorFlow's own tools read.

`SchedulerState::GenerateRunMetadata` (tensorflow/core/grappler/costs/virtual_scheduler.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.nodedef import spell_inputs, write_node_def
from memopt.simulation.wiring import Transfer

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.step_stats_pb2 import NodeExecStats
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.graph.graph import FunctionLibrary
    from memopt.shapes.tensor_properties import TensorProperties
    from memopt.simulation.simulation import Simulation


def run_metadata(simulation: Simulation, library: FunctionLibrary | None = None) -> RunMetadata:
    """Step stats and partition graphs: what ran on each device, in order, with its outputs.

    Args:
        simulation: The simulated step.
        library: The functions that the graph's nodes call.
    """
    from tensorflow.core.protobuf import config_pb2

    metadata: RunMetadata = config_pb2.RunMetadata()
    wiring = simulation.wiring
    by_device: dict[str, list[int]] = {name: [] for name in simulation.devices}
    for number in simulation.executed:
        by_device[wiring.devices[wiring.device[number]]].append(number)
    for name, numbers in by_device.items():
        device_stats = metadata.step_stats.dev_stats.add(device=name)
        partition = metadata.partition_graphs.add()
        for number in numbers:
            _write_stats(device_stats.node_stats.add(), simulation, number, library)
            _write_node(partition, simulation, number)
    return metadata


def _write_stats(
    stats: NodeExecStats, simulation: Simulation, number: int, library: FunctionLibrary | None
) -> None:
    wiring = simulation.wiring
    node = wiring.nodes[number]
    start_ns, end_ns = simulation.starts_ns[number], simulation.ends_ns[number]
    stats.timeline_label = node.op
    stats.node_name = node.name
    stats.all_start_micros = start_ns // 1000
    stats.op_end_rel_micros = end_ns // 1000 - start_ns // 1000
    stats.all_end_rel_micros = end_ns // 1000 - start_ns // 1000
    stats.all_start_nanos = start_ns
    stats.op_end_rel_nanos = end_ns - start_ns
    stats.all_end_rel_nanos = end_ns - start_ns
    outputs = wiring.outputs(number)
    types = [tensor.dtype for tensor in outputs]
    if not isinstance(node, Transfer):
        types[:] = op_types.port_types(node, library).outputs[: len(types)]
    total_bytes = 0
    for slot, (tensor, dtype) in enumerate(zip(outputs, types, strict=True)):
        size_bytes = wiring.port_bytes[wiring.first_port[number] + slot]
        total_bytes += size_bytes
        _write_output(stats, slot, tensor, dtype, size_bytes)
    stats.memory_stats.SetInParent()
    if number in wiring.persistent:
        stats.memory_stats.persistent_memory_size = total_bytes


def _write_output(
    stats: NodeExecStats, slot: int, tensor: TensorProperties, dtype: int, size_bytes: int
) -> None:
    output = stats.output.add(slot=slot)
    description = output.tensor_description
    description.dtype = dtype
    description.allocation_description.requested_bytes = size_bytes
    description.allocation_description.allocated_bytes = size_bytes
    description.shape.SetInParent()
    if tensor.shape is None:
        description.shape.unknown_rank = True
        return
    for size in tensor.shape:
        description.shape.dim.add(size=size)


def _write_node(partition: GraphDef, simulation: Simulation, number: int) -> None:
    node = simulation.wiring.nodes[number]
    if not isinstance(node, Transfer):
        write_node_def(partition.node.add(), node, spell_inputs)
        return
    device = simulation.wiring.devices[simulation.wiring.device[number]]
    partition.node.add(name=node.name, op=node.op, device=device, input=[node.reads])
