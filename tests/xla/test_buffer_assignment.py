"""What XLA's compiler says, read from what it dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.errors import ExecutionError
from memopt.xla.buffer_assignment import CompiledMemory, LiveValue

if TYPE_CHECKING:
    from pathlib import Path

ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 400, parameter 2, shape |f32[10,10]| at ShapeIndex {}, maybe-live-out:
 value: <5 arg2.1 @0> (size=400,offset=0): f32[10,10]{1,0}
allocation 1: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:
allocation 2: size 4, maybe-live-out:
 value: <9 loss @0> (size=4,offset=0): f32[]
allocation 3: size 4, thread-local:
allocation 4: size 1200, preallocated-temp:
 value: <7 dot.1 @0> (size=800,offset=0): f32[20,10]{1,0}
 value: <8 fusion.2 @0> (size=400,offset=800): f32[10,10]{1,0}

Total bytes used: 1616 (1.6KiB)
HloLiveRange (max 9):
  Live ranges at 7 (peak):
    dot.1{}: 800 bytes (cumulative: 800 bytes)
    arg2.1{}: 400 bytes (cumulative: 1200 bytes)
    fusion.2{}: 400 bytes (cumulative: 1600 bytes)
"""
MODULE = """\
HloModule step, is_scheduled=true
ENTRY %step (arg2.1: f32[10,10]) -> f32[] {
  %dot.1 = f32[20,10]{1,0} dot(%a, %b), metadata={op_type="MatMul" op_name="dense/MatMul"}
  %fusion.2 = f32[10,10]{1,0} fusion(%dot.1), kind=kLoop, calls=%f
}
"""


def write(folder: Path, name: str = "module_0000.step") -> None:
    stem = f"{name}.cpu_after_optimizations"
    (folder / f"{stem}-buffer-assignment.txt").write_text(ASSIGNMENT, "utf-8")
    (folder / f"{stem}.txt").write_text(MODULE, "utf-8")


def test_sizes_and_what_is_live(tmp_path: Path) -> None:
    write(tmp_path)
    memory = CompiledMemory.from_dump(tmp_path)
    assert (memory.temporary_bytes, memory.output_bytes, memory.argument_bytes) == (1200, 4, 408)
    assert memory.step_peak_bytes == 1204
    assert memory.live == (LiveValue("dot.1", "dense/MatMul", 800), LiveValue("fusion.2", "", 400))
    assert CompiledMemory.from_json(memory.to_json()) == memory
    assert "dense/MatMul" in str(memory)


def test_a_dump_is_of_one_step(tmp_path: Path) -> None:
    with pytest.raises(ExecutionError, match="left 0 buffer assignments"):
        CompiledMemory.from_dump(tmp_path)
    write(tmp_path)
    write(tmp_path, "module_0001.other")
    with pytest.raises(ExecutionError, match="left 2 buffer assignments"):
        CompiledMemory.from_dump(tmp_path)
