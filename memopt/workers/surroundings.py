"""What results depend on beside models and options: the same for all workers."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from memopt.buffers.kernel_call import (
    INTER_OP_VARIABLE,
    INTRA_OP_VARIABLE,
    threads_from,
)
from memopt.cores import usable_cores
from memopt.errors import OptionsError
from memopt.flags import VARIABLE, Flags
from memopt.graph.kernels import ONEDNN_VARIABLE, runs_onednn
from memopt.kernels.choice import RULES

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGES = ("tensorflow", "numpy", "protobuf", "numba")
_OF_ONE_RESULT = ("dump_dot", "dump_memlog", "report_dir")


@cache
def versions() -> Mapping[str, str]:
    """Of all that decides what comes out: memopt's sources by their digest, and packages."""
    found = {"memopt": code_digest()}
    for name in _PACKAGES:
        found[name] = metadata.version(name)
    return found


@cache
def code_digest() -> str:
    """A digest of memopt's sources: another one may plan something else."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def process_variables() -> dict[str, str]:
    """Environment variables that every worker has, wherever it runs.

    Threads and oneDNN are what TensorFlow has in this process: what is predicted depends on them,
    and other machines have other numbers of cores.

    Raises:
        OptionsError: MEMOPT_FLAGS asks for what workers cannot do.
    """
    _check_flags()
    intra = threads_from(INTRA_OP_VARIABLE) or usable_cores()
    inter = threads_from(INTER_OP_VARIABLE) or usable_cores()
    return {
        INTRA_OP_VARIABLE: str(intra),
        INTER_OP_VARIABLE: str(inter),
        ONEDNN_VARIABLE: os.environ.get(ONEDNN_VARIABLE) or str(int(runs_onednn())),
        VARIABLE: os.environ.get(VARIABLE, ""),
    }


def _check_flags() -> None:
    flags = Flags.from_environment()
    for name in _OF_ONE_RESULT:
        if getattr(flags, name):
            raise OptionsError(f"{VARIABLE}: --{name} names one place for all tasks")
    if flags.kernels not in (None, RULES):
        raise OptionsError(f"{VARIABLE}: --kernels is what one machine has: workers go by rules")
