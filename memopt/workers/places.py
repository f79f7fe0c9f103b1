"""Where tasks run: so many processes of this machine, or a Ray cluster."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.cluster import system_memory_bytes
from memopt.cores import usable_cores
from memopt.errors import OptionsError
from memopt.options import check_whole, parse_bytes
from memopt.workers.local import LocalExecutor
from memopt.workers.process import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memopt.workers.executor import Executor

HOUR_S = 3600.0
_SHARE_OF_MEMORY = 0.9


@dataclass(frozen=True)
class Places:
    """Where tasks run, and what each of them may take.

    Attributes:
        jobs: How many run at a time; `None` for one for each core, or CPU of the cluster.
        on: The address of a Ray cluster, see `ray.init`; `None` for processes of this machine.
        memory_limit: Resident memory that a task may take, such as "8GiB"; `None` for nine tenths
            of this machine's, or of Ray's for a CPU, in equal shares.
        timeout_s: Seconds that a task may take.

    Raises:
        OptionsError: One of them is not valid.
    """

    jobs: int | None = None
    on: str | None = None
    memory_limit: int | str | None = None
    timeout_s: float = HOUR_S

    def __post_init__(self) -> None:
        if self.jobs is not None:
            check_whole("jobs", self.jobs, 1)
        if isinstance(self.timeout_s, bool) or not isinstance(self.timeout_s, int | float):
            raise OptionsError(f"timeout_s is a number of seconds, not {self.timeout_s!r}")
        if not 0 < self.timeout_s < math.inf:
            raise OptionsError(f"timeout_s is more than 0 s, not {self.timeout_s!r}")
        if self.memory_limit is not None:
            parse_bytes(str(self.memory_limit))

    @property
    def memory_bytes(self) -> int | None:
        """The memory limit, if there is one."""
        return None if self.memory_limit is None else parse_bytes(str(self.memory_limit))


@contextmanager
def open_executor(places: Places, variables: Mapping[str, str]) -> Iterator[Executor]:
    """What runs tasks; all of them are ended at the end.

    Args:
        places: Where.
        variables: Environment variables of their processes.

    Raises:
        OptionsError: Ray is needed and not installed, or no machine has so much memory.
        MemoptError: No Ray cluster is at the address.
    """
    executor = _executor(places, variables)
    try:
        yield executor
    finally:
        executor.close()


def _executor(places: Places, variables: Mapping[str, str]) -> Executor:
    memory_bytes = places.memory_bytes
    if places.on is not None:
        from memopt.workers.ray_executor import RayExecutor

        return RayExecutor(places.on, variables, memory_bytes, places.timeout_s, places.jobs)
    width = places.jobs or usable_cores()
    share_bytes = int(system_memory_bytes() * _SHARE_OF_MEMORY / width)
    return LocalExecutor(width, variables, Limits(memory_bytes or share_bytes, places.timeout_s))
