"""Device and VirtualCluster: the machine that a simulation runs on, described in numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import (
    Displayed,
    DisplayedFields,
    Overview,
    Table,
    bytes_text,
    count_text,
    short_name,
)
from memopt.errors import OptionsError
from memopt.options import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tensorflow.core.protobuf.device_properties_pb2 import DeviceProperties, NamedDevice

LOCAL_TASK = "/job:localhost/replica:0/task:0"

_EXAMPLE = "such as GPU:0=GPU:16GiB or GPU:0=GPU:16GiB,bandwidth=900GB/s,link=25GB/s"
_DESCRIPTION = re.compile(r"(?P<name>[^=,]+)=(?P<type>[A-Za-z]\w*)(?::(?P<memory>[^,]+))?")
_NAME = re.compile(
    r"(?:(?:/job:(?P<job>[A-Za-z]\w*))?(?:/replica:(?P<replica>\d+))?(?:/task:(?P<task>\d+))?/)?"
    r"(?:device:)?(?!(?:job|replica|task|device):)(?P<type>[A-Za-z]\w*):(?P<id>\d+)",
    re.ASCII | re.IGNORECASE,
)
_QUANTITY = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]+)", re.ASCII)
_DURATION_UNITS_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
_FREQUENCY_UNITS_MHZ = {"mhz": 1, "ghz": 1000}
_MOST = (1 << 63) - 1

_ARCHITECTURE = "architecture"
_MEMORY_LIMIT_FILES = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


@dataclass(frozen=True, repr=False)
class Device(DisplayedFields):
    """One device, as TensorFlow's `DeviceProperties` describes it, with its link to the host.

    Attributes:
        name: Full name, such as "/job:localhost/replica:0/task:0/device:GPU:0"; what a shorter one
            ("GPU:0", "/gpu:0", "/job:worker/gpu:0") leaves out is that of the local task.
        type: "GPU", "CPU", or another device type.
        memory_bytes: Its memory; 0 for no limit.
        frequency_mhz: Clock rate of its cores; 0 for not known, as in what follows.
        num_cores: Cores of a CPU, multiprocessors of a GPU.
        bandwidth_kb_per_s: Memory bandwidth in kilobytes (1000 bytes) per second.
        architecture: Compute capability of a GPU ("7"), the vendor's name of anything else.
        link_bytes_per_s: Bandwidth between the device and its host (PCIe, NVLink).
        link_latency_ns: Time before the first byte of a transfer arrives.

    Raises:
        OptionsError: The link's bandwidth is not positive, or its latency is negative.
    """

    name: str
    type: str
    memory_bytes: int = 0
    frequency_mhz: int = 0
    num_cores: int = 0
    bandwidth_kb_per_s: int = 0
    architecture: str = ""
    link_bytes_per_s: int = 16_000_000_000
    link_latency_ns: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", full_name(self.name))
        if self.link_bytes_per_s <= 0 or self.link_latency_ns < 0:
            raise OptionsError(f"device {self.name}: a transfer takes time, and not less than none")

    @classmethod
    def parse(cls, text: str) -> Device:
        """The device that an option describes, `NAME=TYPE[:MEMORY][,SETTING=VALUE]...`.

        "GPU:0=GPU:16GiB" is a GPU of typical speed. Settings that differ from the typical follow
        after commas: bandwidth=900GB/s (of its memory), link=25GB/s and latency=10us (between it
        and the host), frequency=1.4GHz, cores=108, architecture=8.0.

        Raises:
            OptionsError: It is no description of a device.
        """
        head, *settings = (part.strip() for part in text.split(","))
        match = _DESCRIPTION.fullmatch(head)
        if match is None or _NAME.fullmatch(match["name"].strip()) is None:
            raise OptionsError(f"{text!r} is no device; write NAME=TYPE:MEMORY, {_EXAMPLE}")
        kind = match["type"].upper()
        try:
            memory_bytes = parse_bytes(match["memory"]) if match["memory"] else 0
            fields = TYPICAL_RATES.get(kind, Rates())._asdict() | _parse_settings(settings)
        except OptionsError as error:
            raise OptionsError(f"device {text!r}: {error}") from None
        return cls(match["name"], kind, memory_bytes, **fields)

    @classmethod
    def from_proto(cls, named: NamedDevice) -> Device:
        """The device of a `NamedDevice`."""
        return cls.from_properties(named.name, named.properties)

    @classmethod
    def from_properties(cls, name: str, properties: DeviceProperties) -> Device:
        """The device of that name with a message's properties."""
        return cls(
            name=name,
            type=properties.type,
            memory_bytes=properties.memory_size,
            frequency_mhz=properties.frequency,
            num_cores=properties.num_cores,
            bandwidth_kb_per_s=properties.bandwidth,
            architecture=properties.environment.get(_ARCHITECTURE, ""),
        )

    def to_proto(self) -> NamedDevice:
        """The same as a `NamedDevice`, which has no place for the link."""
        from tensorflow.core.protobuf import device_properties_pb2

        named: NamedDevice = device_properties_pb2.NamedDevice(name=self.name)
        properties = named.properties
        properties.type = self.type
        properties.memory_size = self.memory_bytes
        properties.frequency = self.frequency_mhz
        properties.num_cores = self.num_cores
        properties.bandwidth = self.bandwidth_kb_per_s
        if self.architecture:
            properties.environment[_ARCHITECTURE] = self.architecture
        return named


