"""The code of the guides runs, each page as a program of its own, and prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.child import child_environment
from support.zygote import run_source

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [
    *("out_of_memory", "batch_size", "gpu_8gib", "several_devices", "changes", "compared"),
    "command_line",
]
_START = """
import runpy, sys
from memopt.runtime import worker_process
from support import zygote

worker_process.start_worker = zygote.start
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""As `python page.py`, forked from a process that has started TensorFlow for all pages; so are the
steps that a page verifies."""
_SAID = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)


def program_of(page: str) -> tuple[str, list[str]]:
    """The code of a page, and what it says that it prints."""
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL
    )
    code = "\n".join(blocks)
    return code, _SAID.findall(code)


def check(page: str, folder: Path) -> None:
    code, said = program_of(page)
    assert said
    path = folder / f"{page}.py"
    path.write_text(code)
    done = run_source(_START, [str(path)], child_environment(), timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == said


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check(page, tmp_path)


@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_is_python(page: str) -> None:
    code, said = program_of(page)
    compile(code, page, "exec")
    assert len(said) == code.count("print(") - code.count('print("it ran")')
