"""SavedModels in other file systems, such as a bucket: copied here, or sent from here, whole."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.display import bytes_text
from memopt.errors import FileError
from memopt.files.file_systems import MOST_FILES, file_system_of, is_remote
from memopt.saved_model.files import MODEL_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.files.file_systems import FileSystem

_CHUNK_BYTES = 8 << 20
_NO_LIMIT = 1 << 62


@contextmanager
def at_hand(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder as one of this machine: itself, or a copy that goes with the context.

    Raises:
        FileError: There is no such folder, or it cannot be read.
    """
    if not is_remote(path):
        yield Path(path)
        return
    spelled = os.fspath(path).rstrip("/")
    with TemporaryDirectory(prefix="memopt-saved-model-") as name:
        copy = Path(name) / "model"
        with file_system_of(spelled) as files:
            if not files.is_folder(spelled):
                raise FileError(f"{spelled}: there is no such folder")
            copy_folder(files, spelled, copy, _NO_LIMIT)
        yield copy


@contextmanager
def delivered(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where a folder that is to be is written: its own place, or one here that it is sent from.

    Not every file system can rename a folder, and a bucket has none. So the message of a model is
    sent last: until then there is no SavedModel, and what fails before is taken away again.

    Raises:
        FileError: Elsewhere there is one already, or it cannot be written.
    """
    if not is_remote(path):
        yield Path(path)
        return
    spelled = os.fspath(path).rstrip("/")
    with TemporaryDirectory(prefix="memopt-saved-model-") as name:
        with file_system_of(spelled, "written") as files:
            _check_is_free(files, spelled)
        yield Path(name) / "model"
        with file_system_of(spelled, "written") as files:
            _check_is_free(files, spelled)
            _send(files, Path(name) / "model", spelled)


def copy_folder(files: FileSystem, source: str, target: Path, most_bytes: int) -> None:
    """Copy a folder of another file system to this machine.

    Args:
        files: The file system.
        source: The folder.
        target: The folder that is to be.
        most_bytes: What the copy may have.

    Raises:
        FileError: It is larger, has too many files, or a name that is none.
    """
    pending = [(source, target)]
    left_bytes, count = most_bytes, 0
    while pending:
        here, there = pending.pop()
        there.mkdir()
        for name in sorted(files.names(here)):
            if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
                raise FileError(f"{here}: holds {name!r}, which is no name of a file")
            count += 1
            if count > MOST_FILES:
                raise FileError(f"{source}: has more than {MOST_FILES:,} files")
            if files.is_folder(f"{here}/{name}"):
                pending.append((f"{here}/{name}", there / name))
                continue
            left_bytes -= copy_file(files, f"{here}/{name}", there / name, left_bytes, source)


def copy_file(files: FileSystem, source: str, target: Path, most_bytes: int, model: str) -> int:
    """Copy a file; the number of its bytes.

    Raises:
        FileError: There are more than `most_bytes`.
    """
    copied = 0
    with files.open(source, "rb") as reading, target.open("wb") as writing:
        while chunk := reading.read(_CHUNK_BYTES):
            copied += len(chunk)
            if copied > most_bytes:
                raise FileError(
                    f"{model}: is larger than what may be copied to this machine (--copy-limit): "
                    f"{source} does not fit into the {bytes_text(most_bytes)} that are left of it"
                )
            writing.write(chunk)
    return copied


def _check_is_free(files: FileSystem, path: str) -> None:
    if files.exists(path):
        raise FileError(f"{path}: exists already; give a folder that does not")


def _send(files: FileSystem, folder: Path, target: str) -> None:
    """Copy a folder to another file system, its message last."""
    parts = sorted(path for path in folder.rglob("*") if path.is_file())
    parts.sort(key=lambda path: path == folder / MODEL_FILE)
    try:
        files.make_folders(target)
        for path in sorted(one for one in folder.rglob("*") if one.is_dir()):
            files.make_folders(f"{target}/{path.relative_to(folder).as_posix()}")
        for path in parts:
            there = f"{target}/{path.relative_to(folder).as_posix()}"
            with path.open("rb") as reading, files.open(there, "wb") as writing:
                while chunk := reading.read(_CHUNK_BYTES):
                    writing.write(chunk)
    except BaseException:
        files.remove(target)
        raise
