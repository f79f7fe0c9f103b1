"""Random programs that once failed, and a sample of new ones: see `make fuzz`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((Path(__file__).parent / "cases").glob("programs_*.json"))


def fuzz(*arguments: str) -> str:
    """What the program prints; it fails if a program or a file does."""
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_programs_that_failed_do_not_fail_again() -> None:
    assert CASES
    told = fuzz("--replay", *map(str, CASES), "--jobs", "1")
    assert told.endswith("; 0 failed\n")


@pytest.mark.slow
def test_a_sample_of_programs(tmp_path: Path) -> None:
    told = fuzz("--programs", "5", "--seed", "1000", "--jobs", "1", "--cases", str(tmp_path))
    assert "5 programs in " in told


@pytest.mark.slow
def test_a_sample_of_damaged_files(tmp_path: Path) -> None:
    told = fuzz("--programs", "0", "--files", "30", "--jobs", "1", "--cases", str(tmp_path))
    assert "30 files in " in told
