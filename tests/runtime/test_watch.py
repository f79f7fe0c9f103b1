"""A process that cannot answer any more is ended, and why is known."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Self

import pytest
from tensorflow.core.protobuf import bfc_memory_map_pb2

from memopt.errors import ExecutionError
from memopt.runtime import worker_process
from memopt.runtime.settings import Settings
from memopt.runtime.watch import DUMP_VARIABLE, Watch, dump_environment
from memopt.runtime.worker_process import ending

if TYPE_CHECKING:
    from pathlib import Path

_LONG_NS = 600 * 10**9
_FAILURE = (
    "W0000 00:00:1.2 34 op_kernel.cc:1858] OP_REQUIRES failed at matmul_op.cc:1 : "
    "RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[8,8]\n"
)


def _process(program: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _answer(program: str, log: Path, timeout_ns: int = _LONG_NS) -> tuple[str, Watch]:
    process = _process(program)
    assert process.stdout is not None
    with process, Watch(process, log, timeout_ns, log.parent) as watch:
        return process.stdout.readline(), watch


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.txt"
    path.write_text("E0000 something else\n")
    return path


def test_a_process_that_answers_is_left_alone(log: Path) -> None:
    line, watch = _answer("print('ready')", log)
    assert (line, watch.timed_out, watch.failed_allocation) == ("ready\n", False, "")


def test_a_step_in_which_an_allocation_failed_is_not_waited_for(log: Path) -> None:
    program = (
        f"import time; open({str(log)!r}, 'a').write({_FAILURE!r}); time.sleep(600); print('ready')"
    )
    line, watch = _answer(program, log)
    assert (line, watch.timed_out) == ("", False)
    assert watch.failed_allocation == "OOM when allocating tensor with shape[8,8]"


def test_a_process_that_tells_of_the_failure_itself_is_heard(log: Path) -> None:
    program = (
        f"import time; open({str(log)!r}, 'a').write({_FAILURE!r}); time.sleep(1); print('failed')"
    )
    line, watch = _answer(program, log)
    assert (line, watch.failed_allocation) == ("failed\n", "")


MIB = 1 << 20


def _write_dump(log: Path, number: int) -> str:
    """A program that writes what TensorFlow's allocator writes when an allocation fails."""
    dump = bfc_memory_map_pb2.MemoryDump()
    dump.chunk.add(size=3 * MIB, in_use=True)
    dump.chunk.add(size=2 * MIB)
    dump.chunk.add(size=1 * MIB)
    dump.stats.bytes_in_use = 3 * MIB
    path = dump_environment(log.parent)[DUMP_VARIABLE]
    file = f"{path}_bfc_cpu_allocator_for_gpu.{number}"
    return f"open({file!r}, 'wb').write({dump.SerializeToString()!r})"


def test_what_waits_for_memory_that_nothing_will_free_is_not_waited_for(log: Path) -> None:
    program = f"import time; {_write_dump(log, 1)}; time.sleep(600); print('ready')"
    line, watch = _answer(program, log)
    assert (line, watch.timed_out) == ("", False)
    assert watch.failed_allocation == (
        "OOM when allocating: of the allocator's 6.0 MiB, 3.0 MiB are in use, and its largest "
        "free piece of 2.0 MiB is too small"
    )


def test_what_another_thread_may_free_is_waited_for(log: Path) -> None:
    work = "end = time.time() + 1.5\nwhile time.time() < end: pass\nprint('ready')"
    line, watch = _answer(f"import time; {_write_dump(log, 1)}\n{work}", log)
    assert (line, watch.failed_allocation) == ("ready\n", "")


def test_what_failed_before_an_earlier_answer_got_its_memory_later(log: Path) -> None:
    assert _answer(f"{_write_dump(log, 1)}; print('ready')", log)[0] == "ready\n"
    line, watch = _answer("import time; time.sleep(1.5); print('ready')", log)
    assert (line, watch.failed_allocation) == ("ready\n", "")


def test_time_is_up(log: Path) -> None:
    line, watch = _answer("import time; time.sleep(600)", log, timeout_ns=10**8)
    assert (line, watch.timed_out, watch.failed_allocation) == ("", True, "")


def test_a_process_that_was_ended_just_as_it_answered_is_not_heard(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no second answer, of which nobody would know why."""
    watches: list[Watch] = []

    class LateWatch(Watch):
        def __enter__(self) -> Self:
            self.timed_out = not watches
            watches.append(self)
            return super().__enter__()

    def start(*_: object) -> subprocess.Popen[str]:
        return _process("""print('{"result": "ready"}')""")

    monkeypatch.setattr(worker_process, "Watch", LateWatch)
    monkeypatch.setattr(worker_process, "start_worker", start)
    with (
        pytest.raises(ExecutionError, match=r"no answer within"),
        ending(worker_process.WorkerProcess(log.parent, Settings(), "module")) as process,
    ):
        process.ask("run")
