"""Swapping: keep tensors on the host while nothing on the device reads them.

Grappler's `SwappingPass` (tensorflow/core/grappler/optimizers/memory_optimizer.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.accumulation.sum_orders import SumOrders
from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.simulation.earliest_times import earliest_ends_ns
from memopt.swapping import ops as swap_ops
from memopt.swapping.candidates import SHARES_REFERENCE, choose, shares_reference
from memopt.swapping.history import PREFIXES, SwapHistory, decline_input, decline_reader
from memopt.swapping.improved import SharedSwaps
from memopt.swapping.ops import COLOCATION, HOST_TYPE, Swapped, Swapper, colocate
from memopt.swapping.triggers import TriggerSearch

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.simulation.simulated_memory import SimulatedMemory

HINT_ATTRIBUTE = "_swap_to_host"
BYTES_PER_NS = 16
"""The rate of every transfer: PCIe of 16 GB/s."""


FEW_READERS = 12
"""So many fit into TensorFlow's hash table before it is built anew, which turns its order round."""


@dataclass(frozen=True)
class Swapping(Pass):
    """Copy tensors that lie idle around a device's peak to the host, and back when they are needed.

    1. Chosen are, for each GPU whose peak exceeds its memory, the fittest tensors that are live
       there (`candidates.choose`), at all readers after the peak; and the inputs that a node's
       attribute `_swap_to_host`, an integer or a list of them, says.
    2. A reader's copies may start when the last node has ended that leads to the reader and ends
       early enough for the copies to arrive in time, at 16 GB/s (`TriggerSearch.in_trigger`).
    3. For each chosen input, the tensor is copied out to `swap_out_<reader>_<input>`, and back to
       `swap_in_<reader>_<input>`, which the reader reads instead. The copy out comes before another
       reader of the tensor, the first one to end (`TriggerSearch.out_trigger`).
    4. What was tried once is not tried again in the same optimization (`SwapHistory`).

    A search for a trigger that meets an earlier swap fails, so the order of readers matters.
    Grappler takes them in the order of a hash table of addresses: the last chosen first if they are
    few, and any order if they are many. Few come in that order here too; of many, those that stand
    last in the graph come first, whose searches lead to nodes that are still as they were.

    Refused beyond Grappler, with a reason in the report, because the graph could fail, hang or
    compute something else: a reader that is a Merge, whose trigger could be dead; a Merge that
    would wait for the copy out; strings, resources and variants; the memory of a variable that is
    updated in place; a tensor that a sum reads whose order
    of addition depends on timing. A sum that would be added in another order is split.

    A second run on the result may swap more, as in Grappler: it does not know its own copies.
    """

    name: ClassVar[str] = "swapping"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            Touches.NODES,
            Touches.DATA_EDGES,
            Touches.CONTROL_EDGES,
            Touches.ATTRIBUTES,
            Touches.OPS,
        }
    )

    heuristics: bool = True
    """Choose tensors; otherwise swap what `_swap_to_host` says and nothing else."""
    improved: bool = False
    """Swap in a better way than Grappler; see `SharedSwaps` and `Planner`."""
    ops: str = swap_ops.COPY
    """What moves the bytes: "copy", "identity" or "serialize"; see `Swapper`."""
    device_type: str = "GPU"
    """The type of the devices whose tensors are swapped; a CPU's only by "serialize"."""

    same_sums: bool = True
    """Split sums that would be added in another order, where Grappler changes their last bit; the
    improved way always does."""

    def __post_init__(self) -> None:
        if self.ops not in swap_ops.SWAP_OPS:
            raise OptionsError(f"swapping: ops is one of {swap_ops.SWAP_OPS}, not {self.ops!r}")
        if self.device_type == HOST_TYPE and self.ops != swap_ops.SERIALIZE:
            raise OptionsError("swapping: tensors leave a CPU's memory only with ops=serialize")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Choose, then swap reader by reader."""
        simulated = context.simulated
        if simulated is None:
            return
        if self.improved:
            swapper = Swapper(self.ops, self.device_type, rewriter, context.properties)
            swaps = SharedSwaps(swapper, rewriter, context, simulated)
            self._share(swaps, simulated, _annotated(rewriter.graph))
            return
        history = SwapHistory.of(rewriter)
        wanted = self.wanted(rewriter, simulated, history)
        if not wanted:
            return
        last_first = list(reversed(wanted))
        if len(wanted) > FEW_READERS:
            last_first.sort(key=lambda reader: -reader.index)
        rewrite = PairRewrite(self, rewriter, context, simulated, history)
        rewrite.apply({reader: wanted[reader] for reader in last_first})

    def wanted(
        self, rewriter: Rewriter, simulated: SimulatedMemory, history: SwapHistory
    ) -> dict[Node, list[int]]:
        """The inputs to swap by reader, in the order in which they were chosen."""
        graph = rewriter.graph
        wanted: dict[Node, list[int]] = {}
        for device in simulated.cluster if self.heuristics else ():
            if device.type != self.device_type:
                continue
            choice = choose(graph, device, simulated, history)
            for node, reason in choice.rejected:
                rewriter.decline(node, reason)
            for candidate in choice.candidates:
                for reader, slot in candidate.uses:
                    wanted.setdefault(reader, []).append(slot)
        for node, slots in _annotated(graph).items():
            wanted.setdefault(node, []).extend(slots)
        return wanted

    def _share(
        self, swaps: SharedSwaps, simulated: SimulatedMemory, annotated: dict[Node, list[int]]
    ) -> None:
        """The improved way, device by device."""
        for device in simulated.cluster:
            if device.type != self.device_type:
                continue
            if annotated:
                swaps.swap_annotated(device, annotated)
            if self.heuristics and device.memory_bytes > 0:
                swaps.fit(device)


class PairRewrite:
    """Grappler's way: a copy out and a copy back for every input that was chosen."""

    def __init__(
        self,
        options: Swapping,
        rewriter: Rewriter,
        context: Context,
        simulated: SimulatedMemory,
        history: SwapHistory,
    ) -> None:
        self._options = options
        self._rewriter = rewriter
        self._context = context
        self._history = history
        self._swapper = Swapper(options.ops, options.device_type, rewriter, context.properties)
        self._triggers = TriggerSearch(earliest_ends_ns(rewriter.graph, simulated.execution_ns))
        self._sum_orders = SumOrders(rewriter.graph, context, is_kept=options.same_sums)
        self._left: dict[Tensor, int] = {}

    def apply(self, wanted: dict[Node, list[int]]) -> None:
        """Swap the chosen inputs, reader by reader in the order given."""
        for reader, slots in wanted.items():
            for slot in set(slots).intersection(range(len(reader.inputs))):
                tensor = reader.inputs[slot]
                self._left[tensor] = self._left.get(tensor, 0) + 1
        self._triggers.note_readers(self._left)
        for reader, slots in wanted.items():
            if reader.name not in self._history.nodes:
                self._swap_inputs(reader, slots)
        self._sum_orders.keep(self._rewriter)

    def in_trigger(self, reader: Node, slots: list[int]) -> Node | str:
        """The node after which the copies of inputs may start, or in words why there is none."""
        if reader.op in op_types.MERGES:
            return "what leads to a Merge may not run"
        tensors = [reader.inputs[slot] for slot in slots]
        transfer_ns = sum(map(self._bytes, tensors)) // BYTES_PER_NS
        return self._triggers.in_trigger(reader, tensors, transfer_ns)

    def _swap_inputs(self, reader: Node, wanted: list[int]) -> None:
        """Swap the chosen inputs of one reader."""
        slots = [slot for slot in wanted if 0 <= slot < len(reader.inputs)]
        for slot in wanted:
            if slot not in slots:
                decline_input(self._rewriter, reader, slot, "there is no such input")
        if not slots:
            return
        trigger = self.in_trigger(reader, slots)
        if isinstance(trigger, str):
            decline_reader(self._rewriter, reader, trigger)
            return
        for slot in dict.fromkeys(slots):
            if f"{reader.name}:{slot}" in self._history.inputs:
                continue
            reason = self._swap_input(reader, slot, trigger)
            if reason is not None:
                decline_input(self._rewriter, reader, slot, reason)

    def _swap_input(self, reader: Node, slot: int, in_trigger: Node) -> str | None:
        """Swap one input, or say why not (`BuildSwapPair`)."""
        tensor = reader.inputs[slot]
        out_trigger = self._triggers.out_trigger(tensor, reader)
        if out_trigger is None:
            return "nothing else reads the tensor, so nothing would wait for the copy out"
        if out_trigger.op in op_types.MERGES:
            return f"{out_trigger.name!r}, a Merge, would wait for the copy out"
        reason = self._why_not(reader, slot)
        if reason is not None:
            return reason
        group = f"{reader.name}_{slot}"
        dtype = op_types.port_types(reader).inputs[slot]
        # Of operations that are on two devices, none can be colocated.
        together = colocate(group) if self._options.ops == swap_ops.COPY else None
        swapped = Swapped(tensor, dtype, reader.device, group, together)
        self._left[tensor] -= 1
        text = (
            f"input {slot} of {reader.name!r} is on the host from before {out_trigger.name!r}"
            f" until after {in_trigger.name!r}"
        )
        with self._rewriter.edit(text, releases=() if self._left[tensor] else (tensor,)):
            copy = self._swapper.copy_out(swapped)
            back = self._swapper.copy_in(swapped, copy, in_trigger)
            if together is not None:
                if COLOCATION in reader.attributes:
                    together = colocate(group, reader.attributes)
                self._rewriter.set_attribute(reader, COLOCATION, together)
            self._rewriter.set_input(reader, slot, back.output())
            self._rewriter.add_control_input(out_trigger, copy)
        return None

    def _why_not(self, reader: Node, slot: int) -> str | None:
        """Why an input cannot be swapped, triggers aside, or `None`."""
        if not self._is_on_device(reader.device):
            return f"its reader is not placed on a {self._options.device_type}"
        if op_types.signature(reader.op) is None:
            return f"{reader.op!r} is no op of TensorFlow's"
        if shares_reference(reader.inputs[slot]):
            return f"it {SHARES_REFERENCE}"
        changes = self._sum_orders.why_not_moved(reader.inputs[slot].node)
        if changes is not None:
            return changes
        group = f"{reader.name}_{slot}"
        taken = [prefix + group for prefix in PREFIXES if prefix + group in self._rewriter.graph]
        if taken:
            return f"there is a node {taken[0]!r} already"
        return self._swapper.why_not(op_types.port_types(reader).inputs[slot])

    def _is_on_device(self, device: str) -> bool:
        kind = self._options.device_type
        return swap_ops.names_host(device) if kind == HOST_TYPE else swap_ops.names(device, kind)

    def _bytes(self, tensor: Tensor) -> int:
        outputs = self._context.properties.outputs(tensor.node.name)
        return outputs[tensor.port].least_bytes if tensor.port < len(outputs) else 0


def _annotated(graph: Graph) -> dict[Node, list[int]]:
    """The inputs that `_swap_to_host` says, an integer or a list of them."""
    annotated = {}
    for node in graph:
        if HINT_ATTRIBUTE in node.attributes:
            value = node.attributes[HINT_ATTRIBUTE]
            annotated[node] = list(value.list.i) if value.HasField("list") else [value.i]
    return annotated
