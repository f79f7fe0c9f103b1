"""VirtualPlacer: which device of a cluster a node runs on, by the device string that it carries.

TensorFlow's `VirtualPlacer` (tensorflow/core/grappler/costs/virtual_placer.cc), with names read as
by `DeviceNameUtils` (tensorflow/core/util/device_name_utils.cc).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from memopt.cluster import VirtualCluster

    _Parts = dict[str, Any]

_LOCAL_JOB = "localhost"
_MOST_DIGITS = 20
_SHORT_NAME = re.compile(r"(?P<type>[a-z][a-z0-9_]*):(?P<id>[0-9]+)")
_COMPONENT = re.compile(
    r"/job:(?:\*|(?P<job>[a-z][a-z0-9_]*)(?=/|\Z))"
    r"|/replica:(?:\*|(?P<replica>[0-9]+))"
    r"|/task:(?:\*|(?P<task>[0-9]+))"
    r"|/device:(?:\*|(?P<type>[a-z][a-z0-9_]*)(?=[/:]|\Z))(?::(?:\*|(?P<id>[0-9]+)))?"
    r"|/(?P<legacy_type>cpu|gpu):(?:\*|(?P<legacy_id>[0-9]+))"
)


class VirtualPlacer:
    """Finds the device that a device string means.

    1. A name is read in any case; of job, replica, task, type and index any may be left out or "*".
       "gpu:1", "gpu" and the old "/gpu:1" are names too. What is left out is 0; a job that is left
       out of a name with slashes is that of the cluster if it has only one, else "localhost".
    2. A node without a name, or with one that cannot be read or means no device here, runs on the
       default device: the only one, else the GPU of the lowest index, else the CPU of the lowest
       index, else any.
    3. Where several jobs have the GPU (or CPU) of the lowest index, TensorFlow takes the one that
       comes last in a hash table; for "any" the one that comes first. So does this, see
       `_HashTable`.

    Attributes:
        default: Full name of the default device.
    """

    def __init__(self, cluster: VirtualCluster) -> None:
        devices = list(_HashTable.of(device.name for device in cluster))
        self._job = _LOCAL_JOB
        self._devices: dict[_Place, str] = {}
        for name in devices:
            place = self._read(name)
            if place is not None:
                self._devices[place] = name
        jobs = {place.job for place in self._devices}
        if len(jobs) == 1:
            self._job = jobs.pop()
        self.default = devices[0] if len(devices) == 1 else self._choose_default(devices[0])
        self._placed = {"": self.default}

    def place(self, device: str) -> str:
        """The name, as the cluster spells it, of the device that a node's device string means."""
        name = self._placed.get(device)
        if name is None:
            place = self._read(device)
            name = self.default if place is None else self._devices.get(place, self.default)
            self._placed[device] = name
        return name

    def _choose_default(self, other: str) -> str:
        spelled = {str(place): place for place in self._devices}
        lowest: dict[str, _Place] = {}
        for key in _HashTable.of(spelled, reserved=True):
            place = spelled[key]
            if place.type not in lowest or place.id <= lowest[place.type].id:
                lowest[place.type] = place
        chosen = lowest.get("gpu") or lowest.get("cpu")
        return other if chosen is None else self._devices[chosen]

    def _read(self, name: str) -> _Place | None:
        """What a device string means; `None` if it cannot be read (`to_lfqn_or_empty`)."""
        if not name.isascii():
            return None
        text = name.lower()
        short = _SHORT_NAME.fullmatch(text)
        if short is not None:
            found: _Parts | None = _with_numbers({"job": _LOCAL_JOB, **short.groupdict()})
        elif text in ("gpu", "cpu"):
            found = {"job": _LOCAL_JOB, "type": text}
        else:
            found = {} if text == "/" else _components(text)
        return None if found is None else _Place(**{"job": self._job, **found})


class _Place(NamedTuple):
    """A device's name in its parts, in lower case."""

    job: str
    replica: int = 0
    task: int = 0
    type: str = ""
    id: int = 0

    def __str__(self) -> str:
        return (
            f"/job:{self.job}/replica:{self.replica}/task:{self.task}/device:{self.type}:{self.id}"
        )


