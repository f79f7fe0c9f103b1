"""Relaxed allocation: let assignments take over buffers that no other device or task will fetch.

Grappler's `FindAssignNodesToRelax` and `RelaxAssignNodes`
(tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node
    from memopt.graph.rewriter import Rewriter

RELAX_ATTRIBUTE = "_grappler_relax_allocator_constraints"

ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
SENDS = frozenset({"_Send", "_HostSend"})

NEVER_FORWARDING = frozenset(
    "ArgMax ArgMin AudioSpectrogram AvgPool BatchMatMul BatchMatMulV2 "
    "BatchNormWithGlobalNormalization BatchToSpace BatchToSpaceND Bincount BroadcastArgs "
    "BroadcastGradientArgs Bucketize CTCBeamSearchDecoder CTCGreedyDecoder CTCLoss "
    "CompareAndBitpack ComplexAbs Concat ConcatOffset ConcatV2 Conv2D Copy CopyHost Cross CudnnRNN "
    "CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParams "
    "CudnnRNNCanonicalToParamsV2 CudnnRNNParamsSize CudnnRNNParamsToCanonical "
    "CudnnRNNParamsToCanonicalV2 CudnnRNNV2 CudnnRNNV3 CumProd CumSum DebugNanCount "
    "DebugNumericSummary DecodeProtoV2 DecodeWav DeepCopy DepthToSpace Dequantize Diag DiagPart "
    "EditDistance Empty EncodeProtoV2 EncodeWav ExtractImagePatches ExtractVolumePatches Fill "
    "Gather GatherNd GatherV2 HistogramFixedWidth InvertPermutation IsInf IsNan Isfinite LinSpace "
    "LowerBound MatMul MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagV2 Mfcc Multinomial "
    "OneHot Pack ParameterizedTruncatedNormal PopulationCount RandomGamma RandomPoisson "
    "RandomPoissonV2 RandomStandardNormal RandomUniform RandomUniformInt Range Rank "
    "RequantizationRange Requantize ReverseSequence Shape ShapeN Size SpaceToBatch SpaceToBatchND "
    "SpaceToDepth SparseMatMul Split SplitV TruncatedNormal Unique UniqueV2 UniqueWithCounts "
    "UniqueWithCountsV2 Unpack UnravelIndex UpperBound Where".split()
)
"""Grappler's `NeverForwardsInputs` (tensorflow/core/grappler/op_types.cc) in TensorFlow 2.21.

Five of the names belong to no op of TensorFlow (`Isfinite`, `CumSum`, ...); they are Grappler's.
"""


@dataclass(frozen=True)
class RelaxAllocator(Pass):
    """Mark assignments whose value stays where it is, so that they need not copy it.

    The first assignment to a variable copies its value into memory that other devices and the
    network can read, unless the attribute `_grappler_relax_allocator_constraints` says that none
    will: then it takes over the value's own buffer where it can.

    1. Considered is every Assign and AssignVariableOp.
    2. If there is no Send and all nodes carry the same device string, all are marked.
    3. Otherwise an assignment is marked if its value leads to no Send, to no node of another task
       and to no node on the other side of a border between CPU and GPU. It leads to what reads it
       by data edges, and on through operations that could hand on its buffer, which all could but
       those that are known not to (`never_forwards`).
    4. Assignments to which the value of a marked one leads are marked with it, but for those that
       were looked at before and left alone.
    5. Those that come after the first Send of the graph are marked only by rule 4.

    Every assignment left alone has a reason in the report. Nothing but the attribute changes, and
    results do not depend on it.
    """

    name: ClassVar[str] = "relax-allocator"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.ATTRIBUTES})

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Mark all assignments that can be, in one edit."""
        del context
        relaxed, declined = find_relaxable(rewriter.graph)
        for node, reason in declined.items():
            rewriter.decline(node, reason)
        if not relaxed:
            return
        from tensorflow.core.framework import attr_value_pb2

        mark = attr_value_pb2.AttrValue(b=True)
        with rewriter.edit("what is assigned is read on its own device only: no copy needed"):
            for node in relaxed:
                rewriter.set_attribute(node, RELAX_ATTRIBUTE, mark)


class Relaxable(NamedTuple):
    """What the pass does with the assignments of a graph, in the order of the graph's nodes.

    Attributes:
        relaxed: Those to mark.
        declined: Those left alone, each with the reason.
    """

    relaxed: list[Node]
    declined: dict[Node, str]


def find_relaxable(graph: Graph) -> Relaxable:
    """Which assignments the pass marks; nothing is changed. Linear in nodes and edges."""
    assignments = [node for node in graph if node.op in ASSIGNMENTS]
    send = next((node for node in graph if node.op in SENDS), None)
    if not assignments or (send is None and len({node.device for node in graph}) == 1):
        return Relaxable(assignments, {})
    borders = _Borders(graph)
    walk = _Walk()
    relaxed: set[Node] = set()
    declined: dict[Node, str] = {}
    for assignment in assignments:
        if assignment in relaxed:
            continue
        reason = borders.why_not(assignment)
        if send is not None and send.index < assignment.index:
            reason = f"comes after the Send {send.name!r}, where Grappler no longer looks"
        if reason is not None:
            declined[assignment] = reason
            continue
        found = walk.fanout(assignment)
        relaxed.update(node for node in found if node.op in ASSIGNMENTS and node not in declined)
    return Relaxable([node for node in assignments if node in relaxed], declined)


