"""Measures what swapping saves: in the simulation beside TensorFlow's own pass, and for real.

Simulated: dense chains and residual blocks on a described GPU, with TensorFlow's result (its mean
over several processes' calls; it differs from call to call), memopt's port of it and the improved
way. "host charged" counts copies on the host to the host, as they are; "as Grappler" is its own
count, which leaves them to the GPU.

For real: steps on this machine, copies made by SerializeTensor, which takes the bytes out of
TensorFlow's allocator; as TensorFlow runs them, and held to the simulated order by control edges.
Prints tables, and writes JSON if asked:

    python benchmarks/swapping_peaks.py [--json FILE] [--part P] [--skip-real]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.native_simulation import GPU, cpu, gpu
from support.swapping import (
    GRAPHS,
    Case,
    chain,
    copied_bytes,
    host_peak_bytes,
    in_simulated_order,
    prepare,
    swap_natively,
)

from memopt.analysis import analyze
from memopt.api import optimize
from memopt.cluster import Device
from memopt.item import GrapplerItem
from memopt.models import MODELS
from memopt.passes import Swapping
from memopt.runtime.entry import verify
from memopt.swapping.timeline import DeviceTimeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.cluster import Device as AnyDevice

NATIVE_CALLS = 6
_MEGABYTES_FROM = 10_000
PARTS = (0.95, 0.9, 0.8, 0.7)
UNCHANGED = Swapping(heuristics=False)
VARIANTS = {
    "memopt": Swapping(),
    "improved, identity": Swapping(improved=True, ops="identity"),
    "improved, copy": Swapping(improved=True),
}
CPU = Device.parse("CPU:0=CPU")
BERT_SIZES = {"batch": 16, "tokens": 32, "width": 64, "layers": 2, "heads": 2, "vocabulary": 50}
REAL = {
    "as Grappler": Swapping(ops="serialize", device_type="CPU"),
    "improved": Swapping(ops="serialize", device_type="CPU", improved=True),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--part", type=float, default=0.5, help="of the peak, for the real steps")
    parser.add_argument("--skip-real", action="store_true")
    arguments = parser.parse_args()
    simulated = [row for name in GRAPHS for row in simulate(name)]
    print_table("Simulated, in MB", simulated)
    real: list[dict[str, Any]] = []
    if not arguments.skip_real:
        for name, item in items():
            real.extend(run_for_real(name, item, arguments.part))
            print(f"{name} done", file=sys.stderr)
        print_table(f"For real, into {arguments.part:.0%} of the simulated peak, in MB", real)
    if arguments.json:
        result = {"machine": describe_machine(), "simulated": simulated, "real": real}
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")


def simulate(name: str) -> Iterator[dict[str, Any]]:
    """A graph with several limits, by every way to swap."""
    graph_def = GRAPHS[name]()
    whole = measure(UNCHANGED, graph_def, (gpu(), cpu()))
    for part in PARTS:
        limit_bytes = int(whole["host charged"] * part)
        devices = (gpu(0, limit_bytes), cpu())
        head = {"graph": name, "before": whole["host charged"], "limit": limit_bytes}
        natives = [
            measure(UNCHANGED, native.graph_def, devices)
            for native in swap_natively([Case(graph_def, ("train",), devices)] * NATIVE_CALLS)
        ]
        mean = {key: statistics.fmean(native[key] for native in natives) for key in natives[0]}
        rows = {"native": mean} | {
            variant: measure(pass_, graph_def, devices) for variant, pass_ in VARIANTS.items()
        }
        for variant, row in rows.items():
            time = row.pop("duration_ns") / whole["duration_ns"]
            yield {**head, "by": variant, **row, "time": time}


def measure(
    pass_: Swapping, graph_def: GraphDef, devices: tuple[AnyDevice, ...]
) -> dict[str, float]:
    """Peaks, copies and duration of a graph after a pass."""
    swapped = prepare(Case(graph_def, ("train",), devices))
    pass_.run(swapped.rewriter, swapped.context)
    simulation = swapped.simulated.simulation()
    return {
        "host charged": DeviceTimeline(swapped.graph, simulation, GPU).peak_bytes,
        "as Grappler": swapped.simulated.peak_bytes()[GPU],
        "copies out": sum(node.name.startswith("swap_out_") for node in swapped.graph),
        "duration_ns": max(simulation.ends_ns),
    }


def items() -> Iterator[tuple[str, GrapplerItem]]:
    """The steps that are run for real."""
    yield "mlp", GrapplerItem.from_concrete_function(MODELS["mlp"]().function)
    yield "bert", GrapplerItem.from_concrete_function(MODELS["bert"](**BERT_SIZES).function)
    graph_def = chain(12, 256, 1024)
    for node in graph_def.node:
        node.device = ""
    yield "chain, v1", GrapplerItem(graph_def, feed=("x:0",), fetch=("train",))


def run_for_real(name: str, item: GrapplerItem, part: float) -> Iterator[dict[str, Any]]:
    """A step before and after each way to swap, free and held to an order."""
    (peak_bytes,) = analyze(item, devices=[CPU]).peak_bytes.values()
    device = replace(CPU, memory_bytes=int(peak_bytes * part))
    for variant, pass_ in REAL.items():
        result = optimize(
            item, level="swapping_heuristics", devices=[device], pass_options=[str(pass_)]
        )
        sizes = copied_bytes(result.graph_def, item)
        after = replace(item, graph_def=result.graph_def)
        ordered = replace(item, graph_def=in_simulated_order(item, CPU))
        for order, one, other in (
            ("free", item, after.graph_def),
            ("held", ordered, in_simulated_order(after, CPU)),
        ):
            verification = verify(one, other, timing_rounds=3, steps=2)
            yield {
                "step": name,
                "by": variant,
                "order": order,
                "equal": verification.equal,
                "copies": len(sizes),
                "before": verification.original.peak_bytes,
                "device": verification.rewritten.peak_bytes,
                "host": host_peak_bytes(verification.rewritten, sizes),
                "time": verification.time_ratio,
            }


def print_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Bytes as megabytes, ratios with two decimals."""
    table = Table(title=title)
    for key in rows[0]:
        table.add_column(key, justify="left" if isinstance(rows[0][key], str) else "right")
    for row in rows:
        table.add_row(*(cell(value) for value in row.values()))
    Console(width=120).print(table)


def cell(value: Any) -> str:
    """One value as text: what is large is bytes, what is fractional a ratio or a mean."""
    if isinstance(value, (str, bool)):
        return str(value)
    if value >= _MEGABYTES_FROM:
        return f"{value / 1e6:.1f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
