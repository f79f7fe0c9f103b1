"""SavedModels in other file systems, such as a bucket: copied here, or sent from here, whole."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.display import bytes_text
from memopt.errors import FileError
from memopt.saved_model.files import MODEL_FILE, SCHEME

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FILES = 100_000
_CHUNK_BYTES = 8 << 20
_NO_LIMIT = 1 << 62


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is in a file system that only `tf.io.gfile` reaches."""
    return SCHEME in os.fspath(path)


@contextmanager
def at_hand(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder as one of this machine: itself, or a copy that goes with the context.

    Raises:
        FileError: There is no such folder, or it cannot be read.
    """
    if not is_remote(path):
        yield Path(path)
        return
    import tensorflow as tf

    spelled = os.fspath(path).rstrip("/")
    with TemporaryDirectory(prefix="memopt-saved-model-") as name:
        copy = Path(name) / "model"
        try:
            if not tf.io.gfile.isdir(spelled):
                raise FileError(f"{spelled}: there is no such folder")
            copy_folder(spelled, copy, _NO_LIMIT)
        except tf.errors.OpError as error:
            raise FileError(f"{spelled}: cannot be read: {error.message}") from error
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
    import tensorflow as tf

    spelled = os.fspath(path).rstrip("/")
    with TemporaryDirectory(prefix="memopt-saved-model-") as name:
        try:
            _check_is_free(spelled)
            yield Path(name) / "model"
            _check_is_free(spelled)
            _send(Path(name) / "model", spelled)
        except tf.errors.OpError as error:
            raise FileError(f"{spelled}: cannot be written: {error.message}") from error


def copy_folder(source: str, target: Path, most_bytes: int) -> None:
    """Copy a folder that `tf.io.gfile` reads to this machine.

    Args:
        source: The folder.
        target: The folder that is to be.
        most_bytes: What the copy may have.

    Raises:
        FileError: It is larger, has too many files, or a name that is none.
        OpError: TensorFlow's, if it cannot be read.
    """
    from tensorflow.io import gfile

    pending = [(source, target)]
    left_bytes, files = most_bytes, 0
    while pending:
        here, there = pending.pop()
        there.mkdir()
        for entry in sorted(gfile.listdir(here)):
            name = entry.rstrip("/")
            if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
                raise FileError(f"{here}: holds {entry!r}, which is no name of a file")
            files += 1
            if files > MOST_FILES:
                raise FileError(f"{source}: has more than {MOST_FILES:,} files")
            if gfile.isdir(f"{here}/{name}"):
                pending.append((f"{here}/{name}", there / name))
                continue
            left_bytes -= copy_file(f"{here}/{name}", there / name, left_bytes, source)


def copy_file(source: str, target: Path, most_bytes: int, model: str) -> int:
    """Copy a file; the number of its bytes.

    Raises:
        FileError: There are more than `most_bytes`.
        OpError: TensorFlow's, if it cannot be read.
    """
    from tensorflow.io import gfile

    copied = 0
    with gfile.GFile(source, "rb") as reading, target.open("wb") as writing:
        while chunk := reading.read(_CHUNK_BYTES):
            copied += len(chunk)
            if copied > most_bytes:
                raise FileError(
                    f"{model}: is larger than what may be copied to this machine (--copy-limit): "
                    f"{source} does not fit into the {bytes_text(most_bytes)} that are left of it"
                )
            writing.write(chunk)
    return copied


def _check_is_free(path: str) -> None:
    from tensorflow.io import gfile

    if gfile.exists(path):
        raise FileError(f"{path}: exists already; give a folder that does not")


def _send(folder: Path, target: str) -> None:
    """Copy a folder to where only `tf.io.gfile` writes, its message last."""
    from tensorflow.io import gfile

    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files.sort(key=lambda path: path == folder / MODEL_FILE)
    try:
        gfile.makedirs(target)
        for path in sorted(one for one in folder.rglob("*") if one.is_dir()):
            gfile.makedirs(f"{target}/{path.relative_to(folder).as_posix()}")
        for path in files:
            there = f"{target}/{path.relative_to(folder).as_posix()}"
            with path.open("rb") as reading, gfile.GFile(there, "wb") as writing:
                while chunk := reading.read(_CHUNK_BYTES):
                    writing.write(chunk)
    except BaseException:
        if gfile.exists(target):
            gfile.rmtree(target)
        raise
