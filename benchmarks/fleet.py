"""Fleets: throughput against workers, what a task costs beside its work, here and on Ray.

Saves small training steps and rewrites each within many budgets: first in this process, one after
another; then by fleets of one and more workers. What a worker takes for a task more than this
process, once it runs, and what the driver's processor does for each, is the overhead of a task.
Prints a table.

    python benchmarks/fleet.py [--tasks 48] [--workers 1 2] [--ray 1 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.ray_cluster import ray_cluster

import memopt
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

LAYERS = (4, 6, 8, 10)
COLUMNS = (
    *("where", "workers", "seconds", "first done", "tasks/s then", "ms/task/worker"),
    "driver: CPU ms/task",
)


def save_steps(folder: Path) -> list[Path]:
    """Write small training steps; their paths."""
    paths = []
    for layers in LAYERS:
        path = folder / f"step{layers}.pb"
        memopt.save(MODELS["mlp"](batch=256, width=64, layers=layers).function, path)
        paths.append(path)
    return paths


def work_seconds(paths: Sequence[Path], budgets: Sequence[str], algorithm: str) -> float:
    """What a task takes in this process, once everything is loaded, on average."""
    for path in paths:
        rewrite(path, "90%", algorithm)
    begun = time.perf_counter()
    for path in paths:
        for budget in budgets:
            rewrite(path, budget, algorithm)
    return (time.perf_counter() - begun) / (len(paths) * len(budgets))


def rewrite(path: Path, budget: str, algorithm: str) -> None:
    """Rewrite one step, if the budget can be kept."""
    try:
        memopt.optimize(path, budget=budget, algorithm=algorithm)
    except memopt.BudgetError:
        return


def run_fleet(
    paths: Sequence[Path], budgets: Sequence[str], algorithm: str, jobs: int, on: str | None
) -> dict[str, Any]:
    """One fleet into a new folder: when its first and its last task were done."""
    moments: list[float] = []
    cpu: list[float] = []

    def note(_: str) -> None:
        moments.append(time.perf_counter() - begun)
        cpu.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        report = memopt.fleet(
            paths,
            Path(folder, "out"),
            budgets=budgets,
            algorithm=algorithm,
            jobs=jobs,
            on=on,
            progress=note,
        )
        again = time.perf_counter()
        options = {"budgets": budgets, "algorithm": algorithm, "jobs": 1}
        memopt.fleet(paths, Path(folder, "out"), **options)  # type: ignore[arg-type]  # by name
        resumed = time.perf_counter() - again
    # Every worker has begun by then.
    steady = moments[2 * jobs :]
    row = {
        "where": "Ray" if on else "here",
        "workers": jobs,
        "tasks": len(report.tasks),
        "seconds": moments[-1],
        "first_s": moments[0],
        "rate_per_s": (len(steady) - 1) / (steady[-1] - steady[0]),
        "driver_s": (cpu[-1] - cpu[2 * jobs]) / (len(steady) - 1),
        "resumed_s": resumed,
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--ray", type=int, nargs="*", default=[])
    parser.add_argument("--algorithm", default="standard")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        paths = save_steps(Path(folder))
        count = max(2, arguments.tasks // len(paths))
        budgets = [f"{55 + 45 * number / count:.2f}%" for number in range(count)]
        work_s = work_seconds(paths, budgets, arguments.algorithm)
        rows = [
            run_fleet(paths, budgets, arguments.algorithm, jobs, None) for jobs in arguments.workers
        ]
        rows += [_on_ray(paths, budgets, arguments.algorithm, jobs) for jobs in arguments.ray]
    table = Table(*COLUMNS, title=f"{describe_machine()}; {1000 * work_s:.1f} ms of work a task")
    for row in rows:
        task_s = row["workers"] / row["rate_per_s"]
        table.add_row(
            row["where"],
            str(row["workers"]),
            f"{row['seconds']:.1f}",
            f"{row['first_s']:.1f}",
            f"{row['rate_per_s']:.2f}",
            f"{1000 * task_s:.0f}",
            f"{1000 * row['driver_s']:.1f}",
        )
    console.print(table)
    for row in rows:
        console.print(
            f"{row['where']}, {row['workers']}: {row['tasks']} tasks are found to "
            f"be done in {row['resumed_s']:.2f} s"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps({"work_s": work_s, "fleets": rows}, indent=1))


def _on_ray(
    paths: Sequence[Path], budgets: Sequence[str], algorithm: str, jobs: int
) -> dict[str, Any]:
    """The same on a Ray cluster of this machine, with one CPU for each worker."""
    with ray_cluster(jobs) as cluster:
        return run_fleet(paths, budgets, algorithm, jobs, cluster.address)


if __name__ == "__main__":
    main()
