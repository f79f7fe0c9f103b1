"""Compares rule and measurement over the kernels of every kind of Keras layer and of its gradient.

Each layer, loss and optimizer becomes a small training step; every distinct kernel of these steps
is run alone under the allocator's record (`memopt.profile_kernels`), and what it does with memory
is put beside what memopt's rules say. Prints a table by op, each exception in words, and writes
both if asked:

    python benchmarks/layer_kernels.py [--only NAME ...] [--mode exact|as-is] [--json FILE]
        [--markdown FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from layer_steps import STEPS
from machine import describe_machine
from rich.console import Console
from rich.table import Table

from memopt.buffers.kernel_call import Runtime
from memopt.graph.kernels import runs_onednn
from memopt.io import as_item
from memopt.kernels.choice import Profiled, surveyed
from memopt.kernels.measure import measure
from memopt.kernels.profile import kernel_profile
from memopt.kernels.table import Environment, KernelTable, load_or_empty
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from memopt.kernels.profile import KernelDifference
    from memopt.kernels.survey import Survey, SurveyedKernel


@dataclass
class OpRow:
    """The kernels of an op.

    Attributes:
        op: The op.
        kernels: How many distinct kernels of it were measured.
        unknown: How many of them no rule knows.
        differences: Those that do something else with memory than the rules say.
    """

    op: str
    kernels: int = 0
    unknown: int = 0
    differences: list[KernelDifference] = field(default_factory=list)

    @property
    def exact(self) -> int:
        """How many do what the rules say."""
        return self.kernels - len(self.differences)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", nargs="*", default=list(STEPS))
    parser.add_argument("--mode", choices=["exact", "as-is"], default="exact")
    parser.add_argument("--table", default="", help="a file of measured kernels to use and fill")
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--markdown", help="where to write the table")
    arguments = parser.parse_args()
    rows, failed = compare(arguments.only, arguments.mode, arguments.table)
    show(rows)
    for line in sorted(failed):
        print(line)
    if arguments.json:
        result = {
            "machine": describe_machine(),
            "mode": arguments.mode,
            "ops": [asdict(row) for row in rows],
            "not_measured": sorted(failed),
        }
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.markdown:
        text = "\n".join(markdown(rows)) + "\n"
        Path(arguments.markdown).write_text(text, encoding="utf-8")


def compare(names: Iterable[str], mode: str, path: str) -> tuple[list[OpRow], set[str]]:
    """Rule and measurement, by op, and what could not be measured."""
    runtime = Runtime(onednn=mode == "as-is" and runs_onednn())
    environment = Environment.of(runtime)
    notes = {name: survey_of(name, runtime) for name in names}
    kernels = {key: kernel for each in notes.values() for key, kernel in each.kernels.items()}
    table = load_or_empty(path) if path else KernelTable()
    known = table.in_environment(environment)
    missing = {key: kernel for key, kernel in kernels.items() if key not in known}
    print(f"{len(kernels)} kernels, {len(missing)} to be measured", flush=True)
    table = table.with_kernels(environment, measure(missing, environment))
    if path:
        table.save(path)
    rows: dict[str, OpRow] = {}
    failed: set[str] = set()
    for name, each in notes.items():
        profile = kernel_profile(Profiled(each, table, environment, ()), path)
        failed |= {
            f"not measured: {kernel.kernel}: {kernel.reason} ({name})" for kernel in profile.failed
        }
        differences = {difference.kernel: difference for difference in profile.differences}
        for key, kernel in each.kernels.items():
            if key in kernels and table.in_environment(environment)[key].memory is not None:
                add(rows, kernel, differences.get(str(kernel.signature)))
                del kernels[key]
    return sorted(rows.values(), key=lambda row: row.op), failed


def survey_of(name: str, runtime: Runtime) -> Survey:
    """The kernels of a step."""
    item = as_item(STEPS[name]())
    return surveyed(item, runtime, Properties.of(item))


def add(
    rows: dict[str, OpRow], kernel: SurveyedKernel, difference: KernelDifference | None
) -> None:
    """Count a kernel."""
    row = rows.setdefault(kernel.signature.op, OpRow(kernel.signature.op))
    row.kernels += 1
    row.unknown += not kernel.is_known
    if difference is not None:
        row.differences.append(difference)


def show(rows: Sequence[OpRow]) -> None:
    """A table by op, and each exception."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("op", "kernels", "as the rules say", "no rule"):
        table.add_column(column, justify="left" if column == "op" else "right")
    for row in rows:
        table.add_row(row.op, str(row.kernels), str(row.exact), str(row.unknown or ""))
    kernels, exact = sum(row.kernels for row in rows), sum(row.exact for row in rows)
    table.add_row("all", str(kernels), f"{exact} ({exact / max(kernels, 1):.1%})", "")
    Console(width=110).print(table)
    for row in rows:
        for each in row.differences:
            print(f"{each.kernel}: {each.measured}; by the rules {each.rule}")


def markdown(rows: Sequence[OpRow]) -> Iterator[str]:
    """The table for the docs: an op a line."""
    yield "| op | kernels | as the rules say |"
    yield "|---|---:|---:|"
    for row in rows:
        yield f"| {row.op} | {row.kernels} | {row.exact} |"


if __name__ == "__main__":
    main()
