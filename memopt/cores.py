"""The cores of this machine: how many a process may use, and work that is spread over them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Result = TypeVar("_Result")


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(works: Sequence[Callable[[], _Result]], stop: Callable[[], None]) -> list[_Result]:
    """What works come to, in their order, done on as many cores as there are.

    That is worth it only for what runs without Python's lock, and the same everywhere only if no
    work depends on what another one does.

    Args:
        works: What is to be done.
        stop: Called where one of them fails or is interrupted, so that the others end soon.
    """
    threads = min(usable_cores(), len(works))
    if threads <= 1:
        return [work() for work in works]
    with ThreadPoolExecutor(threads, "memopt") as pool:
        futures = [pool.submit(work) for work in works]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop()
            for future in futures:
                future.cancel()
            raise
