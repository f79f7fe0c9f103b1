"""Compiled code is kept where other copies of the same sources find it, and is never relied on."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from numba.core import event

from memopt.compilation import compiled_code
from memopt.compilation.jit import IS_COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOOPS = """
from memopt.compilation.jit import compiled, compiled_apart

@compiled
def _half(number):
    return number // 2

@compiled_apart
def steps_to_one(number):
    steps = 0
    while number != 1:
        number = _half(number) if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps
"""

NESTED = """
from memopt.compilation.jit import compiled, compiled_apart, compiled_late

@compiled
def innermost(number):
    return number // 2

@compiled_late
def inner(number):
    return 3 * innermost(2 * number) + 1

@compiled_apart
def shared(number):
    return innermost(number) + inner(number)

@compiled_apart
def steps_to_one(number):
    return shared(number) + inner(number) + innermost(number)
"""


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiled_code._folder_for.cache_clear()
    yield tmp_path / "cache" / "memopt" / "compiled"
    compiled_code._folder_for.cache_clear()


def loops_in(folder: Path, source: str = LOOPS) -> Any:
    """A function of a module in a folder named `planning`, as another environment has it."""
    path = folder / "planning" / "loops.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("loops_for_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where compiled code looks for its globals
    spec.loader.exec_module(module)
    return module.steps_to_one


def was_loaded(function: Any) -> bool:
    assert function(27) == 111
    hits: int = function.stats.cache_hits.total()
    return hits == 1


def test_a_copy_elsewhere_loads_what_the_first_compiled(tmp_path: Path, kept: Path) -> None:
    assert not was_loaded(loops_in(tmp_path / "one"))
    assert was_loaded(loops_in(tmp_path / "other"))
    (folder,) = kept.iterdir()
    assert folder.name.startswith("planning-")


def test_other_sources_have_code_of_their_own(tmp_path: Path, kept: Path) -> None:
    assert not was_loaded(loops_in(tmp_path / "one"))
    # The function itself is the same: what it calls is written differently.
    assert not was_loaded(loops_in(tmp_path / "other", LOOPS.replace("number // 2", "number >> 1")))
    assert len(list(kept.iterdir())) == 2


def test_what_cannot_be_read_is_compiled_anew(tmp_path: Path, kept: Path) -> None:
    assert not was_loaded(loops_in(tmp_path / "one"))
    (code,) = kept.glob("*/*.nbc")
    code.write_bytes(code.read_bytes()[:100])
    assert not was_loaded(loops_in(tmp_path / "other"))
    assert was_loaded(loops_in(tmp_path / "third"))


def test_without_a_folder_it_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert not was_loaded(loops_in(tmp_path / "one"))
    assert not was_loaded(loops_in(tmp_path / "one"))


def test_what_nobody_used_for_long_is_removed(tmp_path: Path, kept: Path) -> None:
    assert not was_loaded(loops_in(tmp_path / "one"))
    (old,) = kept.iterdir()
    os.utime(old, (0, 0))
    compiled_code._folder_for.cache_clear()
    loops_in(tmp_path / "other", LOOPS.replace("number // 2", "number >> 1"))
    assert not old.exists()


def test_whoever_comes_second_waits_for_the_first(tmp_path: Path) -> None:
    first, second = loops_in(tmp_path / "one"), loops_in(tmp_path / "other")
    first._cache._take_lock()
    pid = os.fork()
    if pid == 0:  # pragma: no cover
        status = 1
        try:
            first._cache._lock = None  # inherited: closing it here would not release it there
            status = 0 if was_loaded(second) else 2
        finally:
            os._exit(status)
    assert first(27) == 111
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
def test_a_part_is_compiled_once_and_is_no_machine_code_by_itself(tmp_path: Path) -> None:
    compiled: list[str] = []
    finished: list[str] = []

    class Notes(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            compiled.append(event.data["dispatcher"].py_func.__name__)

        def on_end(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            (result,) = dispatcher.overloads.values()
            address = result.library.get_pointer_to_function(result.fndesc.llvm_func_name)
            finished.extend([dispatcher.py_func.__name__] if address else [])

    notes = Notes()
    event.register("numba:compile", notes)
    try:
        function = loops_in(tmp_path, NESTED)
        assert function(9) == 4 + 28 + 28 + 4
    finally:
        event.unregister("numba:compile", notes)
    assert sorted(compiled) == ["inner", "innermost", "shared", "steps_to_one"]
    assert sorted(finished) == ["shared", "steps_to_one"]
