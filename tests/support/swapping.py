"""Graphs to swap in, what TensorFlow's own swapping does with them, and ours on the same terms."""

from __future__ import annotations

import os
import pickle
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from memopt.cluster import VirtualCluster
from memopt.context import Context
from memopt.costs.estimator.grappler_costs import GrapplerCosts
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request
from support import zygote
from support.native import optimize_native
from support.native_simulation import GPU

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device
    from memopt.graph.graph import Graph, Node
    from memopt.runtime.replay import Measurement

_WILL_SWAP = re.compile(r"Will swap fanout (\S+):(\d+) of tensor (\S+):(\d+) of size (\d+)")

_TIMEOUT_S = 600

Chosen = dict[str, tuple[int, frozenset[tuple[str, int]]]]
"""Candidates: for each tensor, `node:port`, its bytes and who reads it at which input."""

Swaps = dict[tuple[str, int], tuple[str, frozenset[str]]]
"""For each swapped input, `(reader, slot)`, its in-trigger and its out-triggers."""


class Case(NamedTuple):
    """A graph to be optimized."""

    graph_def: GraphDef
    fetch: tuple[str, ...]
    devices: tuple[Device, ...]
    level: str = "SWAPPING_HEURISTICS"


class NativeSwapping(NamedTuple):
    """What TensorFlow's pass did."""

    chosen: Chosen
    graph_def: GraphDef

    @property
    def swaps(self) -> Swaps:
        return swaps_of(self.graph_def)


class Swapped(NamedTuple):
    """A graph with the means to run a pass on it."""

    graph: Graph
    rewriter: Rewriter
    context: Context

    @property
    def simulated(self) -> SimulatedMemory:
        assert self.context.simulated is not None
        return self.context.simulated


def prepare(case: Case) -> Swapped:
    """A graph as the optimizer hands it to passes, with Grappler's costs; Placeholders are fed."""
    graph = from_graph_def(case.graph_def)
    properties = Properties.as_in_grappler(GrapplerItem(case.graph_def, fetch=case.fetch))
    fed = frozenset(node.name for node in graph if node.op == "Placeholder")
    scheduler = VirtualScheduler(VirtualCluster(case.devices), GrapplerCosts(), properties)
    simulated = SimulatedMemory(graph, scheduler, Request(case.fetch, fed))
    context = Context(properties, fed=fed, fetched=frozenset(case.fetch), simulated=simulated)
    return Swapped(graph, Rewriter(graph), context)


def peak_bytes(case: Case, device: str = GPU) -> int:
    """The simulated peak of a device."""
    return prepare(case).simulated.memory().peak(device).used_bytes


def swaps_of(graph_def: GraphDef) -> Swaps:
    """The swaps in a graph, told by the names and control inputs of the operations."""
    waiting: dict[str, set[str]] = {}
    for node in graph_def.node:
        for name in node.input:
            if name.startswith("^swap_out_"):
                waiting.setdefault(name[1:], set()).add(node.name)
    swaps: Swaps = {}
    for node in graph_def.node:
        if not node.name.startswith("swap_in_"):
            continue
        reader, _, slot = node.name.removeprefix("swap_in_").rpartition("_")
        copy, trigger = node.input
        swaps[reader, int(slot)] = (trigger[1:], frozenset(waiting[copy]))
    return swaps


def swap_natively(cases: Sequence[Case]) -> list[NativeSwapping]:
    """TensorFlow's results and the candidates that it logs, from a fresh process."""
    requests = [
        (case.graph_def.SerializeToString(), case.fetch, case.devices, case.level) for case in cases
    ]
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": "memory_optimizer=1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    environment.pop("ABSL_MIN_LOG_LEVEL", None)
    with tempfile.TemporaryDirectory() as directory:
        asked, answered = Path(directory, "asked"), Path(directory, "answered")
        asked.write_bytes(pickle.dumps(requests))
        source = "import sys; from support.swapping import main; main(*sys.argv[1:])"
        files = (str(asked), str(answered))
        zygote.run_source(source, files, environment, _TIMEOUT_S).check_returncode()
        answers = pickle.loads(answered.read_bytes())
    return [NativeSwapping(_chosen(log), _parse(graph_def)) for log, graph_def in answers]


def _chosen(log: str) -> Chosen:
    sizes: dict[str, int] = {}
    readers: dict[str, set[tuple[str, int]]] = {}
    for reader, slot, node, port, size in _WILL_SWAP.findall(log):
        tensor = f"{node}:{port}"
        sizes[tensor] = int(size)
        readers.setdefault(tensor, set()).add((reader, int(slot)))
    return {tensor: (size, frozenset(readers[tensor])) for tensor, size in sizes.items()}


def _parse(graph_def: bytes) -> GraphDef:
    from tensorflow.core.framework import graph_pb2

    parsed: GraphDef = graph_pb2.GraphDef.FromString(graph_def)
    return parsed


def host_peak_bytes(measured: Measurement, sizes: Mapping[str, int]) -> int:
    """The most bytes that a step has on the host at a time, in copies made by SerializeTensor.

    A string's characters are in no allocator's memory, but the string itself is: the copy lives as
    long as it.

    Args:
        measured: The step as it ran.
        sizes: The bytes of each copy by the operation that makes it.
    """
    held = peak = 0
    for entry in measured.timeline:
        if entry.operation in sizes:
            size_bytes = sizes[entry.operation]
            held += size_bytes if entry.kind == "allocate" else -size_bytes
            peak = max(peak, held)
    return peak


