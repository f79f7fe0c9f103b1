"""Has hot loops compiled by a process of its own, before they are needed."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from memopt.compilation.compiled_code import is_kept
from memopt.compilation.jit import IS_COMPILED
from memopt.cores import usable_cores
from memopt.interpreter import command_for, finding_memopt

if TYPE_CHECKING:
    from collections.abc import Callable

_started: set[str] = set()
"""What this process has had compiled."""


def compile_ahead(module: str, slowest: Callable[..., object]) -> None:
    """Start to compile hot loops if that was not done on this machine; nothing waits for it.

    Whoever needs one meanwhile compiles it, or waits for it if it is being compiled. With one core
    nothing would be gained, and without a cache folder nothing could be handed over.

    Args:
        module: What compiles them when it is run; it ends with this process.
        slowest: The one that takes longest; where it is kept, so are the others.
    """
    if module in _started or not IS_COMPILED or usable_cores() == 1 or is_kept(slowest):
        return
    _started.add(module)
    with contextlib.suppress(OSError):
        process = subprocess.Popen(  # noqa: S603 - this interpreter, our own module
            command_for(module),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=finding_memopt(os.environ),
        )
        atexit.register(_end, process, os.getpid())


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    """End it where it was started, not in a process that was forked since."""
    if os.getpid() == starter and process.poll() is None:
        process.terminate()
        process.wait()
