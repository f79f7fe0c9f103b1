"""Each model's file is a program, which memopt can run as well."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.child import child_environment
from support.zygote import run_source

from memopt.models import MODELS, SESSION_MODELS, TINY

FOLDER = Path(__file__).resolve().parents[2] / "models"
AS_SCRIPT = (
    "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], None, '__main__')"
)
_LOSS = re.compile(r"^step \d+: loss (\S+), \d+ ms$", re.MULTILINE)
TWO_STEPS = "--train-steps=2"


def sizes_of(name: str) -> list[str]:
    return [f"--{size.replace('_', '-')}={value}" for size, value in TINY[name].items()]


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("mlp", "convnet_v1") else pytest.param(name, marks=pytest.mark.slow)
        for name in (*MODELS, *SESSION_MODELS)
    ],
)
def test_a_model_is_a_program(name: str) -> None:
    arguments = [str(FOLDER / f"{name}.py"), *sizes_of(name), TWO_STEPS]
    done = run_source(AS_SCRIPT, arguments, child_environment(), timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(f"{name}: batch {TINY[name]['batch']}, ")
    assert len(set(_LOSS.findall(done.stdout))) == 2


@pytest.mark.slow
def test_a_program_is_rewritten_and_trains_the_same() -> None:
    arguments = [str(FOLDER / "mlp.py"), *sizes_of("mlp"), "--layers=12", TWO_STEPS]
    plain = run_source(AS_SCRIPT, arguments, child_environment(), timeout=300)
    rewritten = subprocess.run(
        [sys.executable, "-m", "memopt", "run", *arguments],
        env=child_environment(MEMOPT_FLAGS="--budget=60%"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert _LOSS.findall(plain.stdout) == _LOSS.findall(rewritten.stdout) != []
    assert "1 graphs rewritten" in rewritten.stderr


def test_the_readme_lists_every_file() -> None:
    listed = set(re.findall(r"`(\w+\.py)`", (FOLDER / "README.md").read_text()))
    assert listed == {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"}
