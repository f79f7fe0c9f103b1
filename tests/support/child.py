"""A program of `support.programs` in a process of its own: memopt is registered once in each."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.zygote import run_source, run_started

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no compiler")


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment, with this memopt, these tests and a quiet TensorFlow."""
    environment = {key: value for key, value in os.environ.items() if key != "MEMOPT_FLAGS"}
    paths = [str(ROOT), str(ROOT / "tests"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment |= {
        # As steps in processes of their own have it, so that one zygote serves both.
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "ABSL_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    return environment | more


def run_child(program: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What a function of `support.programs` returns, called in a process of its own.

    It is forked from one that has started TensorFlow, which is faster by some seconds.
    """
    return _run(run_source, program, arguments, environment)


def start_child(program: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """The same in a process that is started for real."""
    return _run(run_started, program, arguments, environment)


def _run(
    run: Callable[..., subprocess.CompletedProcess[str]],
    program: str,
    arguments: Sequence[str],
    environment: dict[str, str],
) -> dict[str, Any]:
    code = (
        "import json, sys\n"
        f"from support.programs.{program} import main\n"
        "result = main(*sys.argv[1:])\n"
        "print('RESULT' + json.dumps(result))\n"
    )
    done = run(code, arguments, child_environment(**environment), timeout=600)
    assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stderr[-6000:]}"
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT"))
    return result
