"""What a fleet has done: a journal in its folder, and a lock, so that two do not work there."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from memopt.errors import FileError
from memopt.workers.inputs import file_digest
from memopt.workers.surroundings import versions

try:
    import fcntl
except ImportError:  # Windows: two fleets in one folder are not noticed
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from memopt.fleets.work import FleetJob

JOURNAL = "fleet.jsonl"
_PARTS = ".parts"
_FORMAT = 1


def fingerprint(job: FleetJob, variables: Mapping[str, str]) -> str:
    """What a result follows from: the same for the same bytes.

    Of the model all contents, then the task, the options, the environment of the processes, and
    memopt and the packages that it plans with.
    """
    facts = {
        "format": _FORMAT,
        "input": job.input.digest,
        "budget": str(job.task.budget),
        "shapes": job.task.shapes_text,
        "options": job.options.to_json(),
        "variables": dict(variables),
        "versions": dict(versions()),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class Manifest:
    """The journal of a fleet's folder: a line of JSON for each task that came to a result.

    Each line has the digest of the rest of it; what was cut off or changed does not count. The last
    line of a task counts. It is a context: meanwhile no other fleet works in the folder.

    Args:
        folder: The fleet's folder; made if it is not there.

    Raises:
        FileError: The folder holds something else than a fleet's results, cannot be written, or
            another fleet works there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journal = folder / JOURNAL
        self._stream: IO[bytes] | None = None
        self._records: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def _open(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if not self._journal.exists() and any(self.folder.iterdir()):
                raise FileError(
                    f"{self.folder}: holds something else than a fleet's results; give a folder "
                    "that is empty or not there"
                )
            self._stream = self._journal.open("a+b")
            self._lock()
            self._read()
            shutil.rmtree(self.parts, ignore_errors=True)
            self.parts.mkdir()
        except OSError as error:
            raise FileError(f"{self.folder}: cannot be written: {error}") from error

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.parts, ignore_errors=True)
        self._close()

    @property
    def parts(self) -> Path:
        """Where tasks write before their results get their names."""
        return self.folder / _PARTS

    def find(self, name: str, wanted: str) -> dict[str, Any] | None:
        """The answer of a task that is done, with its output as it was.

        Args:
            name: The task's.
            wanted: The fingerprint of what is to be done.
        """
        record = self._records.get(name)
        if record is None or record["fingerprint"] != wanted:
            return None
        return record if self._is_there(record["files"]) else None

    def add(self, name: str, wanted: str, answer: Mapping[str, Any], files: Any) -> None:
        """Write down that a task has come to a result.

        Args:
            name: The task's.
            wanted: Its fingerprint.
            answer: What came of it.
            files: See `describe`.
        """
        record = {"task": name, "fingerprint": wanted, "files": files, "answer": dict(answer)}
        self._records[name] = record
        assert self._stream is not None
        self._stream.write(_line(record))
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def describe(self, output: Path, written: frozenset[str]) -> list[list[Any]]:
        """The files of an output: path below the fleet's folder, size, and digest.

        Args:
            output: A file or a folder.
            written: Those that tasks write, which have digests; others are the model's own.
        """
        found: list[list[Any]] = []
        for path in _files_of(output):
            name = path.relative_to(output).as_posix() if path != output else ""
            digest = file_digest(path) if not name or name in written else ""
            place = path.relative_to(self.folder).as_posix()
            found.append([place, path.stat().st_size, digest])
        return found

    def _is_there(self, files: Any) -> bool:
        """Whether an output is as it was written, without further files."""
        places = [Path(place) for place, _, _ in files]
        folders = {self.folder.joinpath(*place.parts[:2]) for place in places}
        with contextlib.suppress(OSError):
            there = sum(1 for folder in folders for _ in _files_of(folder))
            return there == len(places) and all(
                (self.folder / place).stat().st_size == size
                and (not digest or file_digest(self.folder / place) == digest)
                for place, size, digest in files
            )
        return False

    def _lock(self) -> None:
        if fcntl is None:
            return
        assert self._stream is not None
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{self.folder}: another fleet works in it") from None

    def _read(self) -> None:
        """Read the journal; one whose last line was cut off is ended, so that lines stay apart."""
        assert self._stream is not None
        self._stream.seek(0)
        content = self._stream.read()
        for line in content.splitlines():
            record = _record(line)
            if record is not None:
                self._records[record["task"]] = record
        if content and not content.endswith(b"\n"):
            self._stream.write(b"\n")


def _line(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, sort_keys=True)
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}\n".encode()


def _record(line: bytes) -> dict[str, Any] | None:
    """What a line says; `None` if it was cut off or changed."""
    digest, _, text = line.partition(b" ")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    record: dict[str, Any] = json.loads(text)
    return record


def _files_of(output: Path) -> Iterator[Path]:
    if not output.is_dir():
        yield output
        return
    for parent, _, names in os.walk(output):
        for name in sorted(names):
            yield Path(parent, name)
