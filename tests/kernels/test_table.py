"""The file of measured kernels: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memopt.buffers.kernel_call import KernelMemory, Placement
from memopt.errors import FileError
from memopt.kernels.table import Environment, KernelTable, MeasuredKernel, load_or_empty

if TYPE_CHECKING:
    from pathlib import Path

HERE = Environment("2.21.0", onednn=True, threads=2)
ELSEWHERE = Environment("2.21.0", onednn=False, threads=8)
MEMORY = KernelMemory((Placement(1), Placement(-1, (0, 1))), 640, ((128, (0,)),))
KERNEL = MeasuredKernel("Relu(float[4])", MEMORY, 1500)
FAILED = MeasuredKernel("Cholesky(float[4,4])", failure="not invertible")

SIZES = st.integers(0, 1 << 40)
SLOTS = st.lists(st.integers(0, 9), max_size=3).map(tuple)
MEMORIES = st.builds(
    KernelMemory,
    st.lists(st.builds(Placement, st.integers(-1, 9), SLOTS), max_size=3).map(tuple),
    SIZES,
    st.lists(st.tuples(SIZES, SLOTS), max_size=3).map(tuple),
)


@given(MEMORIES, SIZES)
def test_a_kernel_survives_json(memory: KernelMemory, time_ns: int) -> None:
    kernel = MeasuredKernel("Some(float[])", memory, time_ns)
    assert MeasuredKernel.from_json(json.loads(json.dumps(kernel.to_json()))) == kernel


def test_a_file_holds_several_environments(tmp_path: Path) -> None:
    path = str(tmp_path / "kernels.json")
    assert load_or_empty(path) == KernelTable()
    table = KernelTable().with_kernels(HERE, {"a": KERNEL, "b": FAILED})
    table = table.with_kernels(ELSEWHERE, {"a": FAILED})
    table.save(path)
    loaded = load_or_empty(path)
    assert loaded == table
    assert loaded.in_environment(HERE) == {"a": KERNEL, "b": FAILED}
    assert loaded.in_environment(HERE._replace(threads=1)) == {}


def test_what_a_gpu_did_holds_for_its_model_alone(tmp_path: Path) -> None:
    path, there = str(tmp_path / "kernels.json"), HERE._replace(gpu="NVIDIA H100 80GB HBM3")
    KernelTable().with_kernels(HERE, {"a": FAILED}).with_kernels(there, {"a": KERNEL}).save(path)
    loaded = load_or_empty(path)
    assert loaded.in_environment(there) == {"a": KERNEL}
    assert loaded.in_environment(HERE) == {"a": FAILED}
    assert loaded.in_environment(HERE._replace(gpu="NVIDIA L4")) == {}
    assert "H100" in str(there)
    without, _ = json.loads((tmp_path / "kernels.json").read_text())["environments"]
    assert "gpu" not in without


def test_the_same_table_is_the_same_bytes(tmp_path: Path) -> None:
    one = KernelTable().with_kernels(HERE, {"a": KERNEL}).with_kernels(ELSEWHERE, {"a": FAILED})
    other = KernelTable().with_kernels(ELSEWHERE, {"a": FAILED}).with_kernels(HERE, {"a": KERNEL})
    one.save(str(tmp_path / "one"))
    other.save(str(tmp_path / "other"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_of_too_many_kernels_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memopt.kernels.table._MOST_KERNELS", 2)
    table = KernelTable().with_kernels(HERE, {"a": KERNEL, "b": KERNEL})
    assert set(table.with_kernels(HERE, {"c": FAILED}).in_environment(HERE)) == {"b", "c"}


def _with(**changes: Any) -> str:
    kernel = {**KERNEL.to_json(), **changes}
    return json.dumps({"environments": [{**HERE._asdict(), "kernels": {"a": kernel}}]})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        '{"environments": [{}]}',
        '{"environments": [{"kernels": {}, "onednn": true}]}',
        _with(kernel=5),
        _with(time_ns=-1),
        _with(time_ns=1.5),
        _with(scratch_bytes="640"),
        _with(scratch_bytes=1 << 60),
        _with(outputs=[[0]]),
        _with(outputs=[[-2, []]]),
        _with(outputs=[[0, [True]]]),
        _with(scratch_buffers=[[1, 2]]),
    ],
)
def test_a_damaged_file_is_one_clear_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.json"
    path.write_text(content)
    with pytest.raises(FileError, match=r"kernels.json: is no table of measured kernels"):
        KernelTable.load(str(path))


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        KernelTable.load(str(tmp_path / "none.json"))
