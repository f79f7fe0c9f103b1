"""What a kernel is given and what it does with memory, whoever knows it: rules, measurements."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from memopt.cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.graph.graph import Node
    from memopt.shapes.tensor_properties import TensorProperties


INTRA_OP_VARIABLE, INTER_OP_VARIABLE = "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"
"""What TensorFlow goes by where a program sets no threads (`process_util.cc`)."""


def threads_from(variable: str) -> int:
    """The threads that an environment variable of TensorFlow's asks for; 0 if it asks for none."""
    asked = os.environ.get(variable, "").strip()
    return int(asked) if asked.isdecimal() else 0


@dataclass(frozen=True)
class Runtime:
    """What the memory of a step depends on besides its tensors.

    Attributes:
        intra_op_threads: Threads that share the work of one kernel; TensorFlow takes as many as
            there are cores if it is not told.
        inter_op_threads: Operations that may run at once where an order leaves them free to.
        onednn: Whether oneDNN's kernels run in place of TensorFlow's; of their scratch memory rules
            know only what grows with the step.
        folds_constants: Whether what depends on constants alone is computed before the first step,
            as in functions; not so in a session of the lowest optimization level.
        measurements: Kernels that were measured, which count before rules; `None` for rules alone.
    """

    intra_op_threads: int = field(
        default_factory=lambda: threads_from(INTRA_OP_VARIABLE) or usable_cores()
    )
    inter_op_threads: int = 1
    onednn: bool = False
    folds_constants: bool = True
    measurements: Measurements | None = None


class KernelCall(NamedTuple):
    """One node as its kernel sees it.

    Attributes:
        node: The node.
        inputs: What is known of each input, by slot.
        outputs: What is known of each output, by port.
        constants: The numbers of an input that is a small constant; `None` for others.
        runtime: What it runs on.
    """

    node: Node
    inputs: Sequence[TensorProperties]
    outputs: Sequence[TensorProperties]
    constants: Callable[[int], tuple[int, ...] | None]
    runtime: Runtime

    @property
    def has_channels_first(self) -> bool:
        """Whether pictures have their channels before their pixels."""
        form = self.node.attributes.get("data_format")
        return form is not None and form.s.startswith(b"NC")


class Measurements(Protocol):
    """What was measured of kernels."""

    def find(self, call: KernelCall) -> KernelMemory | None:
        """What a kernel does with memory; `None` if that was not measured."""


class Placement(NamedTuple):
    """Where an output lies.

    Attributes:
        alias: The input slot whose buffer it shares, or -1 for a buffer of its own.
        reuses: The slots whose buffer its own one may be, the first choice first.
    """

    alias: int = -1
    reuses: Sequence[int] = ()


class KernelMemory(NamedTuple):
    """What a kernel does with memory.

    Attributes:
        placements: Where the outputs lie, by port.
        scratch_bytes: What it has only while it runs, at most, and asks for after its outputs.
        scratch_buffers: What it has only while it runs and asks for before: bytes, and the slots
            whose buffers it may take over for it, the first choice first.
        noted_bytes: What it notes for another kernel, which reads it though no edge says so.
        notes_slot: The slot of the input whose kernel has noted something for it, or -1.
    """

    placements: Sequence[Placement]
    scratch_bytes: int = 0
    scratch_buffers: Sequence[tuple[int, Sequence[int]]] = ()
    noted_bytes: int = 0
    notes_slot: int = -1
