"""A step's kernels, each run alone in a fresh process: `memopt.profile_kernels`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.buffers.kernel_call import Runtime
from memopt.display import Displayed, Overview, Table, bytes_text, count_text
from memopt.graph.kernels import runs_onednn
from memopt.io import as_item
from memopt.kernels.choice import profiled
from memopt.kernels.table import default_table
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from memopt.buffers.kernel_call import KernelMemory
    from memopt.io import GraphSource
    from memopt.kernels.choice import Profiled
    from memopt.kernels.survey import NotAlone
    from memopt.runtime.settings import Mode


class KernelDifference(NamedTuple):
    """A kernel that does something else with memory than the rules say.

    Attributes:
        kernel: The kernel in words.
        node: The name of a node that runs it.
        nodes: How many do.
        rule: What the rules say.
        measured: What was measured.
        rule_scratch_bytes: Scratch memory by the rules.
        measured_scratch_bytes: As measured.
    """

    kernel: str
    node: str
    nodes: int
    rule: str
    measured: str
    rule_scratch_bytes: int
    measured_scratch_bytes: int

    def __str__(self) -> str:
        return f"{self.kernel}, as in {self.node}: {self.measured}; by the rules {self.rule}"


class FailedKernel(NamedTuple):
    """A kernel that could not be run alone.

    Attributes:
        kernel: The kernel, or its op, in words.
        node: The name of a node that runs it.
        nodes: How many do.
        reason: Why it could not be run.
    """

    kernel: str
    node: str
    nodes: int
    reason: str


@dataclass(frozen=True, repr=False)
class KernelProfile(Displayed):
    """The kernels of a step as measured, beside what the rules say.

    Attributes:
        path: The file that holds what was measured.
        environment: What it holds for, in words.
        kernels: How many distinct kernels the step runs that can be run alone.
        new: How many of them were measured now; the others had been before.
        differences: Those that do something else than the rules say, the largest first.
        failed: Those that could not be run, for which the rules count.
    """

    path: str
    environment: str
    kernels: int
    new: int
    differences: tuple[KernelDifference, ...]
    failed: tuple[FailedKernel, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "path": self.path,
            "environment": self.environment,
            "kernels": self.kernels,
            "new": self.new,
            "differences": [each._asdict() for each in self.differences],
            "failed": [each._asdict() for each in self.failed],
        }

    def _overview(self) -> Overview:
        outcome = (
            f"{count_text(self.kernels, 'kernel')}, {self.new} measured now, "
            f"{len(self.differences)} not as the rules say; {self.environment}"
        )
        table = Table.of(
            ("kernel", "nodes", "measured", "by the rules"),
            self.differences,
            lambda each: (each.kernel, f"{each.nodes:,}", each.measured, each.rule),
        )
        remarks = tuple(
            f"not run alone: {each.kernel} ({count_text(each.nodes, 'node')}): {each.reason}"
            for each in self.failed
        )
        return Overview("KernelProfile", outcome, (table,), remarks)


def profile_kernels(
    graph: GraphSource,
    *,
    path: str | os.PathLike[str] | None = None,
    mode: Mode = "exact",
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> KernelProfile:
    """Run each distinct kernel of a step alone and keep what it does with memory and how long.

    A kernel is an op with its attributes, types and shapes, a device, and TensorFlow's settings. It
    runs in a fresh process under the allocator's own record, on values made up here, never with
    an effect. What is measured serves all later predictions with `kernels="measured"`.

    Args:
        graph: A ConcreteFunction, GraphDef, MetaGraphDef, path of a graph file, or GrapplerItem.
        path: The file that keeps it, which can be shared; in the cache folder if not given.
        mode: "exact" for kernels without oneDNN, as `optimize` predicts; "as-is" for those that
            this process runs by default.
        fetch: Tensors and operations that the caller asks for; found out if not given.
        feed: Tensors that the caller gives; found out if not given.
        progress: Is told how many of how many kernels are measured.

    Raises:
        FileError: A path holds no graph, or no measurements.
        InvalidGraphError: The graph breaks a rule, or TensorFlow refuses it.
        ExecutionError: No process with TensorFlow starts.
    """
    item = as_item(graph, fetch, feed)
    runtime = Runtime(onednn=mode == "as-is" and runs_onednn())
    name = os.fspath(path) if path is not None else str(default_table())
    return kernel_profile(profiled(item, runtime, Properties.of(item), name, progress), name)


def kernel_profile(found: Profiled, path: str) -> KernelProfile:
    """What was found out about a step's kernels, for people."""
    measured = found.table.in_environment(found.environment)
    differences = sorted(_differences(found), key=_by_size)
    failed = [
        FailedKernel(measured[key].kernel, kernel.node, kernel.nodes, measured[key].failure)
        for key, kernel in found.survey.kernels.items()
        if key in measured and measured[key].memory is None
    ]
    failed += map(_not_alone, found.survey.not_alone.values())
    return KernelProfile(
        path,
        str(found.environment),
        len(found.survey.kernels),
        len(found.new),
        tuple(differences),
        tuple(failed),
    )


def _differences(found: Profiled) -> Iterator[KernelDifference]:
    measured = found.table.in_environment(found.environment)
    for key, kernel in found.survey.kernels.items():
        memory = measured[key].memory if key in measured else None
        slots = kernel.case.slots
        if memory is None or _comparable(memory, slots) == _comparable(kernel.by_rule, slots):
            continue
        yield KernelDifference(
            str(kernel.signature),
            kernel.node,
            kernel.nodes,
            _words(kernel.by_rule),
            _words(memory),
            _scratch_bytes(kernel.by_rule),
            _scratch_bytes(memory),
        )


def _by_size(difference: KernelDifference) -> tuple[int, str]:
    return -abs(
        difference.measured_scratch_bytes - difference.rule_scratch_bytes
    ), difference.kernel


def _comparable(memory: KernelMemory, slots: Container[int]) -> tuple[object, ...]:
    """What of a kernel's memory counts for a peak; only these inputs can be taken over."""
    placements = [
        (each.alias, [slot for slot in each.reuses if slot in slots]) for each in memory.placements
    ]
    taken = sorted((size, tuple(slots)) for size, slots in memory.scratch_buffers if slots)
    return placements, taken, _scratch_bytes(memory)


def _scratch_bytes(memory: KernelMemory) -> int:
    return memory.scratch_bytes + sum(size for size, _ in memory.scratch_buffers)


def _words(memory: KernelMemory) -> str:
    """What a kernel does with memory, in words."""
    said = []
    for port, placement in enumerate(memory.placements):
        if placement.alias >= 0:
            said.append(f"output {port} shares input {placement.alias}")
        elif placement.reuses:
            slots = " or ".join(map(str, placement.reuses))
            said.append(f"output {port} takes over input {slots}")
    scratch_bytes = _scratch_bytes(memory)
    if scratch_bytes:
        said.append(f"{bytes_text(scratch_bytes)} of scratch memory")
    return ", ".join(said) or "outputs alone"


def _not_alone(kernel: NotAlone) -> FailedKernel:
    return FailedKernel(kernel.op, kernel.node, kernel.nodes, kernel.reason)
