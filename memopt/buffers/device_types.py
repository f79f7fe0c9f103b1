"""On which type of device an operation runs, where the graph says so and where it does not."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from memopt.cluster import has_accelerator
from memopt.graph.kernels import has_kernel

if TYPE_CHECKING:
    from memopt.graph.graph import Node

HOST, GPU = "CPU", "GPU"


def device_type_of(node: Node) -> str:
    """The type of the device that an operation runs on, such as "CPU".

    What names no device TensorFlow puts on a GPU where there is one and it has a kernel for it.
    """
    named = _named(node.device)
    if named:
        return named
    if not has_accelerator():
        return HOST
    types = {name: value.type for name, value in node.attributes.items() if value.type}
    return GPU if has_kernel(node.op, types, GPU) else HOST


def is_on_host(device: str) -> bool:
    """Whether a device is a host's, by its name; one without a name is."""
    lowered = device.lower()
    return "gpu" not in lowered and "tpu" not in lowered


@lru_cache(maxsize=256)
def _named(device: str) -> str:
    """The type in a device's name; "" where there is none."""
    for part in reversed(device.split("/")):
        words = part.split(":")
        if words[0] == "device" and len(words) > 1:
            return words[1].upper()
        if words[0] in ("cpu", "gpu"):
            return words[0].upper()
    return ""
