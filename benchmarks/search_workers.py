"""Long searches here and on workers: the plans of a sweep, and the sizes of a step that fits.

Plans random layered graphs within twenty budgets, and looks for the largest batch of models within
a limit: in this process, then with so many processes, then on a Ray cluster of this machine if
asked. What comes out has to be the same. Prints a table.

    python benchmarks/search_workers.py [--jobs 1 2] [--ray 2] [--layered 500 1000]
                                        [--models mlp=100MB bert=100MB] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.layered_graphs import layered_graph
from support.ray_cluster import ray_cluster

import memopt
from memopt.errors import BudgetError
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODELS_HERE = ("mlp=100MB", "bert=100MB")


def main() -> None:
    """Search, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--ray", type=int, nargs="*", default=[])
    parser.add_argument("--layered", type=int, nargs="*", default=[500, 1000])
    parser.add_argument("--models", nargs="*", default=MODELS_HERE)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    # What compiles the loops, where they never ran before, is no search's time.
    with suppress(BudgetError):
        memopt.plan(layered_graph(40, 0), 0.5)
    places = [("here", {}), *((f"{jobs} processes", {"jobs": jobs}) for jobs in arguments.jobs)]
    rows = [row for name, search in searches(arguments) for row in at(places, name, search)]
    for cpus in arguments.ray:
        with ray_cluster(cpus) as made:
            place = (f"Ray, {cpus} CPUs", {"on": made.address})
            rows += [
                row for name, search in searches(arguments) for row in at([place], name, search)
            ]
    table = Table("search", "where", "seconds", "found", title=describe_machine())
    for row in rows:
        table.add_row(row["search"], row["where"], f"{row['seconds']:.1f}", row["found"])
    Console(width=130).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


def searches(arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[..., str]]]:
    """Each search by name: it takes where it is made, and says what came out."""
    for operations in arguments.layered:
        graph = layered_graph(operations, seed=1)
        yield f"sweep of {graph.operation_count} operations", sweeping(graph)
    for text in arguments.models:
        model, _, limit = text.partition("=")
        yield f"largest batch of {model} within {limit}", fitting(model, limit)


def sweeping(graph: memopt.CostGraph) -> Callable[..., str]:
    """A sweep, whose plans are told by their digest."""

    def search(**place: Any) -> str:
        plans = [replace(plan, seconds=0.0) for plan in memopt.sweep(graph, **place)]
        mean = sum(plan.overhead for plan in plans) / len(plans)
        return f"{len(plans)} plans, {mean:.3%} on average, {hash(tuple(map(repr, plans))):x}"

    return search


def fitting(model: str, limit: str) -> Callable[..., str]:
    """A fit without real steps."""
    item = memopt.GrapplerItem.from_concrete_function(MODELS[model](batch=None).function)

    def search(**place: Any) -> str:
        found = memopt.fit(item, limit, run=False, **place)
        return f"size {found.size}, {found.overhead:.1%}, {len(found.probes)} sizes planned"

    return search


def at(
    places: list[tuple[str, dict[str, Any]]], name: str, search: Callable[..., str]
) -> Iterator[dict[str, Any]]:
    """A row for each place."""
    for where, place in places:
        begun_s = time.perf_counter()
        found = search(**place)
        row = {
            "search": name,
            "where": where,
            "seconds": time.perf_counter() - begun_s,
            "found": found,
        }
        print(json.dumps(row), file=sys.stderr, flush=True)
        yield row


if __name__ == "__main__":
    main()
