"""Models of a fleet on this machine: found, copied here where they lie elsewhere, digested."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.errors import FileError
from memopt.file_systems import file_system_of
from memopt.fleets.work import INDEX_FILE
from memopt.saved_model.files import (
    FINGERPRINT_FILE,
    MODEL_FILE,
    TEXT_FILE,
    is_saved_model,
)
from memopt.saved_model.remote import MOST_FILES, copy_file, copy_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.fleets.tasks import Model

_SENT = frozenset({MODEL_FILE, TEXT_FILE, FINGERPRINT_FILE, INDEX_FILE})
"""What rewriting reads of a SavedModel; running it reads all."""


@dataclass(frozen=True)
class Input:
    """A model as a fleet works on it.

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
        """Whether it is a SavedModel."""
        return self.path.is_dir()

    def has_changed(self) -> bool:
        """Whether it is not any more what the digest is of, by sizes and times of change."""
        try:
            return _state(self.path) != self.state
        except (OSError, FileError):
            return True

    def parts(self, *, is_run: bool) -> dict[str, bytes]:
        """The contents of its files by path, for a machine that does not have them.

        Args:
            is_run: Whether it will run there; else only what a rewriting reads.

        Returns:
            A file alone has the path "".
        """
        if not self.is_folder:
            return {"": self.path.read_bytes()}
        names = (name for name, _, _ in self.state)
        return {name: (self.path / name).read_bytes() for name in names if is_run or name in _SENT}

    def forget(self) -> None:
        """Remove the copy, if it is one."""
        if self._copy is not None:
            self._copy.cleanup()


def find_input(model: Model, most_bytes: int) -> Input:
    """A model, digested, and copied to this machine where it lies in another file system.

    Args:
        model: The model.
        most_bytes: What a copy may have.

    Raises:
        FileError: It is not there, cannot be read, is no model, or its copy would be too large.
    """
    if not model.is_remote:
        return _model(Path(model.path), None)
    copy = TemporaryDirectory(prefix="memopt-fleet-")
    try:
        place = _copied(model.path, Path(copy.name), most_bytes)
        return _model(place, copy)
    except BaseException:
        copy.cleanup()
        raise


def _model(path: Path, copy: TemporaryDirectory[str] | None) -> Input:
    if path.is_dir() and not is_saved_model(path):
        raise FileError(f"{path}: is a folder, and no SavedModel: it has no {MODEL_FILE}")
    return input_at(path, copy)


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


def _copied(source: str, folder: Path, most_bytes: int) -> Path:
    """Copy a model into a folder of this machine.

    Raises:
        FileError: See `find_input`.
    """
    with file_system_of(source) as files:
        if not files.is_folder(source):
            if not files.exists(source):
                raise FileError(f"{source}: there is no such file or folder")
            target = folder / ("graph" + PurePosixPath(source).suffix)
            copy_file(files, source, target, most_bytes, source)
            return target
        if not any(files.exists(f"{source.rstrip('/')}/{n}") for n in (MODEL_FILE, TEXT_FILE)):
            raise FileError(f"{source}: is a folder, and no SavedModel: it has no {MODEL_FILE}")
        target = folder / "model"
        copy_folder(files, source.rstrip("/"), target, most_bytes)
    return target


def file_digest(path: Path) -> str:
    """The digest of a file's content."""
    return _digest_of(path).hex()
