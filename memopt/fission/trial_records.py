"""Trials of kernels, and what came of them before on this machine, in the cache folder."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from memopt.files.kept_files import KeptFiles, machine_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = KeptFiles("parts", most_bytes=1 << 20)


class Outcome(StrEnum):
    """What came of a trial, in words for a report."""

    EQUAL = "has the same bits in parts"
    OTHER = "has other bits in parts"
    NO_TIME = "could not be tried in the time there was"
    ENDED = "ended the process in which it was tried"
    TOO_LARGE = "needs too much of this machine's memory to be tried"


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
        otherwise: Instead of parts: a serialized GraphDef that computes the same in another way.
    """

    graphs: tuple[tuple[int, bytes], ...]
    inputs: tuple[TrialInput, ...]
    outputs: tuple[str, ...]
    shares: tuple[int, ...]
    otherwise: bytes = b""


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
    is_equal = _KEPT.recall_equal(_digest(trial, settings))
    return None if is_equal is None else Outcome.EQUAL if is_equal else Outcome.OTHER


def remember(trial: Trial, settings: Sequence[Setting], outcome: Outcome) -> None:
    """Keep what came of a trial, where that is possible."""
    _KEPT.keep_equal(_digest(trial, settings), is_equal=outcome is Outcome.EQUAL)


def _digest(trial: Trial, settings: Sequence[Setting]) -> str:
    digest = hashlib.sha256(machine_facts())
    for _, graph in trial.graphs:
        digest.update(graph)
    digest.update(trial.otherwise)
    told = (trial.inputs, trial.outputs, trial.shares)
    digest.update(json.dumps([told, [units for units, _ in trial.graphs], settings]).encode())
    return digest.hexdigest()
