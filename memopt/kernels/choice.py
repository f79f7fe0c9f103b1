"""Which kernels' memory and times a step is predicted with: rules, or what was measured."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.kernel_signature import Signatures
from memopt.costs.choice import AUTO, GRAPPLER, NATIVE, choose_planning_costs
from memopt.errors import FileError, OptionsError
from memopt.graph.functiondef import bodies_of
from memopt.graph.graphdef import from_graph_def
from memopt.kernels.compiled_calls import CompiledCalls
from memopt.kernels.measured import MeasuredCosts, MeasuredKernels
from memopt.kernels.survey import Survey
from memopt.kernels.table import Environment, KernelTable, default_table, load_or_empty
from memopt.sequencing.step import Step
from memopt.shapes.function_calls import compiled_functions
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.buffers.kernel_call import Measurements, Runtime
    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem

RULES = "rules"
MEASURED = "measured"


class Profiled(NamedTuple):
    """The kernels of a step with all that is known of them.

    Attributes:
        survey: The kernels.
        table: What was measured, now or before, in all environments.
        environment: That of the step.
        new: The keys of the kernels that were measured now.
    """

    survey: Survey
    table: KernelTable
    environment: Environment
    new: tuple[str, ...]


def check_kernels(choice: object) -> None:
    """Check an option that says whose memory and times are predicted.

    Raises:
        OptionsError: It is neither a word that is known nor a file that is there.
    """
    if not isinstance(choice, str | os.PathLike):
        raise OptionsError(f"kernels is {RULES!r}, {MEASURED!r} or a file, not {choice!r}")
    name = os.fspath(choice)
    # What lies elsewhere TensorFlow alone can look for.
    if name not in (RULES, MEASURED) and "://" not in name and not Path(name).is_file():
        raise OptionsError(
            f"kernels is {RULES!r}, {MEASURED!r} or a file; there is no file {name!r}"
        )


def choose_kernels(
    choice: str | os.PathLike[str],
    item: GrapplerItem,
    runtime: Runtime,
    properties: Properties | None = None,
) -> MeasuredKernels | None:
    """What was measured of a step's kernels.

    Args:
        choice: "rules" for nothing; "measured" for what the cache folder holds, where kernels that
            are not there yet are run now; or a file that `profile_kernels` wrote, as it is.
        item: The step.
        runtime: What it runs on.
        properties: The sizes of its tensors; inferred if not given.

    Raises:
        OptionsError: It is none of these.
        FileError: The file holds no measurements.
        InvalidGraphError: TensorFlow refuses the graph.
        ExecutionError: No process in which kernels could be run starts.
    """
    check_kernels(choice)
    if choice == RULES:
        return None
    environment = Environment.of(runtime)
    if choice == MEASURED:
        known = properties or Properties.of(item)
        table = profiled(item, runtime, known, str(default_table())).table
    else:
        table = KernelTable.load(os.fspath(choice))
    signatures = Signatures(bodies_of(item.graph_def), item.variables)
    return MeasuredKernels(table.in_environment(environment), signatures)


def memory_of_kernels(measured: MeasuredKernels | None, item: GrapplerItem) -> Measurements | None:
    """What is known of a step's kernels besides the rules for single ops; `None` if nothing is.

    Args:
        measured: What was measured of them.
        item: The step.
    """
    if not any(compiled_functions(item.graph_def)):
        return measured
    return CompiledCalls(bodies_of(item.graph_def), measured)


def choose_times(
    costs: CostModel | str, measured: MeasuredKernels | None, item: GrapplerItem
) -> CostModel | str:
    """A cost model with measured times, unless it has better ones: those of a profile or a table.

    Args:
        costs: As `choose_costs` takes them.
        measured: What was measured of kernels.
        item: The step.
    """
    if measured is None or costs not in (AUTO, GRAPPLER, NATIVE):
        return costs
    return MeasuredCosts(measured, choose_planning_costs(costs, item))


def profiled(
    item: GrapplerItem,
    runtime: Runtime,
    properties: Properties,
    path: str,
    progress: Callable[[int, int], None] | None = None,
) -> Profiled:
    """All kernels of a step, those measured that a file does not have, and written to it.

    Args:
        item: The step.
        runtime: What it runs on.
        properties: The sizes of its tensors.
        path: The file; what cannot be written there is measured again the next time.
        progress: Is told how many of how many kernels are measured.

    Raises:
        FileError: The file holds something else.
        InvalidGraphError: TensorFlow refuses the graph.
        ExecutionError: No process in which kernels could be run starts.
    """
    # Late, because of what runs graphs: who goes by rules need not load it.
    from memopt.kernels.measure import measure

    notes = surveyed(item, runtime, properties)
    environment = Environment.of(runtime)
    known = load_or_empty(path).in_environment(environment)
    missing = {key: kernel for key, kernel in notes.kernels.items() if key not in known}
    found = measure(
        missing, environment, None if progress is None else lambda n: progress(n, len(missing))
    )
    # Others may have written meanwhile.
    table = load_or_empty(path)
    if found:
        table = table.with_kernels(environment, found)
        with contextlib.suppress(FileError, OSError):
            if path == str(default_table()):
                default_table().parent.mkdir(parents=True, exist_ok=True)
            table.save(path)
    return Profiled(notes, table, environment, tuple(found))


def surveyed(item: GrapplerItem, runtime: Runtime, properties: Properties) -> Survey:
    """All kernels of a step; nothing is run.

    Args:
        item: The step.
        runtime: What it runs on.
        properties: The sizes of its tensors.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    bodies = bodies_of(item.graph_def)
    notes = Survey(Signatures(bodies, item.variables), bodies)
    graph = from_graph_def(item.graph_def)
    if len(graph):
        # Whoever places a step's tensors in buffers asks for every kernel that it runs.
        Step.of(
            graph,
            properties,
            fed=[name.partition(":")[0] for name in item.feed],
            fetched=[name.partition(":")[0] for name in item.fetch],
            in_function=item.in_function,
            runtime=replace(runtime, measurements=notes),
        )
    return notes
