"""This interpreter, started again for a module of memopt."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def command_for(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module; the current directory hides no installed packages."""
    return [sys.executable, "-P", "-m", module, *arguments]


def finding_memopt(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a process finds this package wherever this one did."""
    paths = [str(Path(__file__).resolve().parents[1]), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
