"""Which kernels of a region have to be tried, and the trials of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memopt.cluster import system_memory_bytes
from memopt.context import Context
from memopt.fission.dimensions import Role, is_exact
from memopt.fission.products import OF_FILTERS, write_products
from memopt.fission.regions import part_numbers
from memopt.fission.trial_records import Outcome, Setting, Trial, TrialInput
from memopt.graph.attributes import op_attributes
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.kernels import ONEDNN_VARIABLE
from memopt.graph.op_types import DT_FLOAT, DT_INT32
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import set_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.buffers.kernel_call import Runtime
    from memopt.fission.gradients import Gradient
    from memopt.fission.regions import Region
    from memopt.fission.trials import Trials
    from memopt.graph.graph import Node, Tensor

_MOST_OF_MEMORY = 0.25
"""Of this machine's memory, what a trial may take: the sizes are whatever a file declares."""
_GRADIENT = "made"
_FUSED = {"Conv2D": "BiasAdd"}
"""What oneDNN may make one operation of with what reads it."""


def settings_of(runtime: Runtime | None, threads: int) -> tuple[Setting, ...]:
    """Under what a step may run: where nobody says, with oneDNN's kernels and without.

    Who runs steps without has TensorFlow's own switch off, `TF_ENABLE_ONEDNN_OPTS=0`.

    Args:
        runtime: What it runs on, if that is known.
        threads: How many share the work of a kernel if it is not.
    """
    if runtime is None:
        is_off = os.environ.get(ONEDNN_VARIABLE) == "0"
        kinds = (False,) if is_off else (False, True)
        return tuple(Setting(onednn=onednn, threads=threads) for onednn in kinds)
    return (Setting(onednn=runtime.onednn, threads=runtime.intra_op_threads),)


def find_unequal(region: Region, parts: int, trials: Trials) -> dict[Node, Outcome]:
    """The operations of a region of which it is not known that so many parts give the same bits.

    Args:
        region: The operations.
        parts: How many parts they would run in.
        trials: Makes what trials are needed.
    """
    unequal: dict[Node, Outcome] = {}
    most_bytes = _MOST_OF_MEMORY * system_memory_bytes()
    for group in _groups(region):
        if _size_bytes(region, group) > most_bytes:
            outcome = Outcome.TOO_LARGE
        else:
            outcome = trials.outcome(trial_of(region, group, parts))
        if outcome is not Outcome.EQUAL:
            unequal.setdefault(group[0], outcome)
    return unequal


def try_products(node: Node, way: Gradient, trials: Trials) -> Outcome:
    """Whether a gradient of a convolution has the same bits if it is computed as products.

    Args:
        node: The gradient.
        way: In what way.
        trials: Makes the trial.
    """
    # Both results, what is read and what is made on the way.
    if 2 * way.need_bytes > _MOST_OF_MEMORY * system_memory_bytes():
        return Outcome.TOO_LARGE
    graph_def, inputs = _gradient_alone(node, way)
    item = GrapplerItem(graph_def, feed=tuple(each.name for each in inputs), fetch=(_GRADIENT,))
    rewriter = Rewriter(from_graph_def(graph_def))
    with rewriter.edit("the same as products"):
        context = Context.of_item(item, Properties.of(item))
        write_products(rewriter, context, rewriter.graph[_GRADIENT], way)
    whole, otherwise = (
        each.SerializeToString(deterministic=True)
        for each in (graph_def, to_graph_def(rewriter.graph))
    )
    return trials.outcome(Trial(((1, whole),), inputs, (f"{_GRADIENT}:0",), (1,), otherwise))


