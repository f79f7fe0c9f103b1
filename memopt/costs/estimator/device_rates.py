"""How fast a device computes and moves data, and what time some work takes on it."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from memopt.costs.cost_model import Cost

if TYPE_CHECKING:
    from memopt.cluster import Device
    from memopt.costs.estimator.op_info import Work

OPERATIONS_PER_CYCLE = 2
"""Of a GPU's core: a multiplication and an addition."""

CORES_PER_MULTIPROCESSOR = (("3", 32), ("4", 192), ("6", 128))
"""Up to which architecture, compared as text, a multiprocessor has how many cores."""
CORES_OF_LATER_ARCHITECTURES = 64

CPU_GB_PER_S = 32.0
GPU_GB_PER_S = 100.0
"""Memory bandwidth of a device that does not tell its own."""


class DeviceRates(NamedTuple):
    """What a device does in a nanosecond (`DeviceInfo`).

    Attributes:
        gigaops: Arithmetic operations.
        gb_per_s: Bytes read and written.
    """

    gigaops: float
    gb_per_s: float

    @classmethod
    def of(cls, device: Device) -> DeviceRates:
        """The rates of a device (`OpLevelCostEstimator::GetDeviceInfo`).

        A device without cores or clock rate does one operation in a nanosecond. So Grappler says
        of a CPU; of such a GPU its times are no numbers.
        """
        if device.type == "CPU":
            gigaops = device.num_cores * device.frequency_mhz * 1e-3
            return cls(_positive(gigaops), _gb_per_s(device, CPU_GB_PER_S))
        if device.type != "GPU":
            return OTHER_DEVICE
        if not device.architecture:
            return PLUGGABLE_GPU
        gigaops = device.num_cores * device.frequency_mhz * 1e-3
        gigaops = gigaops * _cores(device.architecture) * OPERATIONS_PER_CYCLE
        return cls(_positive(gigaops), _gb_per_s(device, GPU_GB_PER_S))

    def cost(self, work: Work) -> Cost:
        """The time of some work: arithmetic, then memory, each rounded up to whole nanoseconds.

        `PredictOpCountBasedCost`; the two do not overlap, and its caches take no time.
        """
        compute_ns = ceil(work.operations / self.gigaops)
        memory_ns = ceil((float(work.read_bytes) + work.written_bytes) / self.gb_per_s)
        return Cost(compute_ns + memory_ns, compute_ns, memory_ns, work.inaccurate)


OTHER_DEVICE = DeviceRates(gigaops=1.0, gb_per_s=12.0)
"""Anything but a CPU or GPU, as if it were the link between the two."""

PLUGGABLE_GPU = DeviceRates(gigaops=100.0, gb_per_s=12.0)
"""A GPU that does not tell its architecture."""


def _positive(gigaops: float) -> float:
    return gigaops if gigaops > 0 else 1.0


def _gb_per_s(device: Device, default: float) -> float:
    return device.bandwidth_kb_per_s / 1e6 if device.bandwidth_kb_per_s > 0 else default


def _cores(architecture: str) -> int:
    for limit, cores in CORES_PER_MULTIPROCESSOR:
        if architecture < limit:
            return cores
    return CORES_OF_LATER_ARCHITECTURES
