"""What compiled loops do beside the same loops in Python: in a process each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def assert_same_without_compiler(program: str, *folders: Path) -> None:
    """What a program prints is the same, but for whether loops are compiled.

    Args:
        program: What is run; it may import `IS_COMPILED`, and `support`.
        folders: Where it finds more to import.
    """
    paths = [str(folder) for folder in (TESTS, *folders)]
    source = f"import sys\nsys.path[:0] = {paths!r}\n{program}"
    compiled, pure = _run(source), _run(source, NUMBA_DISABLE_JIT="1")
    assert compiled.split(maxsplit=1)[0] == "True"
    assert pure.split(maxsplit=1)[0] == "False"
    assert compiled.split(maxsplit=1)[1] == pure.split(maxsplit=1)[1]


def _run(source: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
