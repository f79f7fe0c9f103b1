"""Trains without memopt and with it, and checks that nothing but the memory differs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import memopt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def train_pairs(trainings: Mapping[str, Callable[[], str]], **options: Any) -> dict[str, Any]:
    """For each training: what came of it without and with memopt, and the records."""
    import tensorflow as tf

    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(1)
    found: dict[str, Any] = {}
    for name, train in trainings.items():
        memopt.disable()
        without = train()
        memopt.enable(**options)
        seen = len(memopt.last_reports())
        found[name] = {
            "without": without,
            "with": train(),
            "records": [asdict(record) for record in memopt.last_reports()[seen:]],
        }
    return found


def rewritten_kinds(name: str, trained: Mapping[str, Any]) -> list[str]:
    """What was rewritten of a pair, "function" or "session", once it is checked."""
    assert trained["with"] == trained["without"], name
    records = trained["records"]
    assert [record["error"] for record in records if record["error"]] == [], name
    return [record["kind"] for record in records if record["outcome"] == "rewritten"]