def never_forwards(op: str) -> bool:
    """Whether Grappler takes the op to write its results into new buffers always."""
    return op in NEVER_FORWARDING or "Segment" in op or op.startswith("Quantize")


class _Walk:
    """Visits what values lead to; no node twice, however many values lead there."""

    def __init__(self) -> None:
        self._visited: set[Node] = set()

    def fanout(self, start: Node) -> Iterator[Node]:
        """A node and all that its value leads to, but for what an earlier call gave."""
        pending = [start]
        while pending:
            node = pending.pop()
            if node in self._visited:
                continue
            self._visited.add(node)
            yield node
            if never_forwards(node.op):
                continue
            for tensor in node.outputs:
                pending.extend(user for user, _ in tensor.uses)


class _Borders:
    """Answers whether a node's value leads over a border.

    Borders do not depend on which assignment asks: whether a value leads to a Send, to a CPU, to a
    GPU, or along an edge from task to task is found once, backwards, for all nodes.
    """

    def __init__(self, graph: Graph) -> None:
        self._places = {device: split_device(device) for device in {node.device for node in graph}}
        self._sends = _leading_to({node: node for node in graph if node.op in SENDS})
        self._cpus = self._leading_to_type(graph, "CPU")
        self._gpus = self._leading_to_type(graph, "GPU")
        self._tasks = _leading_to(self._leaving_task(graph))

    def why_not(self, assignment: Node) -> str | None:
        """Why an assignment cannot be marked, or `None`."""
        device = self._places[assignment.device].device
        if assignment in self._sends:
            return f"its value may be sent by {self._sends[assignment].name!r}"
        if assignment in self._tasks:
            return f"its value may be read in another task by {self._tasks[assignment].name!r}"
        if "CPU" in device and assignment in self._gpus:
            return f"its value may be read on a GPU by {self._gpus[assignment].name!r}"
        if "GPU" in device and assignment in self._cpus:
            return f"its value may be read on a CPU by {self._cpus[assignment].name!r}"
        return None

    def _leading_to_type(self, graph: Graph, device_type: str) -> dict[Node, Node]:
        # As in Grappler any type counts whose name contains the word, such as XLA_GPU.
        there = (node for node in graph if device_type in self._places[node.device].device)
        return _leading_to({node: node for node in there})

    def _leaving_task(self, graph: Graph) -> dict[Node, Node]:
        """The nodes whose value a node of another task may read directly, with the first such."""
        found: dict[Node, Node] = {}
        for node in graph:
            task = self._places[node.device].task
            for tensor in node.inputs:
                producer = tensor.node
                if self._places[producer.device].task != task and not never_forwards(producer.op):
                    found.setdefault(producer, node)
        return found


def _leading_to(nearest: dict[Node, Node]) -> dict[Node, Node]:
    """For every node whose value leads to a key the value of the nearest key, in the same dict."""
    pending = list(nearest)
    for node in pending:
        for tensor in node.inputs:
            producer = tensor.node
            if producer not in nearest and not never_forwards(producer.op):
                nearest[producer] = nearest[node]
                pending.append(producer)
    return nearest


class Place(NamedTuple):
    """A device string in two parts, both empty where it does not name one device.

    Attributes:
        task: Such as "/job:worker/replica:0/task:1"; what is left out or "*" is not in it.
        device: Such as "GPU:0".
    """

    task: str = ""
    device: str = ""


_COMPONENT = re.compile(
    r"/(?P<key>job|replica|task|device|cpu|CPU|gpu|GPU):(?P<value>\*|\w+)(?::(?P<id>\*|[0-9]+))?",
    re.ASCII,
)


def split_device(name: str) -> Place:
    """The parts of a node's device string, read as by TensorFlow's `SplitDeviceName`."""
    parts: dict[str, str] = {}
    end = 0
    for match in _COMPONENT.finditer(name):
        if match.start() != end:
            return Place()
        end = match.end()
        key, value = match["key"], match["value"]
        if key == "device":
            parts["type"], parts["id"] = value, match["id"] or "*"
        elif key.upper() in ("CPU", "GPU"):
            parts["type"], parts["id"] = key.upper(), value
        else:
            parts[key] = str(int(value)) if value.isdigit() else value
    given = {key: value for key, value in parts.items() if value != "*"}
    if end != len(name) or "type" not in given or "id" not in given:
        return Place()
    task = "".join(f"/{key}:{given[key]}" for key in ("job", "replica", "task") if key in given)
    return Place(task, f"{given['type']}:{given['id']}")
