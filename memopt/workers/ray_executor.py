"""Tasks on the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import socket
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from memopt.display import bytes_text
from memopt.errors import MemoptError, OptionsError
from memopt.workers.executor import Finished
from memopt.workers.process import MEMORY, PERIOD_S, Limits
from memopt.workers.ray_worker import do_task
from memopt.workers.surroundings import versions
from memopt.workers.worker import ERROR, OTHER_VERSIONS, failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.workers.executor import Job
    from memopt.workers.inputs import Input
    from memopt.workers.ray_worker import RemoteAnswer

_MOST_TRIES = 10
"""How often a task begins on another machine when its own is lost."""
_QUEUED = 2
"""Tasks given out for each CPU, so that none waits for the next one."""
_LOOK_S = 5.0
"""How often the size of the cluster is looked at, which may grow and shrink."""
LOST = "lost"
_CLIENT_SCHEME = "ray://"
_CONNECTION_S = 10.0


def check_ray() -> None:
    """Check that Ray is installed.

    Raises:
        OptionsError: It is not; the message says how to install it.
    """
    if find_spec("ray") is None:
        raise OptionsError("tasks on other machines need Ray: pip install memopt[fleet]")


class RayExecutor:
    """An `Executor` on a Ray cluster, whose machines have memopt installed, but not the files.

    A model's files are sent once for all of its tasks, and results come back as bytes. What was
    running on a machine that is lost begins again on another one.

    Args:
        address: As `ray.init` takes it: "auto", "HOST:6379", "ray://HOST:10001". A connection that
            the program has made already is used.
        variables: Environment variables of the processes on top of those of their machines.
        memory_bytes: What a task may take, and what its machine has to have free; `None` for the
            share of one CPU in the memory of the machine that has least for each.
        timeout_s: Seconds that it may take.
        jobs: The most tasks that are given out; `None` for as many as keep all CPUs busy.

    Raises:
        OptionsError: Ray is not installed, or no machine has so much memory.
        MemoptError: There is no cluster at the address.
    """

    def __init__(
        self,
        address: str,
        variables: Mapping[str, str],
        memory_bytes: int | None,
        timeout_s: float,
        jobs: int | None = None,
    ) -> None:
        check_ray()
        self._own_connection = _connect(address)
        self._jobs = jobs
        self._running: dict[Any, Job] = {}
        self._sent: dict[Input, Any] = {}
        self._cpus, self._looked_s = 0, 0.0
        try:
            limits = Limits(_memory_for_each(memory_bytes), timeout_s)
            self._task = _remote(memory_bytes)
        except BaseException:
            self.close()
            raise
        self._arguments = (dict(versions()), dict(variables), limits)

    @property
    def width(self) -> int:
        """How many jobs run at a time."""
        if time.monotonic() - self._looked_s > _LOOK_S:
            self._cpus = int(_ray().cluster_resources().get("CPU", 0))
            self._looked_s = time.monotonic()
        return min(self._cpus, self._jobs or self._cpus)

    @property
    def running(self) -> int:
        """How many jobs are not finished."""
        return len(self._running)

    def has_room(self) -> bool:
        """Whether fewer jobs are given out than keep the cluster busy."""
        return self.running < (self._jobs or max(1, _QUEUED * self.width))

    def submit(self, job: Job) -> None:
        """Give a job out."""
        source = job.input
        if source not in self._sent:
            used = {one.input for one in self._running.values()}
            self._sent = {one: sent for one, sent in self._sent.items() if one in used}
            self._sent[source] = _ray().put(source.parts(job.order.reads))
        sent = self._task.remote(source.digest, self._sent[source], job.order, *self._arguments)
        self._running[sent] = job

    def wait(self) -> list[Finished]:
        """What has finished since, or does within a moment."""
        ray = _ray()
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=PERIOD_S)
        if ready:
            ready, _ = ray.wait(list(self._running), num_returns=self.running, timeout=0)
        return [_finished(self._running.pop(one), one) for one in ready]

    def close(self) -> None:
        """End everything at once."""
        ray = _ray()
        for one in self._running:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.cancel(one, force=True)
        self._running.clear()
        self._sent.clear()
        if self._own_connection:
            ray.shutdown()


def _ray() -> Any:
    import ray

    return ray


def _connect(address: str) -> bool:
    """Connect to a cluster; whether that was not so already.

    Raises:
        MemoptError: There is none.
    """
    ray = _ray()
    if ray.is_initialized():
        return False
    try:
        _check_address(address)
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        # Ray raises what its parts do: ConnectionError, RuntimeError, ValueError, its own.
        raise MemoptError(f"--on {address}: no Ray cluster can be reached: {error}") from error
    return True


def _check_address(address: str) -> None:
    """See that somebody listens: Ray tries for minutes, and may end the process then.

    Raises:
        OSError: Nobody does.
    """
    host, _, port = address.removeprefix(_CLIENT_SCHEME).partition("/")[0].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTION_S).close()


def _remote(memory_bytes: int | None) -> Any:
    """The task as Ray knows it."""
    asked = {} if memory_bytes is None else {"memory": memory_bytes}
    return _ray().remote(do_task).options(num_cpus=1, max_retries=_MOST_TRIES, **asked)


def _memory_for_each(memory_bytes: int | None) -> int:
    """What a task may take.

    Raises:
        OptionsError: No machine has so much, or there is none with a CPU.
    """
    nodes = [one["Resources"] for one in _ray().nodes() if one["Alive"]]
    with_cpus = [one for one in nodes if one.get("CPU", 0) >= 1 and one.get("memory")]
    if not with_cpus:
        raise OptionsError("no machine of the Ray cluster has a CPU to give")
    if memory_bytes is None:
        return min(int(one["memory"] / one["CPU"]) for one in with_cpus)
    most_bytes = int(max(one["memory"] for one in with_cpus))
    if memory_bytes > most_bytes:
        raise OptionsError(
            f"no machine of the Ray cluster has {bytes_text(memory_bytes)} for a task: the largest "
            f"has {bytes_text(most_bytes)}"
        )
    return memory_bytes


def _finished(job: Job, sent: Any) -> Finished:
    """What came of a job; its files go where those of local processes are."""
    ray = _ray()
    try:
        found: RemoteAnswer = ray.get(sent)
    except ray.exceptions.OutOfMemoryError as error:
        return Finished(job, failed(MEMORY, f"its machine ran out of memory: {error}"), 0.0)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None) or error
        kind = OTHER_VERSIONS if isinstance(cause, ImportError) else ERROR
        hint = "; install memopt on every machine" if kind == OTHER_VERSIONS else ""
        return Finished(job, failed(kind, f"{type(cause).__name__}: {cause}{hint}"), 0.0)
    except ray.exceptions.RayError as error:
        return Finished(job, failed(LOST, f"{type(error).__name__}: {error}"), 0.0)
    for name, content in found.files.items():
        (job.folder / name).write_bytes(content)
    return Finished(job, found.answer, found.seconds, found.where)
