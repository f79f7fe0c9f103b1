"""Offloading: keeping a result on the host until it is read again.

XLA's `RematStrategy::kHostOffload`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memopt.cluster import Device
from memopt.errors import OptionsError
from memopt.rematerialization.storage.forms import Form
from memopt.swapping.ops import SERIALIZE, SWAP_OPS, names, names_host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.graph.graph import Node
    from memopt.shapes.tensor_properties import TensorProperties

STRING_BYTES = 24
"""What a scalar string takes in the allocator's memory; its characters lie elsewhere."""

_GPU = "GPU"


def _any_device() -> Device:
    return Device("CPU:0", "CPU")


@dataclass(frozen=True)
class Offloader:
    """How results are taken to the host and back, by the operations of swaps (see `Swapper`).

    On a CPU the bytes stay in the process's memory, and only "serialize" takes anything out of the
    part that TensorFlow's allocator counts; "copy" and "identity" are for nodes that name a GPU.

    Attributes:
        ops: "serialize", "copy" or "identity".
        device: Tells how fast the link to the host is.

    Raises:
        OptionsError: Those are no operations of swaps.
    """

    ops: str = SERIALIZE
    device: Device = field(default_factory=_any_device)

    def __post_init__(self) -> None:
        if self.ops not in SWAP_OPS:
            raise OptionsError(f"offload is one of {', '.join(SWAP_OPS)}, not {self.ops!r}")

    def forms(self, node: Node, tensor: TensorProperties) -> Iterator[Form]:
        """The form of a node's result on the host, if it can be taken there."""
        if tensor.size_bytes is None:
            return
        if self.ops != SERIALIZE and not names(node.device, _GPU):
            return
        one_way = self.transfer_ns(tensor.size_bytes)
        left_bytes = STRING_BYTES if names_host(node.device) else 0
        yield Form(self.ops, left_bytes, 2 * one_way, one_way, stays=True)

    def transfer_ns(self, size_bytes: int) -> int:
        """How long so many bytes take over the link, one way; at least 1."""
        on_the_way = size_bytes * 10**9 // self.device.link_bytes_per_s
        return max(self.device.link_latency_ns + on_the_way, 1)
