"""How much memory a graph may use where it is about to run: what `budget="device"` means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memopt.cluster import VirtualCluster
from memopt.errors import OptionsError
from memopt.runtime.settings import ALLOCATOR_VARIABLE, LIMIT_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework.graph_pb2 import GraphDef

_SHARE = 0.8
"""Of what an allocator may hand out, what a step may use: it hands memory out in chunks that are
larger than what is asked for, and what lies between them is lost."""
_MEBIBYTE = 1 << 20


def device_budget_bytes(graph_def: GraphDef) -> int:
    """What a step may use on the devices that its graph is placed on.

    If GPUs are among them, what TensorFlow may use of these, added up; otherwise the memory of the
    machine, or less where this process or TensorFlow's allocator is limited to less.

    Raises:
        OptionsError: The memory of a device is not known.
    """
    names = {node.device for node in graph_def.node}
    cluster = VirtualCluster.of(None)
    used = [device for device in map(cluster.find, sorted(names)) if device is not None]
    accelerators = [device for device in used if device.type != "CPU"]
    if accelerators:
        sizes = {device.name: device.memory_bytes for device in accelerators}
        unknown = [name for name, size_bytes in sizes.items() if not size_bytes]
        if unknown:
            raise OptionsError(
                f"the memory of {unknown[0]!r} is not known: give the budget in bytes"
            )
        return int(sum(sizes.values()) * _SHARE)
    hosts = (device.memory_bytes for device in cluster if device.type == "CPU")
    return int(_least_of_host(hosts) * _SHARE)


def _least_of_host(sizes_bytes: Iterable[int]) -> int:
    known = [size_bytes for size_bytes in sizes_bytes if size_bytes]
    limit = os.environ.get(LIMIT_VARIABLE, "")
    if os.environ.get(ALLOCATOR_VARIABLE) == "1" and limit.isdecimal():
        known.append(int(limit) * _MEBIBYTE)
    if not known:
        raise OptionsError("the machine's memory is not known: give the budget in bytes")
    return min(known)
