"""Files that are read as one, and written whole or not at all."""

from __future__ import annotations

import io
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import FileError
from memopt.files.file_systems import file_system_of

if TYPE_CHECKING:
    import numpy.typing as npt

SIZE_LIMIT_BYTES = (1 << 31) - 1
"""The largest message that protobuf can hold."""
_UNSPELLABLE = re.compile("[\0\ud800-\udfff]")


def read_bytes(path: str) -> bytes:
    """What is in a file; anywhere that `tf.io.gfile` or fsspec reaches.

    Raises:
        FileError: There is no such file, it is empty or a folder, or larger than a protobuf can be.
    """
    _check_spelling(path)
    with file_system_of(path) as files:
        if files.is_folder(path):
            raise FileError(
                f"{path}: is a folder; give the graph file itself, or for a SavedModel use "
                "memopt.optimize_saved_model"
            )
        if not files.exists(path):
            raise FileError(f"{path}: there is no such file")
    content = read_file(path, SIZE_LIMIT_BYTES)
    if not content:
        raise FileError(f"{path}: is empty")
    return content


def read_file(path: str, limit_bytes: int) -> bytes:
    """A file's content; anywhere that `tf.io.gfile` or fsspec reaches.

    Raises:
        FileError: There is no such file, or it has more bytes than the limit.
    """
    try:
        with file_system_of(path) as files:
            size_bytes = files.size_bytes(path)
            if size_bytes > limit_bytes:
                raise FileError(f"{path}: has {size_bytes} bytes; at most {limit_bytes} are read")
            with files.open(path, "rb") as stream:
                return stream.read()
    except ValueError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error


def read_arrays(path: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an .npz file, as `numpy.savez` writes it, by name.

    Raises:
        FileError: There is no such file, or it is no .npz file of plain arrays.
    """
    import numpy as np

    content = io.BytesIO(read_bytes(path))
    try:
        with np.load(content, allow_pickle=False) as members:
            arrays: dict[str, npt.NDArray[Any]] = dict(members)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise FileError(f"{path}: is no .npz file of plain arrays: {reason}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise FileError(f"{path}: is no .npz file of plain arrays: {name!r} is none")
    return arrays


def write_bytes(path: str, content: bytes) -> None:
    """Write a file, whole or not at all; anywhere that `tf.io.gfile` or fsspec reaches.

    Raises:
        FileError: The place cannot be written to. What was there before is still there.
    """
    _check_spelling(path)
    part = f"{path}.{uuid.uuid4().hex}.part"
    with file_system_of(path, "written") as files:
        try:
            with files.open(part, "wb") as stream:
                stream.write(content)
            files.rename(part, path)
        except BaseException:
            files.remove(part)
            raise


def write_local(path: str, content: bytes) -> None:
    """Write a file of this machine, whole or not at all, without TensorFlow.

    Raises:
        FileError: The place cannot be written to. What was there before is still there.
    """
    target = Path(path)
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        try:
            part.write_bytes(content)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise FileError(f"{path}: cannot be written: {error}") from error


def _check_spelling(path: str) -> None:
    """Refuse a path that TensorFlow would cut off at a NUL, or cannot encode at all."""
    if _UNSPELLABLE.search(path):
        raise FileError(f"{path!r}: is no path that TensorFlow can open")
