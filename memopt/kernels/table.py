"""KernelTable: what was measured of kernels, and the file that keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.buffers.kernel_call import KernelMemory, Placement
from memopt.errors import FileError
from memopt.files.cache_folder import cache_folder
from memopt.files.file_systems import file_system_of
from memopt.files.whole_files import read_file, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from memopt.buffers.kernel_call import Runtime

SIZE_LIMIT_BYTES = 64 << 20
"""The largest file that is read."""

_MOST_KERNELS = 50_000
"""Of one environment in a file; those that were measured first go first."""

_LONGEST_TIME_NS = 1 << 53
_MOST_BYTES = 1 << 50
_MOST_PORTS = 1 << 16


class _DamageError(ValueError):
    """A file is no table."""


class Environment(NamedTuple):
    """What a measurement holds for, besides the kernel.

    Attributes:
        tensorflow: The release.
        onednn: Whether oneDNN's kernels run.
        threads: Threads that share the work of one kernel.
        gpu: The first GPU's model; "" where there is none.
    """

    tensorflow: str
    onednn: bool
    threads: int
    gpu: str = ""

    @classmethod
    def of(cls, runtime: Runtime) -> Environment:
        """This process's release and GPU, and what a runtime says."""
        import tensorflow as tf

        return cls(tf.__version__, runtime.onednn, runtime.intra_op_threads, _gpu_model())

    def __str__(self) -> str:
        onednn = "oneDNN" if self.onednn else "no oneDNN"
        gpu = f", {self.gpu}" if self.gpu else ""
        return f"TensorFlow {self.tensorflow}, {onednn}, {self.threads} threads{gpu}"

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        plain = self._asdict()
        return plain if self.gpu else {key: plain[key] for key in plain if key != "gpu"}


@dataclass(frozen=True)
class MeasuredKernel:
    """What was measured of a kernel.

    Attributes:
        kernel: The kernel in words.
        memory: What it does with memory; `None` if it could not be run.
        time_ns: How long it runs; 0 if that is not known.
        failure: Why it could not be run.
    """

    kernel: str
    memory: KernelMemory | None = None
    time_ns: int = 0
    failure: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        if self.memory is None:
            return {"kernel": self.kernel, "failure": self.failure}
        return {
            "kernel": self.kernel,
            "outputs": [[each.alias, list(each.reuses)] for each in self.memory.placements],
            "scratch_bytes": self.memory.scratch_bytes,
            "scratch_buffers": [[size, list(slots)] for size, slots in self.memory.scratch_buffers],
            "time_ns": self.time_ns,
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> MeasuredKernel:
        """What `to_json` described.

        Raises:
            ValueError: It did not.
        """
        kernel = _text(plain, "kernel")
        if "failure" in plain:
            return cls(kernel, failure=_text(plain, "failure"))
        outputs = [_pair(each) for each in _listed(plain, "outputs")]
        scratch = [_pair(each) for each in _listed(plain, "scratch_buffers")]
        memory = KernelMemory(
            tuple(Placement(_number(a, -1, _MOST_PORTS), _slots(slots)) for a, slots in outputs),
            _number(plain.get("scratch_bytes"), 0, _MOST_BYTES),
            tuple((_number(size, 0, _MOST_BYTES), _slots(slots)) for size, slots in scratch),
        )
        return cls(kernel, memory, _number(plain.get("time_ns"), 0, _LONGEST_TIME_NS))


@dataclass(frozen=True)
class KernelTable:
    """What was measured of kernels, by environment and by the key of their signatures.

    A file of it can be shared by machines: what is of another environment is left alone.

    Attributes:
        kernels: What was measured.
    """

    kernels: Mapping[Environment, Mapping[str, MeasuredKernel]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str) -> KernelTable:
        """The table in a file; anywhere that `tf.io.gfile` or fsspec reaches.

        Raises:
            FileError: There is no such file, it is larger than `SIZE_LIMIT_BYTES`, or it holds no
                table.
        """
        try:
            plain = json.loads(read_file(path, SIZE_LIMIT_BYTES))
            return cls(dict(_environment(each) for each in _listed(plain, "environments")))
        except (ValueError, RecursionError) as error:
            raise FileError(f"{path}: is no table of measured kernels: {error}") from error

    def in_environment(self, environment: Environment) -> Mapping[str, MeasuredKernel]:
        """What was measured in an environment."""
        return self.kernels.get(environment, {})

    def with_kernels(
        self, environment: Environment, measured: Mapping[str, MeasuredKernel]
    ) -> KernelTable:
        """The same with more kernels, of which the newest are kept if they are too many."""
        merged = {**self.in_environment(environment), **measured}
        kept = list(merged.items())[-_MOST_KERNELS:]
        return KernelTable({**self.kernels, environment: dict(kept)})

    def save(self, path: str) -> None:
        """Write the table as `load` reads it; whole or not at all.

        Raises:
            FileError: The place cannot be written to.
        """
        environments = [
            {
                **environment.to_json(),
                "kernels": {key: kernel.to_json() for key, kernel in kernels.items()},
            }
            for environment, kernels in sorted(self.kernels.items())
        ]
        text = json.dumps({"environments": environments}, indent=1) + "\n"
        write_bytes(path, text.encode())


def default_table() -> Path:
    """The file in the cache folder that all programs of a user share."""
    return cache_folder() / "kernels.json"


def load_or_empty(path: str) -> KernelTable:
    """The table in a file; an empty one where there is no file yet.

    Raises:
        FileError: The file holds no table.
    """
    with file_system_of(path) as files:
        is_there = files.exists(path)
    return KernelTable.load(path) if is_there else KernelTable()


def _gpu_model() -> str:
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        return str(tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name))
    return ""


def _environment(plain: Any) -> tuple[Environment, dict[str, MeasuredKernel]]:
    kernels = plain.get("kernels") if isinstance(plain, dict) else None
    if not isinstance(kernels, dict) or not isinstance(plain.get("onednn"), bool):
        raise _DamageError("an environment has no kernels")
    environment = Environment(
        _text(plain, "tensorflow"),
        plain["onednn"],
        _number(plain.get("threads"), 0, _MOST_PORTS),
        _text(plain, "gpu") if "gpu" in plain else "",
    )
    return environment, {key: MeasuredKernel.from_json(each) for key, each in kernels.items()}


def _text(plain: Any, name: str) -> str:
    value = plain.get(name) if isinstance(plain, dict) else None
    if not isinstance(value, str):
        raise _DamageError(f"{name!r} is no text")
    return value


def _listed(plain: Any, name: str) -> list[Any]:
    value = plain.get(name) if isinstance(plain, dict) else None
    if not isinstance(value, list):
        raise _DamageError(f"{name!r} is no list")
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != len(("size", "slots")):
        raise _DamageError(f"{value!r} is no pair")
    return value[0], value[1]


def _slots(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _DamageError(f"{value!r} is no list of inputs")
    return tuple(_number(slot, 0, _MOST_PORTS) for slot in value)


def _number(value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise _DamageError(f"{value!r} is no number between {least} and {most}")
    return value
