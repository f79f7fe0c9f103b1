"""Arrays by name, to files and back, and aligned for TensorFlow."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from memopt.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    Array = npt.NDArray[Any]

_INDEX = "index"
_ALIGNMENT_BYTES = 64


def save_values(path: Path, values: Mapping[str, Array]) -> None:
    """Write arrays to an .npz file, bit for bit, whatever their element type.

    Raises:
        FileError: The file cannot be written.
    """
    index: list[dict[str, Any]] = []
    parts: dict[str, Array] = {}
    for number, (name, value) in enumerate(values.items()):
        kind = _kind(value)
        index.append(
            {"name": name, "kind": kind, "dtype": value.dtype.name, "shape": list(value.shape)}
        )
        parts |= _encode(str(number), kind, value)
    parts[_INDEX] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    try:
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, **parts)
    except OSError as error:
        raise FileError(f"cannot write {path}: {error}") from error


def load_values(path: Path) -> dict[str, Array]:
    """The arrays that `save_values` wrote, in the same order.

    Raises:
        FileError: The file cannot be read or is not one of these.
    """
    try:
        with np.load(path, allow_pickle=False) as parts:
            index = json.loads(parts[_INDEX].tobytes())
            return {entry["name"]: _decode(str(i), entry, parts) for i, entry in enumerate(index)}
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise FileError(f"cannot read {path}: {error}") from error


def copy_of(value: Any) -> Array:
    """A tensor, variable or array as an array that shares no memory with it.

    A single text stays an object: numpy's own type for texts would cut zeros off its end.
    """
    content = value.numpy() if hasattr(value, "numpy") else value
    return np.array(content, object if isinstance(content, str | bytes) else None)


def aligned(value: Array) -> Array:
    """A copy that TensorFlow can use where it lies, without a copy of its own."""
    if value.dtype.hasobject:
        return value
    space = np.empty(value.nbytes + _ALIGNMENT_BYTES, np.uint8)
    start = -space.ctypes.data % _ALIGNMENT_BYTES
    copy: Array = space[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def _kind(value: Array) -> str:
    if value.dtype.hasobject:
        return "strings"
    # The types that TensorFlow adds to numpy's (bfloat16, float8) are "void" to the file format.
    return "raw" if value.dtype.kind == "V" else "plain"


def _encode(key: str, kind: str, value: Array) -> dict[str, Array]:
    if kind == "plain":
        return {key: value}
    if kind == "raw":
        return {key: np.frombuffer(value.tobytes(), np.uint8)}
    texts = [bytes(text) for text in value.flat]
    lengths = np.array([len(text) for text in texts], np.int64)
    return {key: np.frombuffer(b"".join(texts), np.uint8), f"{key}.lengths": lengths}


def _decode(key: str, entry: Mapping[str, Any], parts: Mapping[str, Array]) -> Array:
    data, shape = parts[key], tuple(entry["shape"])
    if entry["kind"] == "plain":
        return data
    if entry["kind"] == "raw":
        raw: Array = data.copy().view(_added_dtype(entry["dtype"])).reshape(shape)
        return raw
    ends = np.cumsum(parts[f"{key}.lengths"])
    content = data.tobytes()
    texts = np.empty(len(ends), object)
    texts[:] = [
        content[end - length : end]
        for end, length in zip(ends, parts[f"{key}.lengths"], strict=True)
    ]
    return texts.reshape(shape)


def _added_dtype(name: str) -> Any:
    import tensorflow as tf

    return tf.dtypes.as_dtype(name).as_numpy_dtype
