"""The code of the guides runs, each page as a program of its own, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.child import child_environment

ROOT = Path(__file__).resolve().parents[1]
GUIDES = [
    *("out_of_memory", "batch_size", "gpu_8gib", "several_devices", "changes", "compared"),
    "command_line",
]
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
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=child_environment(TF_CPP_MIN_LOG_LEVEL="3"),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == said


@pytest.mark.slow
@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_prints_what_it_says(page: str, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.parametrize("page", GUIDES)
def test_the_code_of_a_guide_is_python(page: str) -> None:
    code, said = program_of(page)
    compile(code, page, "exec")
    assert len(said) == code.count("print(") - code.count('print("it ran")')
