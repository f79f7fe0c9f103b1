"""Reports on steps in the shape of training, of any size and with any names, for report pages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import MemoryTimeline, simulate
from memopt.graph.rewriter import Decision, Declined, Edit, Touches
from memopt.options import Level
from memopt.result import GraphReport, OptimizationReport, PassReport, RuntimeMemory
from memopt.shapes.properties import Properties
from support.small_buffers import Step, small_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

NODES_PER_LAYER = 7
ACTIVATION_BYTES = 3 << 20
_WEIGHT_BYTES = 1 << 20
_RECOMPUTED_PART = 3


def training_report(nodes: int = 210, model: str = "model") -> OptimizationReport:
    """What an optimization says of a network with about so many operations.

    In two of three layers activations are computed again. The memory of both steps is simulated;
    nothing needs TensorFlow.

    Args:
        nodes: How many operations the step has before it is rewritten.
        model: The scope in which all layers are.
    """
    layers = [f"{model}/layer_{number}" for number in range(max(1, nodes // NODES_PER_LAYER))]
    before, after = _timeline(layers, copies=False), _timeline(layers, copies=True)
    budget_bytes = after.peak_bytes + (1 << 20)
    copied = [layer for number, layer in enumerate(layers) if _is_copied(number)]
    edit = Edit(
        f"{len(copied)} operations are computed again, so that the budget is kept",
        tuple(f"Recomputed/{layer}/Relu" for layer in copied),
        (),
        (),
        tuple(f"{layer}/Relu:0" for layer in copied),
        (),
        frozenset({Touches.NODES}),
        tuple(
            Decision(f"{layer}/Relu", f"recomputed, {ACTIVATION_BYTES} bytes in about 12.5 us")
            for layer in copied
        ),
    )
    kept = tuple(
        Declined(f"{layer}/Relu", "the limit is kept without recomputing it, which takes 12.5 us")
        for layer in layers
        if layer not in copied
    )
    done = PassReport("rematerialization{memory_limit=1}", "", (edit,), kept, 0.25)
    return OptimizationReport(
        level=Level.ORDERED,
        graphs=(GraphReport("", (done,), 0, "", 0),),
        nodes_before=len(before.sequence),
        nodes_after=len(after.sequence),
        properties=Properties.unknown(),
        runtime=RuntimeMemory(before, after, budget_bytes),
    )


def _is_copied(number: int) -> bool:
    return number % _RECOMPUTED_PART != 0


def _timeline(layers: list[str], *, copies: bool) -> MemoryTimeline:
    steps = list(_steps(layers, copies=copies))
    buffers = small_graph(steps).buffers
    # What is there before the step has no size in small graphs.
    makers = buffers.makers
    sizes = [
        _WEIGHT_BYTES if makers[buffer] < 0 else size
        for buffer, size in enumerate(buffers.size_bytes)
    ]
    buffers = replace(buffers, size_bytes=sizes)
    return simulate(buffers, range(len(steps)))


def _steps(layers: list[str], *, copies: bool) -> Iterator[Step]:
    half = ACTIVATION_BYTES // 2
    for layer in layers:
        yield Step(f"{layer}/kernel", (), -1, op="VarHandleOp")
    last = ""
    for layer in layers:
        read = (last, f"{layer}/kernel") if last else (f"{layer}/kernel",)
        yield Step(f"{layer}/MatMul", read, ACTIVATION_BYTES, op="MatMul", scratch_bytes=half)
        last = f"{layer}/Relu"
        yield Step(last, (f"{layer}/MatMul",), ACTIVATION_BYTES, op="Relu")
    gradient = last
    for number, layer in reversed(list(enumerate(layers))):
        scope, activation = f"gradient_tape/{layer}", f"{layer}/Relu"
        if copies and _is_copied(number):
            activation = f"Recomputed/{activation}"
            yield Step(activation, (f"{layer}/kernel", gradient), ACTIVATION_BYTES, op="Relu")
        yield Step(f"{scope}/ReluGrad", (gradient, activation), ACTIVATION_BYTES, op="ReluGrad")
        yield Step(f"{scope}/MatMul_1", (f"{scope}/ReluGrad",), _WEIGHT_BYTES, op="MatMul")
        gradient = f"{scope}/MatMul"
        read = (f"{scope}/ReluGrad", f"{layer}/kernel")
        yield Step(gradient, read, ACTIVATION_BYTES, op="MatMul")
        update = f"sgd/{layer}/ResourceApplyGradientDescent"
        yield Step(update, (f"{scope}/MatMul_1",), op="ResourceApplyGradientDescent", size_bytes=0)
