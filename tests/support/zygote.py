"""Processes that start fast: forked from one that has imported TensorFlow and run nothing.

Python with TensorFlow takes some five seconds to start, and the tests want some hundred fresh
processes. A zygote is one process for each environment that TensorFlow reads when it is imported;
what it forks has an allocator, a runtime and plugins of its own, as if it had been started. What
must not share a hash seed or an address layout with others is started for real: see
`real_processes` in `conftest.py`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

READ_AT_IMPORT = (
    "ABSL_MIN_LOG_LEVEL",
    "TF_CPP_MIN_LOG_LEVEL",
    "TF_CPP_VMODULE",
    "TF_ENABLE_ONEDNN_OPTS",
)
"""What decides which zygote a process comes from; it gets all else when it is forked.

Which Keras is tf.keras is decided then as well, but what is forked uses the new one or none.
"""

_SIZE = struct.Struct("!I")
_STATUS = struct.Struct("!i")
_CODE = "-c"


@dataclass
class _Zygote:
    process: subprocess.Popen[bytes]
    channel: socket.socket


_ZYGOTES: dict[tuple[tuple[str, str], ...], _Zygote] = {}


class ForkedProcess:
    """What of `subprocess.Popen` the callers use, for a process that a zygote forked.

    Args:
        arguments: `["-m", module, ...]` or `["-c", source, ...]`.
        environment: All of its environment.
        files: Its standard input, output and error.
    """

    stdin: IO[str] | None = None
    stdout: IO[str] | None = None

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
    ) -> None:
        self.returncode: int | None = None
        zygote = _zygote_for(environment)
        self._statuses, theirs = os.pipe()
        request = {"arguments": list(arguments), "environment": dict(environment)}
        message = json.dumps(request | {"folder": str(Path.cwd())}).encode()
        socket.send_fds(zygote.channel, [_SIZE.pack(len(message))], [*files, theirs])
        zygote.channel.sendall(message)
        os.close(theirs)
        self.pid = self._read_status()

    def poll(self) -> int | None:
        """The status it ended with, or `None`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end: its status, or the signal that ended it as a negative number."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._statuses], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            self.returncode = self._read_status()
            os.close(self._statuses)
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.returncode is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        """Write to it, close its input, read all that it still writes, and wait for its end."""
        try:
            if self.stdin is not None:
                with self.stdin:
                    self.stdin.write(text)
        except BrokenPipeError:
            pass
        output = ""
        if self.stdout is not None:
            with self.stdout:
                output = self.stdout.read()
        self.wait(timeout)
        return output, ""

    def _read_status(self) -> int:
        data = os.read(self._statuses, _STATUS.size)
        status: int = _STATUS.unpack(data)[0]
        return status


def start(
    module: str, directory: str, environment: Mapping[str, str], log: IO[str]
) -> subprocess.Popen[str]:
    """Start `python -m module directory` with pipes; as `memopt.runtime.process` does itself."""
    child_input, our_input = os.pipe()
    our_output, child_output = os.pipe()
    process = ForkedProcess(
        ["-m", module, directory], environment, [child_input, child_output, log.fileno()]
    )
    os.close(child_input)
    os.close(child_output)
    process.stdin = os.fdopen(our_input, "w", encoding="utf-8")
    process.stdout = os.fdopen(our_output, "r", encoding="utf-8")
    return cast("subprocess.Popen[str]", process)


def run_source(
    source: str, arguments: Sequence[str], environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """`python -c source arguments` to its end, as `subprocess.run` with all output captured."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        Path(os.devnull).open() as nothing,
    ):
        files = [file.fileno() for file in (nothing, output, errors)]
        process = ForkedProcess([_CODE, source, *arguments], environment, files)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())


def run_started(
    source: str, arguments: Sequence[str], environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """The same in a process that is started for real."""
    return subprocess.run(
        [sys.executable, _CODE, source, *arguments],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def _zygote_for(environment: Mapping[str, str]) -> _Zygote:
    read = {name: environment[name] for name in READ_AT_IMPORT if name in environment}
    key = tuple(read.items())
    if key not in _ZYGOTES:
        ours, theirs = socket.socketpair()
        source = f"from support.zygote import serve; serve({theirs.fileno()})"
        tests = Path(__file__).resolve().parents[1]
        others = {name: os.environ[name] for name in os.environ.keys() - set(READ_AT_IMPORT)}
        paths = (str(tests), str(tests.parent), os.environ.get("PYTHONPATH"))
        process = subprocess.Popen(
            [sys.executable, "-c", source],
            env={**others, **read, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        _ZYGOTES[key] = _Zygote(process, ours)
        atexit.register(process.kill)
    return _ZYGOTES[key]


def serve(descriptor: int) -> None:
    """What a zygote does: fork for each request, until nobody can send any more."""
    import keras  # noqa: F401 - so that what is forked need not import it
    import tensorflow  # noqa: F401, ICN001

    import memopt.runtime.profile_worker
    import memopt.runtime.worker  # noqa: F401

    sys.path.remove("")
    # What is forked looks for no cycles in what was imported, and so copies none of it.
    gc.freeze()
    # Nobody waits for the supervisors.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    while True:
        head, files, _, _ = socket.recv_fds(channel, _SIZE.size, 4)
        if not head:
            return
        request = json.loads(_receive(channel, _SIZE.unpack(head)[0]))
        if not os.fork():
            channel.close()
            _supervise(request, files)
        for file in files:
            os.close(file)


def _receive(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += channel.recv(size - len(data))
    return data


def _supervise(request: dict[str, Any], files: Sequence[int]) -> None:
    """Fork what was asked for, and tell its number and how it ended."""
    *standard, statuses = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if not child:
        os.close(statuses)
        _become(request, standard)
    for file in standard:
        os.close(file)
    os.write(statuses, _STATUS.pack(child))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(statuses, _STATUS.pack(status))
    os._exit(0)


def _become(request: dict[str, Any], standard: Sequence[int]) -> None:
    """Be the process that was asked for, to its end."""
    for target, file in enumerate(standard):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    paths = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = dict.fromkeys([*filter(None, paths), *sys.path])
    kind, what, *arguments = request["arguments"]
    # The files were those of the zygote, which had none.
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", errors="replace")
        for number, mode in enumerate(("r", "w", "w"))
    )
    sys.argv = [kind, *arguments]
    status = 0
    try:
        if kind == _CODE:
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_module(what, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads that Python's own end waits for are not waited for: nothing here starts any.
    os._exit(status)
