"""Arrays by name: files, alignment, made-up values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.errors import FileError, OptionsError
from memopt.runtime.synthesis import make_up
from memopt.runtime.values import aligned, load_values, save_values

if TYPE_CHECKING:
    from pathlib import Path

_BFLOAT16 = tf.bfloat16.as_numpy_dtype


def _object_array(*texts: bytes) -> Any:
    array = np.empty(len(texts), object)
    array[:] = texts
    return array


def test_every_type_comes_back_bit_for_bit(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "file": np.array([np.nan, -0.0, np.inf], np.float32),
        "a/b:0": np.arange(6, dtype=np.int64).reshape(2, 3),
        "scalar": np.array(True),
        "half": np.array([[1.5, np.nan]], _BFLOAT16),
        "half scalar": np.array(2.5, _BFLOAT16),
        "complex": np.array([1 + 2j], np.complex64),
        "empty": np.zeros((0, 4), np.float16),
    }
    save_values(tmp_path / "values.npz", values)
    loaded = load_values(tmp_path / "values.npz")

    assert list(loaded) == list(values)
    for name, value in values.items():
        assert loaded[name].dtype == value.dtype
        assert loaded[name].shape == value.shape
        assert loaded[name].tobytes() == value.tobytes()


def test_strings_come_back_with_their_zeros(tmp_path: Path) -> None:
    texts = _object_array(b"a\0", b"", b"\xff\0\0")
    save_values(tmp_path / "values.npz", {"texts": texts, "one": np.array(b"x\0", object)})
    loaded = load_values(tmp_path / "values.npz")

    assert list(loaded["texts"]) == [b"a\0", b"", b"\xff\0\0"]
    assert loaded["one"].shape == ()
    assert loaded["one"].item() == b"x\0"


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_what_is_no_values_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "values.npz").write_bytes(content)
    with pytest.raises(FileError, match=r"values\.npz"):
        load_values(tmp_path / "values.npz")


def test_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot write"):
        save_values(tmp_path / "no" / "values.npz", {})


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, _BFLOAT16])
def test_aligned_copies_are_equal_and_start_where_tensorflow_wants(dtype: Any) -> None:
    value = np.arange(35).reshape(5, 7).astype(dtype)
    copy = aligned(value)
    assert copy.ctypes.data % 64 == 0
    assert copy.tobytes() == value.tobytes()
    assert not np.shares_memory(copy, value)


def test_made_up_values_depend_on_seed_and_name_alone() -> None:
    def made(name: str, seed: int) -> bytes:
        return make_up(name, np.dtype(np.float32), (4, 4), seed).tobytes()

    assert made("x", 0) == made("x", 0)
    assert len({made("x", 0), made("x", 1), made("y", 0)}) == 3


def test_made_up_values_suit_their_use() -> None:
    weights = make_up("w", np.dtype(np.float32), (1000,), 0)
    assert np.abs(weights).max() < 0.5
    assert weights.min() < 0
    assert make_up("bn/moving_variance", np.dtype(np.float32), (1000,), 0).min() > 0
    assert make_up("rate", np.dtype(np.float64), (), 0) > 0
    assert set(make_up("labels", np.dtype(np.int64), (100,), 0)) == {0, 1}
    assert make_up("training", np.dtype(np.bool_), (), 0)
    assert make_up("half", np.dtype(_BFLOAT16), (3,), 0).dtype == _BFLOAT16


def test_no_text_is_made_up() -> None:
    with pytest.raises(OptionsError, match="names"):
        make_up("names", np.dtype(object), (2,), 0)
