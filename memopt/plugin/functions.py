"""Functions rewritten when they are traced: for where no graph optimizer can be registered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from memopt.item import GrapplerItem
from memopt.plugin.policy import Unset, current_policy
from memopt.plugin.records import RECORDS, GraphRecord, fingerprint
from memopt.plugin.scopes import asked_for
from memopt.plugin.screening import why_not
from memopt.runtime.function import build_function

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction


def rewrite_function(function: ConcreteFunction) -> ConcreteFunction | None:
    """A function that computes the same in less memory, or `None` to leave it alone."""
    started = time.perf_counter()
    policy = current_policy()
    item = GrapplerItem.from_concrete_function(function)
    asked = None if policy is None else asked_for(item.graph_def, policy)
    if asked is None or isinstance(asked, Unset) or why_not(item.graph_def, asked):
        return None
    result = asked.optimizer().optimize(None, item)
    report = result.report
    runtime = report.runtime
    RECORDS.add(
        GraphRecord(
            fingerprint(item.graph_def),
            "function",
            "rewritten" if report.modified else "unchanged",
            "rewritten when it was traced",
            level=report.level.value,
            nodes=report.nodes_before,
            nodes_after=report.nodes_after,
            peak_before_bytes=0 if runtime is None else runtime.before.peak_bytes,
            peak_after_bytes=0 if runtime is None else runtime.after.peak_bytes,
            milliseconds=(time.perf_counter() - started) * 1000,
        )
    )
    return build_function(result.graph_def, function) if report.modified else None
