"""A process's life: imports, a fork, and an end while threads still trace."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any


def main() -> dict[str, Any]:
    """What held in each part of it."""
    import memopt

    is_light = "tensorflow" not in sys.modules
    child = os.fork()
    if child == 0:
        # TensorFlow has not started yet, so a child can use it like any process.
        os._exit(_train(memopt) != ["rewritten"])
    _, status = os.waitpid(child, 0)
    here = _train(memopt)
    # Not a daemon: where one is in TensorFlow at the end, the process dies with memopt or without.
    threading.Thread(target=_go_on).start()
    return {"light": is_light, "child": os.waitstatus_to_exitcode(status), "here": here}


def _train(memopt: Any) -> list[str]:
    from support.programs.steps import KINDS

    memopt.enable(only_lower=False)
    KINDS["function"]()
    return [r.outcome for r in memopt.last_reports() if r.outcome != "passed over"]


def _go_on() -> None:
    from support.programs.steps import KINDS

    for _ in range(3):
        KINDS["function"]()