def _components(text: str) -> _Parts | None:
    """The parts of a name with slashes, the last of each kind; `None` if there is anything else."""
    found: _Parts = {}
    end = 0
    while end < len(text):
        match = _COMPONENT.match(text, end)
        if match is None:
            return None
        given = {key: value for key, value in match.groupdict().items() if value is not None}
        parts = _with_numbers({key.removeprefix("legacy_"): given[key] for key in given})
        if parts is None:
            return None
        found |= parts
        end = match.end()
    return found


def _with_numbers(parts: dict[str, str]) -> _Parts | None:
    """The parts with numbers as C++ reads them into an `int`; `None` if one has over 64 bits."""
    found: _Parts = {}
    for key, value in parts.items():
        if key in ("job", "type"):
            found[key] = value
            continue
        digits = value.lstrip("0") or "0"
        if len(digits) > _MOST_DIGITS or int(digits) >= 1 << 64:
            return None
        found[key] = (int(digits) + (1 << 31)) % (1 << 32) - (1 << 31)
    return found


class _HashTable:
    """The order in which TensorFlow for Linux iterates over an `unordered_map` with text keys.

    It decides between devices that are equally good. The table is that of GNU's C++ library: a list
    in which the keys of a bucket stand together, the last that was inserted first, and so do the
    buckets; the list is built anew, from its front, when there are more keys than buckets.
    """

    def __init__(self, buckets: int) -> None:
        self._bucket_count = buckets
        self._buckets: dict[int, list[str]] = {}
        self._size = 0

    @classmethod
    def of(cls, keys: Iterable[str], *, reserved: bool = False) -> _HashTable:
        """The table of those keys, inserted in that order, into space reserved for them or not."""
        distinct = dict.fromkeys(keys)
        table = cls(_bucket_count(len(distinct)) if reserved else 1)
        for key in distinct:
            table._insert(key)
        return table

    def __iter__(self) -> Iterator[str]:
        for bucket in reversed(self._buckets.values()):
            yield from reversed(bucket)

    def _insert(self, key: str) -> None:
        if self._size == self._bucket_count:
            self._grow()
        self._buckets.setdefault(_murmur_hash(key) % self._bucket_count, []).append(key)
        self._size += 1

    def _grow(self) -> None:
        keys = list(self)
        least = 12 if self._bucket_count == 1 else 2 * self._bucket_count
        self._bucket_count = _bucket_count(least)
        self._buckets = {}
        self._size = 0
        for key in keys:
            self._insert(key)


_BUCKET_COUNTS = (
    *(2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89),
    *(97, 103, 109, 113, 127, 137, 139, 149, 157, 167, 179, 193, 199, 211, 227, 241, 257, 277),
    *(293, 313, 337, 359, 383, 409, 439, 467, 503, 541, 577, 619, 661, 709, 761, 823, 887, 953),
    *(1031, 1109, 1193, 1289, 1381, 1493, 1613, 1741, 1879, 2029, 2179, 2357),
)
"""The library's own choice of primes; larger clusters get the order of another table."""


def _bucket_count(least: int) -> int:
    return next((count for count in _BUCKET_COUNTS if count >= least), least)


_WORD = (1 << 64) - 1
_MULTIPLIER = 0xC6A4A7935BD1E995
_SEED = 0xC70F6907


def _murmur_hash(key: str) -> int:
    """The library's hash of a text: MurmurHash64A."""
    data = key.encode()
    whole = len(data) & ~7
    found = _SEED ^ (len(data) * _MULTIPLIER & _WORD)
    for start in range(0, whole, 8):
        word = int.from_bytes(data[start : start + 8], "little")
        found = (found ^ _mix(word * _MULTIPLIER & _WORD) * _MULTIPLIER) * _MULTIPLIER & _WORD
    if whole < len(data):
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    return _mix(_mix(found) * _MULTIPLIER & _WORD)


def _mix(word: int) -> int:
    return word ^ (word >> 47)
