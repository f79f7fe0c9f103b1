"""A sweep whose plans are made by other processes, on this machine or a cluster."""

from __future__ import annotations

import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.errors import MemoptError
from memopt.planning.plan import Plan
from memopt.workers.executor import Job, give_out
from memopt.workers.inputs import input_at
from memopt.workers.places import open_executor
from memopt.workers.plan_order import PlanOrder
from memopt.workers.surroundings import process_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.planning.sweep import Sweep
    from memopt.workers.executor import Executor
    from memopt.workers.inputs import Input
    from memopt.workers.places import Places

_GRAPH_FILE = "cost_graph.json"


def plan_on(places: Places, sweep: Sweep, limits: Sequence[int]) -> Iterator[Plan]:
    """A plan for each budget, the same that this process would make, as they are done.

    Args:
        places: Where they are made.
        sweep: The sweep.
        limits: Its budgets in bytes.

    Raises:
        OptionsError: Ray is needed and not installed.
        MemoptError: There is no Ray cluster, or a process has failed; the message says for which
            budget.
    """
    with (
        TemporaryDirectory(prefix="memopt-sweep-") as folder,
        open_executor(places, process_variables()) as executor,
    ):
        path = Path(folder, _GRAPH_FILE)
        path.write_text(json.dumps(sweep.graph.to_json()), encoding="utf-8")
        jobs = _jobs(executor, input_at(path), sweep, limits)
        for finished in give_out(executor, jobs):
            if "failed" in finished.answer:
                order = finished.job.order
                assert isinstance(order, PlanOrder)
                reason = finished.answer["failed"]["reason"]
                raise MemoptError(f"no plan for {order.budget_bytes:,} bytes: {reason}")
            yield Plan.from_json(finished.answer["done"])


def _jobs(executor: Executor, source: Input, sweep: Sweep, limits: Sequence[int]) -> Iterator[Job]:
    """A job for each budget; where there is a time limit, each gets its share of what is left."""
    lowest, swapped = (tuple(part.tolist()) for part in sweep.lowest)
    for number, budget_bytes in enumerate(limits):
        if number and sweep.left_s <= 0:
            return
        turns = math.ceil((len(limits) - number) / max(executor.width, 1))
        most_s = None if math.isinf(sweep.left_s) else max(sweep.left_s / turns, 0.0)
        order = PlanOrder(
            str(source.path),
            budget_bytes,
            sweep.seed,
            sweep.exact,
            most_s,
            lowest,
            swapped,
        )
        yield Job(source, order)