def copied_bytes(graph_def: GraphDef, original: GrapplerItem) -> dict[str, int]:
    """The bytes of each copy on the host, by the SerializeTensor that makes it."""
    properties = Properties.of(original)
    sizes = {}
    for node in graph_def.node:
        if node.op == "SerializeTensor":
            name, _, port = node.input[0].partition(":")
            sizes[node.name] = properties.size_bytes(f"{name}:{port or 0}") or 0
    return sizes


def in_simulated_order(item: GrapplerItem, device: Device) -> GraphDef:
    """The graph with control edges that make it run in the order of its simulation, one by one."""
    graph = from_graph_def(item.graph_def)
    properties = Properties.of(item)
    scheduler = VirtualScheduler(VirtualCluster([device]), GrapplerCosts(), properties)
    simulation = scheduler.run(graph, Request.of(item))
    wiring = simulation.wiring
    rewriter = Rewriter(graph)
    before: Node | None = None
    with rewriter.edit("one after the other"):
        for number in dict.fromkeys(simulation.executed):
            node = graph.find(wiring.name(number))
            if node is None or node.op in ("Const", "Placeholder", "VarHandleOp", "VariableV2"):
                continue
            if before is not None and all(tensor.node is not before for tensor in node.inputs):
                rewriter.add_control_input(node, before)
            before = node
    return to_graph_def(graph)


def chain(layers: int = 20, dimension: int = 1024, batch: int = 256) -> GraphDef:
    """A training step of equal dense layers on a GPU."""
    return _dense([dimension] * (layers + 1), batch)


def uneven(layers: int = 24, batch: int = 256) -> GraphDef:
    """The same with layers that all have different widths, so that no two times are equal."""
    return _dense([700 + 37 * (7 * number % layers) for number in range(layers + 1)], batch)


def _dense(dimensions: list[int], batch: int) -> GraphDef:
    def layer(h: tf.Tensor, number: int, weights: list[tf.Tensor]) -> tf.Tensor:
        shape = [dimensions[number], dimensions[number + 1]]
        weight = tf.raw_ops.VariableV2(shape=shape, dtype=tf.float32, name=f"w{number}")
        weights.append(weight)
        return tf.nn.sigmoid(tf.matmul(h, weight, name=f"mm{number}"), name=f"act{number}")

    return _training_step([batch, dimensions[0]], len(dimensions) - 1, layer)


def resblocks(blocks: int = 12, dimension: int = 512, batch: int = 256) -> GraphDef:
    """A training step of blocks with four branches, joined and accumulated by AddN, on a GPU."""

    def block(h: tf.Tensor, number: int, weights: list[tf.Tensor]) -> tf.Tensor:
        branches = []
        for branch in range(4):
            name = f"{number}_{branch}"
            weight = tf.raw_ops.VariableV2(
                shape=[dimension, dimension], dtype=tf.float32, name=f"w{name}"
            )
            weights.append(weight)
            product = tf.matmul(h, weight, name=f"mm{name}")
            branches.append(tf.nn.relu(product, name=f"relu{name}"))
        return tf.math.add_n(branches, name=f"join{number}")

    return _training_step([batch, dimension], blocks, block)


def _training_step(
    shape: list[int], layers: int, layer: Callable[[tf.Tensor, int, list[tf.Tensor]], tf.Tensor]
) -> GraphDef:
    with tf.Graph().as_default() as graph, graph.device(GPU):
        h = tf.compat.v1.placeholder(tf.float32, shape, name="x")
        weights: list[tf.Tensor] = []
        for number in range(layers):
            h = layer(h, number, weights)
        gradients = tf.gradients(tf.reduce_sum(h), weights)
        updates = [
            tf.raw_ops.AssignSub(ref=weight, value=0.1 * gradient)
            for weight, gradient in zip(weights, gradients, strict=True)
        ]
        tf.group(*updates, name="train")
    return graph.as_graph_def()


GRAPHS: dict[str, Callable[[], GraphDef]] = {
    "chain": chain,
    "uneven": uneven,
    "resblocks": resblocks,
}


def _answer(requests: Iterable[tuple[bytes, tuple[str, ...], tuple[Device, ...], str]]) -> object:
    """What each request's log says, and the graph; the log is what is written to stderr."""
    answers = []
    for graph_def, fetch, devices, level in requests:
        with tempfile.TemporaryFile("w+") as log:
            stderr = os.dup(2)
            os.dup2(log.fileno(), 2)
            try:
                result = optimize_native(_parse(graph_def), level, fetch, devices=devices)
            finally:
                os.dup2(stderr, 2)
                os.close(stderr)
            log.seek(0)
            answers.append((log.read(), result.SerializeToString()))
    return answers


def main(asked: str, answered: str) -> None:
    """Answer what is asked in a file, in a process in which TensorFlow logs what it swaps."""
    requests = pickle.loads(Path(asked).read_bytes())
    Path(answered).write_bytes(pickle.dumps(_answer(requests)))
