"""What orders work on: a file or a folder of this machine, digested, and sent where it is not."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from memopt.errors import FileError
from memopt.files.file_systems import MOST_FILES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from tempfile import TemporaryDirectory


@dataclass(frozen=True)
class Input:
    """A file, or a folder with files, as orders work on it.

    Attributes:
        path: A file or folder of this machine.
        digest: Of all that it consists of.
        state: Sizes and times of change of its files, to notice that it has changed since.
    """

    path: Path
    digest: str
    state: tuple[tuple[str, int, int], ...]
    _copy: TemporaryDirectory[str] | None = field(default=None, compare=False)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.path.is_dir()

    def has_changed(self) -> bool:
        """Whether it is not any more what the digest is of, by sizes and times of change."""
        try:
            return _state(self.path) != self.state
        except (OSError, FileError):
            return True

    def parts(self, wanted: Collection[str] | None = None) -> dict[str, bytes]:
        """The contents of its files by path, for a machine that does not have them.

        Args:
            wanted: Of a folder the files that are read there, by path; all if not given.

        Returns:
            A file alone has the path "".
        """
        if not self.is_folder:
            return {"": self.path.read_bytes()}
        names = (name for name, _, _ in self.state if wanted is None or name in wanted)
        return {name: (self.path / name).read_bytes() for name in names}

    def forget(self) -> None:
        """Remove the copy, if it is one."""
        if self._copy is not None:
            self._copy.cleanup()


def input_at(path: Path, copy: TemporaryDirectory[str] | None = None) -> Input:
    """A file or a folder of this machine, digested.

    Args:
        path: The file or folder.
        copy: The folder of its copy, if it is one.

    Raises:
        FileError: It is not there, cannot be read, or holds what is no file.
    """
    try:
        if not path.exists():
            raise FileError(f"{path}: there is no such file or folder")
        state = _state(path)
        digest = hashlib.sha256(b"folder" if path.is_dir() else b"file")
        for name, size, _ in state:
            digest.update(f"\0{name}\0{size}\0".encode(errors="surrogatepass"))
            digest.update(_digest_of(path / name if name else path))
        return Input(path, digest.hexdigest(), state, copy)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def _state(path: Path) -> tuple[tuple[str, int, int], ...]:
    """The name, size and time of change of each file, by name; that of a file alone is ""."""
    found = []
    for file in _files(path) if path.is_dir() else [path]:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileError(f"{file}: is neither a file nor a folder")
        name = "" if file is path else file.relative_to(path).as_posix()
        found.append((name, status.st_size, status.st_mtime_ns))
        if len(found) > MOST_FILES:
            raise FileError(f"{path}: has more than {MOST_FILES:,} files")
    return tuple(sorted(found))


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def file_digest(path: Path) -> str:
    """The digest of a file's content."""
    return _digest_of(path).hex()
