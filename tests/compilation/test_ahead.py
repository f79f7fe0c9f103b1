"""The planner compiled before it is needed, by a process of its own."""

from __future__ import annotations

import sys
import time
from subprocess import run
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from memopt.compilation import ahead, compiled_code
from memopt.compilation.jit import IS_COMPILED
from memopt.planning.annealing import search_slice
from memopt.planning.compile_ahead import start_compiling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAN = """
from memopt.planning.cost_graph import CostGraph, Operation
import memopt
forward = [Operation(5, (100,), ((at - 1, 0),) if at else ()) for at in range(12)]
backward = [Operation(5, (100,), ((at - 1, 0), (23 - at, 0))) for at in range(12, 24)]
memopt.plan(CostGraph.build([*forward, *backward]), 700, time_limit_s=1)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ahead, "_started", set())
    compiled_code._folder_for.cache_clear()
    yield tmp_path / "memopt" / "compiled"
    compiled_code._folder_for.cache_clear()


def files_in(cache: Path) -> dict[str, int]:
    """What is kept, and since when, but for what proves bounds, which no budget needs."""
    code = cache.glob("*/*.nbc")
    return {
        path.name: path.stat().st_mtime_ns
        for path in code
        if not path.name.startswith(("bounds.", "minimum_cut."))
    }


@pytest.mark.slow
@pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
def test_what_plans_need_is_there_when_it_is_needed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "usable_cores", lambda: 2)
    start_compiling()
    deadline_s = time.monotonic() + 120
    while not any("fill" in name for name in files_in(cache)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    before = files_in(cache)
    assert compiled_code.is_kept(search_slice)
    run([sys.executable, "-c", PLAN], check=True)
    assert {name: before.get(name) for name in files_in(cache)} == before


@pytest.mark.parametrize(("cores", "kept", "starts"), [(2, False, 1), (1, False, 0), (2, True, 0)])
def test_a_process_is_started_once_where_it_is_of_use(
    cores: int, *, kept: bool, starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []

    def start(command: list[str], **_: Any) -> Any:
        started.append(command)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(ahead, "IS_COMPILED", True)
    monkeypatch.setattr(ahead, "usable_cores", lambda: cores)
    monkeypatch.setattr(ahead, "is_kept", lambda _: kept)
    monkeypatch.setattr("memopt.compilation.ahead.subprocess.Popen", start)
    start_compiling()
    start_compiling()
    assert [command[-1] for command in started] == ["memopt.planning.compile_ahead"] * starts
