"""The largest batch of a SavedModel's function that fits: `memopt.fit_saved_model`."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from memopt.costs.choice import AUTO
from memopt.fitting.dimensions import Dimension
from memopt.fitting.fit import MAX_OVERHEAD, fit
from memopt.plugin.policy import Policy
from memopt.plugin.work import Work
from memopt.saved_model.files import check_target, write_message, written_whole
from memopt.saved_model.remote import at_hand, delivered
from memopt.saved_model.shapes import fixed_shape
from memopt.saved_model.step import read_step

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from memopt.costs.cost_model import CostModel
    from memopt.fitting.result import Fit
    from memopt.result import OptimizationResult
    from memopt.saved_model.step import ModelStep


@dataclass(frozen=True)
class _Fitted(Work):
    """Work that has been done."""

    found: OptimizationResult

    @cached_property
    def result(self) -> OptimizationResult:
        """The rewritten graph."""
        return self.found


def fit_saved_model(  # noqa: PLR0913 - keywords, each with a default
    path: str | os.PathLike[str],
    memory: int | str,
    *,
    out: str | os.PathLike[str] | None = None,
    function: str | None = None,
    signature: str | None = None,
    max_overhead: float | str = MAX_OVERHEAD,
    dimensions: Sequence[Dimension | str] = (),
    multiple_of: int = 1,
    costs: CostModel | str = AUTO,
    run: bool = True,
    seed: int = 0,
    after_grappler: bool | None = None,
    jobs: int | None = None,
    on: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Find the largest batch at which a function of a SavedModel, rewritten, fits into memory.

    As `memopt.fit` does of a graph, for what runs when a program loads the model under TensorFlow's
    default settings: planned and proved is what Grappler makes of the function. Values of variables
    are made up.

    Args:
        path: The folder of the SavedModel; arguments of the function have open dimensions.
        memory: What may be in use at any moment, everything included: bytes or "4GiB".
        out: A folder that is to be: the SavedModel with the function rewritten for the size that
            was found. Whether it takes others as well, `Fit.only_size` says.
        function: The function's name, in the library or in the program that saved it. Without this
            and `signature` the only one that trains.
        signature: The key of a signature that runs it.
        max_overhead: The share of its estimated time that the step may take longer: 0.2 or "20%".
        dimensions: What has the size that is looked for ("x:0"), and what has a known one
            ("tokens:1=64"). Without, the first open dimension of every argument.
        multiple_of: Sizes are multiples of this.
        costs: How long operations take: "auto", "grappler", a table, or what `profile_saved_model`
            found.
        run: Whether to run the real step.
        seed: What values and random operations without seeds draw from.
        after_grappler: As for `optimize_saved_model`.
        jobs: As for `fit`, and so is `on`.
        on: The address of a Ray cluster.
        progress: Is called with a line of text for every size that was tried.

    Raises:
        FileError: The SavedModel cannot be read, or the folder not be written.
        InvalidGraphError: TensorFlow refuses the function at a size.
        OptionsError: No dimension is open, an option is not valid, or several functions train.
        BudgetError: Not even the smallest size fits. It tells the lowest peak that was found.
        ExecutionError: The real step failed; `OutOfMemoryError` if memory was short at every size.
    """
    with at_hand(path) as source, _place(out) as target:
        if target is not None:
            check_target(source, target)
        step = read_step(source, function, signature, after_grappler)
        found = fit(
            step.item,
            memory,
            max_overhead=max_overhead,
            dimensions=[_of_node(step, one) for one in dimensions],
            multiple_of=multiple_of,
            costs=costs,
            run=run,
            mode="as-is",
            keep_open=True,
            seed=seed,
            jobs=jobs,
            on=on,
            progress=progress,
        )
        return found if target is None else _write(step, found, source, target)


def _place(out: str | os.PathLike[str] | None) -> AbstractContextManager[Path | None]:
    return nullcontext() if out is None else delivered(out)


def _write(step: ModelStep, found: Fit, source: Path, target: Path) -> Fit:
    """Write the SavedModel with the function that was found, and say what sizes that takes."""
    work = _Fitted(found.item, found.result.report.properties, Policy(), found.result)
    graph_def = work.finished()
    shapes = {
        name: tuple(int(one.size) for one in node.attr["shape"].shape.dim)
        for node in found.item.graph_def.node
        for name, of in step.arguments.items()
        if node.name == of
    }
    fixed_by = fixed_shape(step.item, graph_def, step.settled.sized(shapes, more=1))
    with written_whole(source, target) as folder:
        step.rewriting.put(
            step.function, step.settled, graph_def, after_grappler=step.after_grappler
        )
        step.rewriting.finish()
        write_message(step.message, source, folder)
    return replace(found, only_size=bool(fixed_by))


def _of_node(step: ModelStep, given: Dimension | str) -> Dimension:
    """A dimension by the node that stands for the argument."""
    dimension = Dimension.parse(given) if isinstance(given, str) else given
    return dimension._replace(node=step.node_of(dimension.node))
