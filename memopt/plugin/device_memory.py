"""How much memory a graph may use where it is about to run: what `budget="device"` means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memopt.cluster import VirtualCluster
from memopt.errors import OptionsError
from memopt.options import Budget
from memopt.runtime.settings import ALLOCATOR_VARIABLE, LIMIT_VARIABLE
from memopt.sequencing.devices import name_devices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensorflow.core.framework.graph_pb2 import GraphDef

_SHARE = 0.8
"""Of what an allocator may hand out, what a step may use: it hands memory out in chunks that are
larger than what is asked for, and what lies between them is lost."""
_MEBIBYTE = 1 << 20


def device_budget(graph_def: GraphDef) -> Budget:
    """What a step may use on each of the devices that its graph is placed on.

    If GPUs are among them, what TensorFlow may use of each of these; otherwise the memory of the
    machine, or less where this process or TensorFlow's allocator is limited to less, in equal parts
    for logical devices that share it.

    Raises:
        OptionsError: The memory of a device is not known.
    """
    names = sorted({node.device for node in graph_def.node})
    short = name_devices(names)
    cluster = VirtualCluster.of(None)
    used = [(short[name], device) for name in names if (device := cluster.find(name)) is not None]
    accelerators = [(name, device) for name, device in used if device.type != "CPU"]
    for name, device in accelerators:
        if not device.memory_bytes:
            raise OptionsError(f"the memory of {name!r} is not known: give the budget in bytes")
    if accelerators:
        sizes = {name: Budget(int(device.memory_bytes * _SHARE)) for name, device in accelerators}
        return Budget(devices=tuple(sizes.items()))
    hosts = (device.memory_bytes for device in cluster if device.type == "CPU")
    return Budget(int(_least_of_host(hosts) * _SHARE) // max(1, len(used)))


def _least_of_host(sizes_bytes: Iterable[int]) -> int:
    known = [size_bytes for size_bytes in sizes_bytes if size_bytes]
    limit = os.environ.get(LIMIT_VARIABLE, "")
    if os.environ.get(ALLOCATOR_VARIABLE) == "1" and limit.isdecimal():
        known.append(int(limit) * _MEBIBYTE)
    if not known:
        raise OptionsError("the machine's memory is not known: give the budget in bytes")
    return min(known)