class Rates(NamedTuple):
    """How fast a device is: the fields of `Device` of the same names."""

    frequency_mhz: int = 0
    num_cores: int = 0
    bandwidth_kb_per_s: int = 0
    architecture: str = ""


TYPICAL_RATES = {
    "GPU": Rates(1500, 60, 500_000_000, "7"),
    "CPU": Rates(2000, 4, 32_000_000),
}
"""What a device described by its type alone is taken to be."""


class VirtualCluster(Displayed):
    """The devices of a simulation, by name, in the order given.

    Args:
        devices: Devices, options as for `Device.parse`, or NamedDevice messages, mixed as one
            likes; or a mapping of names to DeviceProperties messages.

    Raises:
        OptionsError: There is no device, an option describes none, or two have the same name.
    """

    def __init__(
        self,
        devices: Iterable[Device | NamedDevice | str] | Mapping[str, DeviceProperties],
    ) -> None:
        self._devices: dict[str, Device] = {}
        for device in _as_devices(devices):
            if device.name in self._devices:
                raise OptionsError(f"two devices are called {device.name!r}")
            self._devices[device.name] = device
        if not self._devices:
            raise OptionsError("a cluster has at least one device")

    @classmethod
    def of_this_machine(cls) -> VirtualCluster:
        """The devices that TensorFlow finds here, as Grappler sees them, by name.

        A GPU's memory is what TensorFlow may use of it. A CPU's is the machine's, or this process
        group's limit if that is less; TensorFlow gives it a number that means nothing.

        Raises:
            OptionsError: TensorFlow cannot list them, because another of its clusters is in use.
        """
        import tensorflow as tf
        from tensorflow.python.grappler import cluster

        try:
            native = cluster.Cluster()
        except tf.errors.OpError as error:
            raise OptionsError(f"TensorFlow cannot list the devices: {error.message}") from error
        try:
            found = [Device.from_proto(named) for named in native.ListDevices()]
        finally:
            native.Shutdown()
        # XLA's devices stand for hardware that has a name of its own; Grappler gives them no type.
        real = sorted((device for device in found if device.type), key=lambda device: device.name)
        return cls(
            replace(device, memory_bytes=system_memory_bytes()) if device.type == "CPU" else device
            for device in real
        )

    @classmethod
    def of(
        cls, devices: VirtualCluster | Iterable[Device | NamedDevice | str] | None
    ) -> VirtualCluster:
        """A cluster as it is, one of these devices, or for `None` that of this machine.

        Raises:
            OptionsError: There is no device, an option describes none, or two have the same name.
        """
        if devices is None:
            return cls.of_this_machine()
        return devices if isinstance(devices, cls) else cls(devices)

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    def __len__(self) -> int:
        return len(self._devices)

    def _overview(self) -> Overview:
        table = Table.of(("device", "type", "memory", "cores", "MHz"), list(self), _device_row)
        return Overview("VirtualCluster", count_text(len(self), "device"), (table,))

    def __getitem__(self, name: str) -> Device:
        device = self.find(name)
        if device is None:
            raise KeyError(name)
        return device

    def find(self, name: str) -> Device | None:
        """The device of that name, full or short, or `None`."""
        return self._devices.get(name) or self._devices.get(full_name(name))


