"""MeasuredKernels: what a step's kernels do with memory and how long they run, as measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.kernel_call import KernelCall, Runtime
from memopt.costs.cost_model import Cost
from memopt.shapes.constants import constant_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.buffers.kernel_call import KernelMemory
    from memopt.buffers.kernel_signature import Signatures
    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Node, Tensor
    from memopt.kernels.table import MeasuredKernel
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties


class MeasuredKernels:
    """Looks kernels up by their signatures.

    Args:
        kernels: What was measured, by the key of the signature.
        signatures: Tells the signatures of the graph's nodes.
    """

    def __init__(self, kernels: Mapping[str, MeasuredKernel], signatures: Signatures) -> None:
        self._kernels = kernels
        self._signatures = signatures

    def find(self, call: KernelCall) -> KernelMemory | None:
        """What a kernel does with memory; `None` if that was not measured."""
        measured = self.kernel(call)
        if measured is None or measured.memory is None:
            return None
        # A table from elsewhere is only believed as far as it fits the graph.
        return measured.memory if _fits(measured.memory, call) else None

    def kernel(self, call: KernelCall) -> MeasuredKernel | None:
        """All that was measured of a kernel."""
        signature = self._signatures.of(call)
        return None if signature is None else self._kernels.get(signature.key)


class MeasuredCosts:
    """The times of kernels that were measured; others cost what the fallback says.

    Args:
        measured: What was measured.
        fallback: The costs of all other nodes.
    """

    def __init__(self, measured: MeasuredKernels, fallback: CostModel) -> None:
        self._measured = measured
        self._fallback = fallback

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution; see `CostModel`."""
        call = call_of(node, properties)
        measured = None if call is None else self._measured.kernel(call)
        if measured is None or not measured.time_ns:
            return self._fallback.cost(node, device, properties)
        return Cost(measured.time_ns, measured.time_ns, 0)


def call_of(node: Node, properties: Properties) -> KernelCall | None:
    """A node as its kernel sees it; `None` if not all of its inputs are known."""
    inputs = [_known(tensor, properties) for tensor in node.inputs]
    known = [tensor for tensor in inputs if tensor is not None]
    outputs = properties.outputs(node.name)
    if len(known) < len(inputs) or not outputs:
        return None
    return KernelCall(
        node, known, outputs, lambda slot: constant_numbers(node.inputs[slot].node), Runtime()
    )


def _known(tensor: Tensor, properties: Properties) -> TensorProperties | None:
    outputs = properties.outputs(tensor.node.name)
    return outputs[tensor.port] if tensor.port < len(outputs) else None


def _fits(memory: KernelMemory, call: KernelCall) -> bool:
    """Whether there is a placement for each output, and no input that the call does not have."""
    slots = [slot for each in memory.placements for slot in (each.alias, *each.reuses)]
    slots += [slot for _, taken in memory.scratch_buffers for slot in taken]
    most = len(call.inputs)
    return len(memory.placements) == len(call.outputs) and all(slot < most for slot in slots)
