"""Trains steps of all kinds with and without memopt, and tells what was done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import memopt
from support.programs.steps import KINDS


def main(*options: str) -> dict[str, Any]:
    """For each kind: what came of it without and with memopt, and the records."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    given = dict(option.split("=") for option in options)
    found: dict[str, Any] = {}
    for name, train in KINDS.items():
        memopt.disable()
        without = train()
        memopt.enable(**given)
        seen = len(memopt.last_reports())
        found[name] = {
            "without": without,
            "with": train(),
            "records": [asdict(record) for record in memopt.last_reports()[seen:]],
        }
    return found