def _gradient_alone(node: Node, way: Gradient) -> tuple[GraphDef, tuple[TrialInput, ...]]:
    """A gradient of a convolution in a graph of its own, and what is fed there."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.python.framework import tensor_util

    made, read = ("filters", "image") if node.op == OF_FILTERS else ("image", "filters")
    told = {"image": way.image, "filters": way.filters, "gradient": way.gradient}
    graph_def = graph_pb2.GraphDef()
    shapes = {name: shape for name, shape in told.items() if name != made}
    for name, shape in shapes.items():
        placeholder = graph_def.node.add(name=name, op="Placeholder")
        placeholder.attr["dtype"].type = DT_FLOAT
        set_shape(placeholder.attr["shape"].shape, shape)
    sizes = graph_def.node.add(name="sizes", op="Const")
    sizes.attr["dtype"].type = DT_INT32
    sizes.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(told[made], DT_INT32))
    inputs = [read, "sizes"] if node.op == OF_FILTERS else ["sizes", read]
    _add_like(graph_def, node, _GRADIENT).input.extend([*inputs, "gradient"])
    given = (TrialInput(name, DT_FLOAT, shape, is_split=False) for name, shape in shapes.items())
    return graph_def, tuple(given)


def _size_bytes(region: Region, group: Sequence[Node]) -> int:
    """What a trial has in memory at least: what goes in, and what comes out, twice."""
    given = {tensor for node in group for tensor in node.inputs}
    made = [each for node in group for each in region.facts.outputs(node)]
    inputs = sum(region.facts.known(tensor).size_bytes or 0 for tensor in given)
    return inputs + 2 * sum(each.size_bytes or 0 for each in made)


def _groups(region: Region) -> Iterator[tuple[Node, ...]]:
    """What runs as one kernel: an operation alone, and with what may be fused into it."""
    for node in region.nodes:
        if is_exact(node.op):
            continue
        yield (node,)
        fused = _FUSED.get(node.op)
        for reader, slot in node.output().uses if fused else ():
            if reader.op == fused and slot == 0 and reader in region.members:
                yield (node, reader)


def trial_of(region: Region, group: Sequence[Node], parts: int) -> Trial:
    """Operations of a region, producers first, that run as one kernel, as a trial of its own."""
    shares = tuple(region.shares(parts))
    inside = {tensor for node in group for tensor in node.outputs}
    names = {node: f"op{number}" for number, node in enumerate(group)}
    inputs: dict[Tensor, TrialInput] = {}
    for node in group:
        roles = region.facts.roles(node)
        for tensor, role in zip(node.inputs, roles, strict=True):
            if tensor in inside or (tensor.node.op == "Const" and role is not Role.ROWS):
                continue
            known = region.facts.known(tensor)
            inputs.setdefault(
                tensor,
                TrialInput(f"in{len(inputs)}", known.dtype, known.shape or (), role is Role.ROWS),
            )
    sizes = dict.fromkeys((region.unit, *shares))
    graphs = tuple((units, _graph(region, group, names, inputs, units)) for units in sizes)
    last = group[-1]
    outputs = tuple(f"{names[last]}:{port}" for port in range(len(region.facts.outputs(last))))
    return Trial(graphs, tuple(inputs.values()), outputs, shares)


def _graph(
    region: Region,
    group: Sequence[Node],
    names: dict[Node, str],
    inputs: dict[Tensor, TrialInput],
    units: int,
) -> bytes:
    """The operations for so many units, as a serialized GraphDef."""
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    for given in inputs.values():
        placeholder = graph_def.node.add(name=given.name, op="Placeholder")
        placeholder.attr["dtype"].type = given.dtype
    for node in group:
        added = _add_like(graph_def, node, names[node])
        for slot, tensor in enumerate(node.inputs):
            if tensor in inputs:
                added.input.append(inputs[tensor].name)
            elif tensor.node in names:
                added.input.append(f"{names[tensor.node]}:{tensor.port}")
            else:
                constant = graph_def.node.add(name=f"{names[node]}/{slot}", op="Const")
                _fill(constant, region, node, slot, units)
                added.input.append(constant.name)
    serialized: bytes = graph_def.SerializeToString(deterministic=True)
    return serialized


def _add_like(graph_def: GraphDef, node: Node, name: str) -> NodeDef:
    """Add the same operation, as yet without inputs."""
    added = graph_def.node.add(name=name, op=node.op)
    for key, value in sorted(op_attributes(node.attributes).items()):
        added.attr[key].CopyFrom(value)
    return added


def _fill(constant: object, region: Region, node: Node, slot: int, units: int) -> None:
    """Give a Const the numbers that an operation for so many units gets."""
    from memopt.shapes.integer_evaluation import as_array, constant_attributes

    source = node.inputs[slot].node
    attributes = source.attributes
    roles = region.facts.roles(node)
    if roles[slot] is Role.SHAPE:
        numbers = part_numbers(region, node, slot, units)
        known = region.facts.known(node.inputs[slot])
        value = as_array(list(numbers or ())).reshape(known.shape or ())
        attributes = constant_attributes(value, known.dtype)
    for key in ("dtype", "value"):
        constant.attr[key].CopyFrom(attributes[key])  # type: ignore[attr-defined]
