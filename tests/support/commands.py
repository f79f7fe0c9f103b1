"""The command line as a user calls it, in this process or in one of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from memopt.cli import main


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    output: str
    errors: str


def run(*arguments: object) -> Ended:
    """Run the command in this process, which has started TensorFlow already."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Ended(result.exit_code, result.stdout, result.stderr)


def run_installed(*arguments: object) -> Ended:
    """Run the installed command in a process of its own, with pipes for a terminal."""
    command = shutil.which("memopt", path=str(Path(sys.executable).parent))
    assert command is not None
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("TF_CPP_MIN_LOG_LEVEL", "ABSL_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS")
    }
    done = subprocess.run(
        [command, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def assert_one_line(ended: Ended, message: str = "") -> None:
    assert ended.status == 1
    assert ended.errors.startswith("memopt: ")
    assert ended.errors.count("\n") == 1
    assert ended.errors.endswith("\n")
    assert re.search(message, ended.errors)
    assert ended.output == ""
