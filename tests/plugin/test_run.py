"""`python -m memopt run`: programs that know nothing of memopt."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.child import child_environment

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import os, sys
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import helper
import __main__
from support.programs.steps import function
assert __name__ == "__main__" and __main__.helper is helper
print("RESULT", sys.argv, __file__, function())
sys.exit(int(sys.argv[2]))
"""


def python(folder: Path, *arguments: str, flags: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=child_environment(MEMOPT_FLAGS=flags),
        capture_output=True,
        text=True,
        check=False,
    )


def result(done: subprocess.CompletedProcess[str]) -> str:
    return next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))


@pytest.mark.slow
def test_a_program_runs_as_python_runs_it(tmp_path: Path) -> None:
    folder, reports = tmp_path / "programs", tmp_path / "reports"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "helper.py").write_text("")
    program = ("programs/train.py", "--level", "3")
    plain = python(tmp_path, *program)
    flags = f"--level=ordered --only_lower=false --report_dir={reports}"
    rewritten = python(tmp_path, "-m", "memopt", "run", *program, flags=flags)
    assert plain.returncode == rewritten.returncode == 3
    assert result(plain) == result(rewritten)
    assert "memopt: 1 graphs rewritten" in rewritten.stderr
    (report,) = reports.iterdir()
    assert json.loads(report.read_text())["report"]["level"] == "ordered"


def test_an_error_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import memopt\nraise memopt.OptionsError('mine')\n")
    done = python(tmp_path, "-m", "memopt", "run", "train.py")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "mine" in done.stderr


def test_a_module_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('RESULT', __name__, sys.argv[1:])\n")
    done = python(tmp_path, "-m", "memopt", "run", "-m", "train", "--x")
    assert result(done) == "RESULT __main__ ['--x']"


@pytest.mark.slow
def test_a_budget_comes_before_that_of_the_environment(tmp_path: Path) -> None:
    program = "import memopt, tensorflow\nprint('RESULT', memopt.plugin_status().policy.budget)\n"
    (tmp_path / "train.py").write_text(program)
    flags = "--budget=60%"
    done = python(tmp_path, "-m", "memopt", "run", "--budget", "device", "train.py", flags=flags)
    assert result(done) == "RESULT device"
    done = python(tmp_path, "-m", "memopt", "run", "--budget", "all", "train.py")
    assert done.returncode == 2
    assert "is no budget, such as 6GiB, 60%, device or GPU:0=6GiB,GPU:1=8GiB" in done.stderr


def test_what_cannot_be_is_told_before_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')\n")
    for arguments, flags, message in (
        (["none.py"], "", "memopt: none.py: there is no such file\n"),
        (["train.py"], "--min_nodes=few", "memopt: MEMOPT_FLAGS: "),
        (["train.py"], "--dump_dot=x.dot", "memopt: --dump_dot has no effect"),
        (["train.py"], "--only=some", "memopt: only is 'training' or 'all', not 'some'\n"),
    ):
        done = python(tmp_path, "-m", "memopt", "run", *arguments, flags=flags)
        assert done.returncode == 1
        assert done.stderr.startswith(message)
        assert done.stdout == ""