def _device_row(device: Device) -> tuple[str, ...]:
    memory = bytes_text(device.memory_bytes) if device.memory_bytes else "no limit"
    cores, frequency = str(device.num_cores), str(device.frequency_mhz)
    return short_name(device.name), device.type, memory, cores, frequency


def full_name(name: str) -> str:
    """A device's name with job, replica and task.

    A name that has them, or is none of a device, stays as it is.
    """
    name = name.strip()
    match = _NAME.fullmatch(name)
    if match is None or None not in (match["job"], match["replica"], match["task"]):
        return name
    job, replica, task = match["job"] or "localhost", match["replica"] or 0, match["task"] or 0
    return f"/job:{job}/replica:{replica}/task:{task}/device:{match['type'].upper()}:{match['id']}"


def _as_devices(
    devices: Iterable[Device | NamedDevice | str] | Mapping[str, DeviceProperties],
) -> Iterator[Device]:
    if isinstance(devices, str):
        yield Device.parse(devices)
    elif isinstance(devices, Mapping):
        for name, properties in devices.items():
            yield Device.from_properties(name, properties)
    else:
        for given in devices:
            if isinstance(given, Device):
                yield given
            else:
                yield Device.parse(given) if isinstance(given, str) else Device.from_proto(given)


def _parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """The fields of `Device` that settings such as "bandwidth=900GB/s" set."""
    fields: dict[str, Any] = {}
    for setting in settings:
        key, _, value = (part.strip() for part in setting.partition("="))
        if key not in _SETTINGS:
            raise OptionsError(f"there is no setting {key!r}; the settings: {', '.join(_SETTINGS)}")
        field, parse = _SETTINGS[key]
        if field in fields:
            raise OptionsError(f"{key} is set twice")
        try:
            fields[field] = parse(value)
        except OptionsError as error:
            raise OptionsError(f"{key}: {error}") from None
    return fields


def _parse_bytes_per_s(text: str) -> int:
    if not text.endswith("/s"):
        raise OptionsError(f"{text!r} is no number of bytes per second, such as 900GB/s")
    return parse_bytes(text.removesuffix("/s"))


def _parse_kb_per_s(text: str) -> int:
    return -(-_parse_bytes_per_s(text) // 1000)


def _parse_duration_ns(text: str) -> int:
    return _parse_quantity(text, _DURATION_UNITS_NS, "duration, such as 10us")


def _parse_mhz(text: str) -> int:
    return _parse_quantity(text, _FREQUENCY_UNITS_MHZ, "frequency, such as 1500MHz")


def _parse_quantity(text: str, units: Mapping[str, int], what: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match["unit"].lower() not in units:
        raise OptionsError(f"{text!r} is no {what}")
    return _at_most(int(Decimal(match["number"]) * units[match["unit"].lower()]))


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise OptionsError(f"{text!r} is no whole number")
    return _at_most(int(text))


def _at_most(number: int) -> int:
    if number > _MOST:
        raise OptionsError(f"{number} is too large")
    return number


def _parse_architecture(text: str) -> str:
    if not text:
        raise OptionsError("it is empty; give a compute capability, such as 8.0")
    return text


_SETTINGS: Mapping[str, tuple[str, Callable[[str], int | str]]] = {
    "bandwidth": ("bandwidth_kb_per_s", _parse_kb_per_s),
    "link": ("link_bytes_per_s", _parse_bytes_per_s),
    "latency": ("link_latency_ns", _parse_duration_ns),
    "frequency": ("frequency_mhz", _parse_mhz),
    "cores": ("num_cores", _parse_count),
    "architecture": ("architecture", _parse_architecture),
}
"""The settings of a device option: which field each sets, and how its value is read."""


def system_memory_bytes() -> int:
    """The machine's memory, or the limit of this process group where that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _MEMORY_LIMIT_FILES:
        try:
            limit = Path(file).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if limit.isdecimal():  # Without a limit the file says "max".
            sizes.append(int(limit))
    return min(sizes)


ANY_CPU = Device.parse("CPU:0=CPU")
"""What times are estimated for that decide plans and orders: these are the same everywhere then."""


@cache
def has_accelerator() -> bool:
    """Whether TensorFlow has other devices here than the host, on which it puts what it can."""
    import tensorflow as tf

    types = {device.device_type for device in tf.config.list_physical_devices()}
    return any(not kind.endswith("CPU") for kind in types)
