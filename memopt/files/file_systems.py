"""File systems by the scheme of a path: TensorFlow's own, and fsspec's for all others."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

from memopt.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "://"
"""What paths have in them that are not of this machine's own file system."""
MOST_FILES = 100_000
"""The most that a folder may have: more are no model's."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")


class FileSystem(Protocol):
    """What memopt needs of a file system; paths have their scheme."""

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a folder."""

    def names(self, folder: str) -> list[str]:
        """The names of what is in a folder, as the file system gives them."""

    def size_bytes(self, path: str) -> int:
        """The size of a file."""

    def open(self, path: str, mode: str) -> IO[bytes]:
        """Open a file to read it (rb) or to write it anew (wb)."""

    def make_folders(self, path: str) -> None:
        """Make a folder and those that it is in."""

    def rename(self, path: str, target: str) -> None:
        """Give a file another name; what had it goes."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether a path is in a file system that Python's own functions do not reach."""
    return SCHEME in os.fspath(path)


@contextmanager
def file_system_of(path: str, done: str = "read") -> Iterator[FileSystem]:
    """The file system that a path is in.

    Args:
        path: The path.
        done: What is done to it, for the message where that fails.

    Raises:
        FileError: No file system is known for its scheme, or it fails within the context.
    """
    import tensorflow as tf

    try:
        yield _find(path)
    except _UnknownError as error:
        raise FileError(f"{path}: cannot be {done}: {error}") from error
    except tf.errors.OpError as error:
        raise FileError(f"{path}: cannot be {done}: {error.message}") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be {done}: {error}") from error


def _find(path: str) -> FileSystem:
    import tensorflow as tf

    scheme, has_scheme, _ = path.partition(SCHEME)
    if not has_scheme or scheme in tf.io.gfile.get_registered_schemes():
        return _OfTensorFlow()
    if not _NAME.match(scheme):
        raise _UnknownError(f"{scheme!r} is no scheme of a file system")
    return _OfFsspec(_fsspec_of(scheme))


class _UnknownError(Exception):
    """No file system is known for a scheme."""


def _fsspec_of(scheme: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise _UnknownError(
            f"TensorFlow has no file system for {scheme}://; fsspec may have one, and is not "
            "installed: pip install 'memopt[remote]'"
        ) from error
    try:
        return fsspec.filesystem(scheme)
    except Exception as error:
        # An unknown scheme, a package that it needs, or what that package raises.
        reason = " ".join(str(error).split())
        raise _UnknownError(f"no file system for {scheme}://: {reason}") from error


class _OfTensorFlow:
    """What `tf.io.gfile` reaches."""

    def is_folder(self, path: str) -> bool:
        return bool(_gfile().isdir(path))

    def exists(self, path: str) -> bool:
        return bool(_gfile().exists(path))

    def names(self, folder: str) -> list[str]:
        return [name.rstrip("/") for name in _gfile().listdir(folder)]

    def size_bytes(self, path: str) -> int:
        return int(_gfile().stat(path).length)

    def open(self, path: str, mode: str) -> IO[bytes]:
        opened: IO[bytes] = _gfile().GFile(path, mode)
        return opened

    def make_folders(self, path: str) -> None:
        _gfile().makedirs(path)

    def rename(self, path: str, target: str) -> None:
        _gfile().rename(path, target, overwrite=True)

    def remove(self, path: str) -> None:
        if not self.exists(path):
            return
        if self.is_folder(path):
            _gfile().rmtree(path)
        else:
            _gfile().remove(path)


@dataclass(frozen=True)
class _OfFsspec:
    """What one of fsspec's file systems reaches."""

    fs: Any

    def is_folder(self, path: str) -> bool:
        return bool(self.fs.isdir(path))

    def exists(self, path: str) -> bool:
        return bool(self.fs.exists(path))

    def names(self, folder: str) -> list[str]:
        found = self.fs.ls(folder, detail=False)
        return [str(one).rstrip("/").rpartition("/")[2] for one in found]

    def size_bytes(self, path: str) -> int:
        return int(self.fs.size(path) or 0)

    def open(self, path: str, mode: str) -> IO[bytes]:
        opened: IO[bytes] = self.fs.open(path, mode)
        return opened

    def make_folders(self, path: str) -> None:
        self.fs.makedirs(path, exist_ok=True)

    def rename(self, path: str, target: str) -> None:
        self.fs.mv(path, target)

    def remove(self, path: str) -> None:
        if self.fs.exists(path):
            self.fs.rm(path, recursive=True)


def _gfile() -> Any:
    from tensorflow.io import gfile

    return gfile
