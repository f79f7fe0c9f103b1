"""Which tensors are worth swapping: those that lie idle around a device's peak.

Grappler's `IdentifySwappingCandidates` (tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.simulation.virtual_scheduler import PERSISTENT_OPS

if TYPE_CHECKING:
    from memopt.cluster import Device
    from memopt.graph.graph import Graph, Node, Tensor, Use
    from memopt.simulation.graph_memory import LiveTensor
    from memopt.simulation.simulated_memory import SimulatedMemory
    from memopt.simulation.simulation import Simulation
    from memopt.swapping.history import SwapHistory

SMALLEST_BYTES = 1024
"""Smaller tensors, and those of this size, are not worth a transfer."""

SHORTEST_LIFE_NS = 1_000_000
"""A tensor that lives no longer leaves no time for transfers."""

SHARES_REFERENCE = "shares the memory of a variable that is updated in place"

_MICROSECOND_NS = 1000


class Candidate(NamedTuple):
    """A tensor that is to be swapped.

    Attributes:
        tensor: The tensor.
        size_bytes: Its bytes.
        uses: Who reads it after the peak, and at which input.
        fitness: Square nanoseconds; the larger the better.
    """

    tensor: Tensor
    size_bytes: int
    uses: tuple[Use, ...]
    fitness: float


class Rejected(NamedTuple):
    """A large tensor that is live at a peak and stays where it is."""

    node: Node
    reason: str


class Choice(NamedTuple):
    """What to swap of a device's tensors, best first, and what cannot be swapped."""

    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejected, ...]


def choose(
    graph: Graph, device: Device, simulated: SimulatedMemory, history: SwapHistory
) -> Choice:
    """The fittest tensors of a device, as many as it takes to fit its memory.

    1. Nothing is chosen if the device's peak is no larger than its memory, or that is not known.
    2. A candidate is live at the peak, larger than 1024 bytes, lives for more than a millisecond,
       is no reference and lasts no longer than the step, and is read after the peak. Its readers
       all run, and those after the peak take no reference. What was tried before is left out.
    3. Fit is what is first read again long after the peak, by few readers, and was made long
       before: the square of the first distance over the square of the number of late readers, plus
       the square of the second.
    4. Of equally fit ones the one that comes first in time, then by name, goes first. (TensorFlow
       leaves it to an unstable sort.)

    Every chosen tensor counts, whether it can be swapped in the end or not.
    """
    peak = simulated.memory().peak(device.name)
    if device.memory_bytes <= 0 or peak.used_bytes <= device.memory_bytes:
        return Choice((), ())
    # The latest allocation, which need not be the last event at the peak.
    peak_ns = max(tensor.allocated_ns for tensor in peak.live)
    search = _Search(graph, simulated.simulation(), history, peak_ns)
    found: list[Candidate] = []
    rejected: list[Rejected] = []
    for live in peak.live:
        node = graph.find(live.node)
        if live.size_bytes <= SMALLEST_BYTES or node is None or live.node in history.nodes:
            continue
        candidate = search.examine(node.output(live.port), live)
        if isinstance(candidate, Candidate):
            found.append(candidate)
        else:
            rejected.append(Rejected(node, candidate))
    found.sort(key=lambda candidate: -candidate.fitness)
    needed_bytes = peak.used_bytes - device.memory_bytes
    chosen = 0
    while chosen < len(found) and needed_bytes >= 0:
        needed_bytes -= found[chosen].size_bytes
        chosen += 1
    return Choice(tuple(found[:chosen]), tuple(rejected))


class _Search:
    """Looks at the tensors that are live at one peak."""

    def __init__(
        self, graph: Graph, simulation: Simulation, history: SwapHistory, peak_ns: int
    ) -> None:
        self._graph = graph
        self._simulation = simulation
        self._history = history
        self._peak_ns = peak_ns

    def examine(self, tensor: Tensor, live: LiveTensor) -> Candidate | str:
        """The tensor as a candidate, or why it is none."""
        if live.freed_ns - live.allocated_ns <= SHORTEST_LIFE_NS:
            return "lives too short for transfers"
        reason = why_not_swappable(tensor)
        if reason is not None:
            return reason
        uses: list[Use] = []
        first_ns: int | None = None
        for reader, slot in tensor.uses:
            end_ns = self._ended_ns(reader)
            if end_ns is None:
                return f"{reader.name!r}, which reads it, does not run"
            if end_ns <= self._peak_ns:
                continue
            reason = self._why_not_read_copy(reader, slot)
            if reason is not None:
                return reason
            uses.append((reader, slot))
            first_ns = end_ns if first_ns is None else min(first_ns, end_ns)
        if first_ns is None:
            return "is not read after the peak"
        # In floating point, and in this order, so that the figure is TensorFlow's to the bit.
        wait, readers = float(first_ns - self._peak_ns), float(len(uses))
        age = float(live.allocated_ns - self._peak_ns)
        fitness = wait * wait / (readers * readers) + age * age
        return Candidate(tensor, live.size_bytes, tuple(uses), fitness)

    def _ended_ns(self, node: Node) -> int | None:
        """When a node has ended, as TensorFlow reads it from step stats: in microseconds."""
        end_ns = self._simulation.end_ns(node)
        return None if end_ns is None else end_ns // _MICROSECOND_NS * _MICROSECOND_NS + 1

    def _why_not_read_copy(self, reader: Node, slot: int) -> str | None:
        if reader.name in self._history.nodes or f"{reader.name}:{slot}" in self._history.inputs:
            return f"swapping it for {reader.name!r} was tried before"
        if not reads_value(reader, slot):
            return f"{reader.name!r} reads it as a reference, or is no op of TensorFlow's"
        return None


def why_not_swappable(tensor: Tensor) -> str | None:
    """Why swapping a tensor could not save memory, or `None` (`IsSwappable`)."""
    seen: set[Node] = set()
    while tensor.node not in seen:
        node = tensor.node
        seen.add(node)
        if node.op in PERSISTENT_OPS:
            return "is or shares the memory of a constant or variable"
        signature = op_types.signature(node.op)
        if signature is None:
            return f"{node.op!r} is no op of TensorFlow's"
        outputs = signature.port_types(node).outputs
        if tensor.port >= len(outputs) or outputs[tensor.port] >= op_types.REF_TYPE_OFFSET:
            return "is a reference"
        if node.op not in ("Identity", "Reshape") or not node.inputs:
            return None
        # These hand the memory of their input on, unless it comes from another device.
        tensor = node.inputs[0]
        if tensor.node.device != node.device:
            return None
    return None


def reads_value(reader: Node, slot: int) -> bool:
    """Whether an op of TensorFlow's reads a value, not a reference, at an input."""
    signature = op_types.signature(reader.op)
    if signature is None:
        return False
    inputs = signature.port_types(reader).inputs
    return slot < len(inputs) and inputs[slot] < op_types.REF_TYPE_OFFSET


def shares_reference(tensor: Tensor) -> bool:
    """Whether a tensor is the memory of a variable that is updated in place, so that it changes."""
    seen: set[Node] = set()
    while tensor.node not in seen:
        node = tensor.node
        seen.add(node)
        signature = op_types.signature(node.op)
        outputs = () if signature is None else signature.port_types(node).outputs
        if tensor.port < len(outputs) and outputs[tensor.port] >= op_types.REF_TYPE_OFFSET:
            return True
        slot = tensor.port if node.op == "IdentityN" else 0
        if node.op not in op_types.FORWARDING or slot >= len(node.inputs):
            return False
        tensor = node.inputs[slot]
        if tensor.node.device != node.device:
            return False
    return False
