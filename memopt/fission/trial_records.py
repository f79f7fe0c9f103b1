"""Trials of kernels, and what came of them before on this machine, in the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from enum import StrEnum
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memopt.cache_folder import cache_folder
from memopt.errors import FileError
from memopt.io import write_local

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_FILES = 20_000
_CPUS = Path("/proc/cpuinfo")


class Outcome(StrEnum):
    """What came of a trial, in words for a report."""

    EQUAL = "has the same bits in parts"
    OTHER = "has other bits in parts"
    NO_TIME = "could not be tried in the time there was"
    ENDED = "ended the process in which it was tried"
    TOO_LARGE = "needs too much of this machine's memory to be tried"


_ANSWERS = {b"equal": Outcome.EQUAL, b"other": Outcome.OTHER}
"""What is kept of those that were found out, in files."""


class TrialInput(NamedTuple):
    """What a kernel is given.

    Attributes:
        name: Of its placeholder.
        dtype: TensorFlow's enumeration value of the element type.
        shape: All of it.
        is_split: Whether a part gets its rows only.
    """

    name: str
    dtype: int
    shape: tuple[int, ...]
    is_split: bool


class Trial(NamedTuple):
    """A kernel, or several that may be fused, as a whole and in parts.

    Attributes:
        graphs: By number of units: serialized GraphDefs of the operations for so many units.
        inputs: Their placeholders.
        outputs: The tensors to compare.
        shares: How many units each part has; they add up to the whole.
    """

    graphs: tuple[tuple[int, bytes], ...]
    inputs: tuple[TrialInput, ...]
    outputs: tuple[str, ...]
    shares: tuple[int, ...]


class Setting(NamedTuple):
    """What kernels run on.

    Attributes:
        onednn: Whether oneDNN's kernels run in place of TensorFlow's.
        threads: Threads that share the work of one kernel.
    """

    onednn: bool
    threads: int


def recall(trial: Trial, settings: Sequence[Setting]) -> Outcome | None:
    """What came of a trial before; `None` if it was not made here yet."""
    try:
        return _ANSWERS.get(_file(trial, settings).read_bytes())
    except OSError:
        return None


def remember(trial: Trial, settings: Sequence[Setting], outcome: Outcome) -> None:
    """Keep what came of a trial, where that is possible."""
    data = next(data for data, answer in _ANSWERS.items() if answer is outcome)
    path = _file(trial, settings)
    with contextlib.suppress(OSError, FileError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in path.parent.iterdir()) < _MOST_FILES:
            write_local(str(path), data)


def _file(trial: Trial, settings: Sequence[Setting]) -> Path:
    digest = hashlib.sha256(_machine())
    for _, graph in trial.graphs:
        digest.update(graph)
    digest.update(json.dumps([trial[1:], [units for units, _ in trial.graphs], settings]).encode())
    return cache_folder() / "parts" / digest.hexdigest()


@cache
def _machine() -> bytes:
    """What kernels depend on besides their settings: TensorFlow's release and the processor."""
    facts = [metadata.version("memopt"), platform.machine()]
    for name in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            facts.append(f"{name} {metadata.version(name)}")
    with contextlib.suppress(OSError):
        lines = _CPUS.read_text(encoding="utf-8", errors="replace").splitlines()
        facts += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    return json.dumps(facts).encode()
