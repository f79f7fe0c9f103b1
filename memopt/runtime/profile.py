"""A step timed operation by operation in a fresh process: `memopt.profile`."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.costs.fixed import FixedCosts
from memopt.costs.kernel_costs import KernelCosts
from memopt.costs.profiled import ProfiledCosts
from memopt.display import Displayed, Overview, Table, count_text, time_text
from memopt.errors import OptionsError
from memopt.files.whole_files import write_bytes
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensorflow.core.framework.step_stats_pb2 import NodeExecStats
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.io import GraphSource
    from memopt.runtime.program import Program
    from memopt.runtime.settings import Mode

_PROFILE_WORKER = "memopt.runtime.profile_worker"
_DEVICE_TYPES = ("CPU", "GPU")


class OpTime(NamedTuple):
    """What all operations of one kind take in a step.

    Attributes:
        op: The kind.
        operations: How many there are in the graph.
        time_ns: What they take together.
    """

    op: str
    operations: int
    time_ns: int


@dataclass(frozen=True, repr=False)
class Profile(Displayed):
    """How long the operations of a step took; the median over the steps that were run.

    Attributes:
        times_ns: Nanoseconds by node.
        ops: The kinds of operations, the dearest first.
        steps: How many steps were timed.
        run_metadata: The same as TensorFlow's own message, for `ProfiledCosts`.
    """

    times_ns: Mapping[str, int]
    ops: tuple[OpTime, ...]
    steps: int
    run_metadata: RunMetadata = field(repr=False, compare=False)

    @property
    def step_ns(self) -> int:
        """What all operations take together."""
        return sum(self.times_ns.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what `--costs` reads.

        A RunMetadata message, which also tells the times of operations that are like those that
        ran, such as copies of them; a path that ends in `.json` gets a table of nanoseconds by
        node. In both, the model says what the profile does not know.

        Raises:
            FileError: The place cannot be written to.
        """
        name = os.fspath(path)
        if name.endswith(".json"):
            FixedCosts(KernelCosts(), nodes=self.times_ns).save(name)
            return
        write_bytes(name, self.run_metadata.SerializeToString(deterministic=True))

    def to_json(self) -> dict[str, Any]:
        """The times of ops as plain data."""
        return {
            "steps": self.steps,
            "operations": len(self.times_ns),
            "step_ns": self.step_ns,
            "ops": [each._asdict() for each in self.ops],
        }

    def _overview(self) -> Overview:
        outcome = (
            f"{time_text(self.step_ns)} a step, {count_text(len(self.times_ns), 'operation')}, "
            f"median of {count_text(self.steps, 'step')}"
        )
        table = Table.of(
            ("op", "operations", "time", "share"),
            self.ops,
            lambda each: (
                each.op,
                f"{each.operations:,}",
                time_text(each.time_ns),
                f"{each.time_ns / max(self.step_ns, 1):.1%}",
            ),
        )
        return Overview("Profile", outcome, (table,))


def profile(  # noqa: PLR0913 - keywords, each with a default
    graph: GraphSource | Program,
    *,
    steps: int = 5,
    mode: Mode = "exact",
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> Profile:
    """Run a few steps for real in a fresh process and tell how long each operation takes.

    One operation runs at a time, as it stands in the graph. Two steps run before those that count,
    in which what is set up once is set up.

    Args:
        graph: A ConcreteFunction, GraphDef, MetaGraphDef, path of a graph file, item or program.
        steps: How many steps count.
        mode: "exact" without oneDNN; "as-is" with the kernels that TensorFlow takes by default.
        inputs: Values of what is fed: by tensor name, or in the order of the call. What is missing
            is made up from the seed.
        variables: Values of variables by node name, instead of what a ConcreteFunction's variables
            hold now, or instead of what is made up for a file.
        seed: What made-up values and random operations without seeds draw from.
        fetch: What to run, instead of what the graph says.
        feed: What to feed, instead of what the graph says.

    Raises:
        FileError: A path holds no graph.
        InvalidGraphError: The graph cannot be run.
        OptionsError: No step is asked for, or a value is missing or does not fit.
        ExecutionError: A run failed; `OutOfMemoryError` if memory was short.
    """
    if steps < 1:
        raise OptionsError(f"{steps} steps give no profile")
    program = as_program(graph, inputs, variables, seed, fetch, feed)
    settings = Settings(mode=mode)
    with step_process(program, settings, module=_PROFILE_WORKER) as process:
        merged = merge_profiles(process.profile(steps))
    costs = ProfiledCosts([merged], program.item, KernelCosts())
    times_ns: dict[str, int] = {}
    for device_type in _DEVICE_TYPES:
        times_ns |= costs.times_ns(device_type)
    kinds = {node.name: node.op for node in program.item.graph_def.node}
    by_op: dict[str, list[int]] = defaultdict(list)
    for name, time_ns in times_ns.items():
        by_op[kinds[name]].append(time_ns)
    ops = [OpTime(op, len(times), sum(times)) for op, times in by_op.items()]
    return Profile(
        times_ns=MappingProxyType(times_ns),
        ops=tuple(sorted(ops, key=lambda each: (-each.time_ns, each.op))),
        steps=steps,
        run_metadata=merged,
    )


def merge_profiles(profiles: Sequence[RunMetadata]) -> RunMetadata:
    """One message for several steps: every entry of the first, its time the median over the steps.

    Entries are the same that are of one device, node and op; where there are several in a step, as
    in a loop, the first is that of the first turn, and so on. What tells nothing of time is left
    out.
    """
    from tensorflow.core.protobuf import config_pb2

    times_ns: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for message in profiles:
        for key, _, entry in _entries(message):
            times_ns[key].append(_duration_ns(entry))
    merged: RunMetadata = config_pb2.RunMetadata()
    devices: dict[str, Any] = {}
    for key, device, entry in _entries(profiles[0]):
        if device not in devices:
            devices[device] = merged.step_stats.dev_stats.add(device=device)
        kept = devices[device].node_stats.add(
            node_name=entry.node_name, timeline_label=entry.timeline_label
        )
        kept.op_end_rel_nanos = round(median(times_ns[key]))
        kept.op_end_rel_micros = kept.op_end_rel_nanos // 1000
        kept.all_end_rel_nanos = kept.op_end_rel_nanos
        kept.all_end_rel_micros = kept.op_end_rel_micros
        kept.all_start_micros = entry.all_start_micros
        kept.all_start_nanos = entry.all_start_nanos
    return merged


def _entries(message: RunMetadata) -> Iterator[tuple[tuple[str, ...], str, NodeExecStats]]:
    """Every entry with its device and with what it is known by from step to step."""
    seen: dict[tuple[str, ...], int] = defaultdict(int)
    for device in message.step_stats.dev_stats:
        for entry in device.node_stats:
            # Behind "#" stands what differs from step to step.
            name = entry.node_name.partition("#")[0]
            key = (device.device, name, entry.timeline_label)
            seen[key] += 1
            yield (*key, str(seen[key])), device.device, entry


def _duration_ns(entry: NodeExecStats) -> int:
    if entry.op_end_rel_nanos:
        return max(int(entry.op_end_rel_nanos - entry.op_start_rel_nanos), 1)
    return max(int(entry.op_end_rel_micros - entry.op_start_rel_micros) * 1000, 1)
