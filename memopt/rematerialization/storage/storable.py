"""Which results can be stored in another form, and in which."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.graph.op_types import CONTROL_FLOW
from memopt.sequencing.frames import find_frames
from memopt.swapping.ops import HOST_TYPE, Swapper, names_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.storage.compression import Compressor
    from memopt.rematerialization.storage.forms import Form
    from memopt.rematerialization.storage.offloading import Offloader
    from memopt.shapes.tensor_properties import TensorProperties


def find_forms(
    rewriter: Rewriter,
    network: Network,
    context: Context,
    *,
    compressor: Compressor | None = None,
    offloader: Offloader | None = None,
) -> dict[int, list[Form]]:
    """By node of a network: the forms in which its result can be stored.

    A result is stored only if it is all that its node makes, a tensor of known size in a buffer of
    its own, outside of v1 control flow, neither fed, fetched nor kept, and no sum is added in an
    order that follows from who reads it (`find_shared_inputs`). The node itself may be
    of any kind, random or with state: it does not run again.

    Args:
        rewriter: With the graph.
        network: The same in numbers.
        context: What the pass knows.
        compressor: Tells the smaller forms; `None` for none.
        offloader: Tells the form on the host; `None` for none.
    """
    nodes = network.buffer_graph.nodes
    frames = find_frames(nodes, network.sequence)
    named = context.fed | context.fetched | context.kept
    found: dict[int, list[Form]] = {}
    for number in network.sequence:
        node = nodes[number]
        if frames[number] or node.op in CONTROL_FLOW or node.name in named:
            continue
        if number in network.bound:
            continue
        tensor = _find_result(node, network.buffer_graph.made[number], rewriter, context)
        if tensor is None:
            continue
        forms = list(compressor.forms(tensor)) if compressor is not None else []
        if offloader is not None:
            forms += _host_forms(node, tensor, rewriter, context, offloader)
        if forms:
            found[number] = forms
    return found


def swapper_for(method: str, node: Node, rewriter: Rewriter, context: Context) -> Swapper:
    """What adds the operations that take a node's result to the host and back."""
    device_type = HOST_TYPE if names_host(node.device) else ""
    return Swapper(method, device_type, rewriter, context.properties)


def _find_result(
    node: Node, made: list[int], rewriter: Rewriter, context: Context
) -> TensorProperties | None:
    """The only tensor of a node, if it has a buffer of its own."""
    if len(made) != 1:
        return None
    outputs = context.properties.outputs(node.name)
    types = op_types.port_types(node, rewriter.graph.library).outputs
    if len(outputs) != 1 or len(types) != 1 or types[0] >= op_types.REF_TYPE_OFFSET:
        return None
    return outputs[0] if outputs[0].is_known and outputs[0].size_bytes else None


def _host_forms(
    node: Node,
    tensor: TensorProperties,
    rewriter: Rewriter,
    context: Context,
    offloader: Offloader,
) -> Iterator[Form]:
    if swapper_for(offloader.ops, node, rewriter, context).why_not(tensor.dtype) is None:
        yield from offloader.forms(node, tensor)
