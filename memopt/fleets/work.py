"""One task done in this process: a model read, rewritten, written into a folder of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import BudgetError, OptionsError
from memopt.fitting.dimensions import Dimension, with_size
from memopt.fleets.figures import figures_of, figures_of_function
from memopt.fleets.tasks import FleetOptions, parse_shape_set
from memopt.saved_model.files import (
    FINGERPRINT_FILE,
    MODEL_FILE,
    TEXT_FILE,
    VARIABLES_FOLDER,
    is_saved_model,
    read_saved_model,
    write_message,
    written_whole,
)
from memopt.workers.executor import Job
from memopt.workers.orders import TaskError, plain_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.fleets.tasks import Task
    from memopt.io import GraphFile
    from memopt.item import GrapplerItem
    from memopt.saved_model.report import FunctionReport
    from memopt.workers.inputs import Input

GRAPH_FILE, TEXT_GRAPH_FILE = "graph.pb", "graph.pbtxt"
"""What the result of a graph file is called in its folder."""
INDEX_FILE = f"{VARIABLES_FOLDER}/variables.index"

_READ = frozenset({MODEL_FILE, TEXT_FILE, FINGERPRINT_FILE, INDEX_FILE})

BUDGET, DIFFERS = "budget", "differs"


@dataclass(frozen=True)
class RewriteOrder:
    """A model to be rewritten within a budget.

    Attributes:
        source: The model: a folder or a file of this machine.
        folder: An empty folder for what changes: a graph file, or the message of a SavedModel and
            its fingerprint. Nothing else is written.
        budget: The budget as text.
        shapes: Shapes to plan with as text.
        options: What holds for all tasks.
    """

    source: str
    folder: str
    budget: str
    shapes: str
    options: FleetOptions

    @property
    def reads(self) -> frozenset[str] | None:
        """Of a SavedModel what rewriting reads; all of it where it runs."""
        return None if self.options.verify else _READ

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain_fields(self) | {"options": self.options.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RewriteOrder:
        """The order that `to_json` described."""
        return cls(**dict(plain) | {"options": FleetOptions.from_json(plain["options"])})

    def perform(self) -> dict[str, Any]:
        """Do it.

        Returns:
            Plain data: `functions`, see `figures_of`, and `verified`.

        Raises:
            TaskError: The budget cannot be kept, or the results differ; with figures.
            MemoptError: The model or an option is bad.
        """
        if is_saved_model(self.source):
            return _perform_saved_model(self)
        return _perform_graph(self)


@dataclass(frozen=True)
class FleetJob(Job):
    """A model to be rewritten within a budget, and the task of a fleet that it is.

    Attributes:
        task: The task.
        options: What holds for all tasks.
    """

    task: Task
    options: FleetOptions

    @classmethod
    def of(cls, task: Task, source: Input, options: FleetOptions, folder: Path) -> FleetJob:
        """The job of a task.

        Args:
            task: The task.
            source: Its model, on this machine.
            options: What holds for all tasks.
            folder: An empty folder of this machine for what comes out.
        """
        order = RewriteOrder(
            str(source.path), str(folder), str(task.budget), task.shapes_text, options
        )
        return cls(source, order, task, options)


def _perform_graph(order: RewriteOrder) -> dict[str, Any]:
    from memopt.api import optimize
    from memopt.io import read_graph, write_graph

    options = order.options
    file = read_graph(order.source)
    if order.shapes:
        item = _with_shapes(file.item(), parse_shape_set(order.shapes))
        file = file.with_graph(item.graph_def)
    try:
        result = optimize(
            file.message,
            budget=order.budget,
            algorithm=options.algorithm,
            pass_options=options.pass_options,
            after_grappler=bool(options.after_grappler),
        )
    except BudgetError as error:
        figures = [] if error.result is None else [figures_of(error.result.report)]
        raise TaskError(BUDGET, str(error), figures) from error
    result.report.properties.require()
    figures = [figures_of(result.report)]
    if options.verify:
        _verify_graph(file, result.graph_def, figures)
    name = TEXT_GRAPH_FILE if file.is_text else GRAPH_FILE
    write_graph(file.with_graph(result.graph_def), str(Path(order.folder, name)))
    return {"functions": figures, "verified": options.verify}


def _with_shapes(item: GrapplerItem, shapes: Mapping[str, tuple[int, ...]]) -> GrapplerItem:
    """A graph whose Placeholders have these shapes where they are open.

    Raises:
        OptionsError: There is no such Placeholder, or it has another shape.
    """
    shape_of = {
        node.name: [dimension.size for dimension in node.attr["shape"].shape.dim]
        for node in item.graph_def.node
        if node.op == "Placeholder"
    }
    dimensions = []
    for name, sizes in shapes.items():
        if name not in shape_of:
            raise OptionsError(
                f"nothing that is fed is called {name!r}; what is: {', '.join(sorted(shape_of))}"
            )
        known = shape_of[name]
        if len(known) != len(sizes) or any(
            old not in (-1, new) for old, new in zip(known, sizes, strict=True)
        ):
            raise OptionsError(f"{name} has the shape {known}, which {list(sizes)} is not")
        dimensions += [
            Dimension(name, axis, new)
            for axis, (old, new) in enumerate(zip(known, sizes, strict=True))
            if old < 0
        ]
    return with_size(item, dimensions, 0)


def _verify_graph(file: GraphFile, graph_def: Any, figures: list[dict[str, Any]]) -> None:
    from memopt.runtime.entry import verify

    found = verify(file.message, graph_def, timing_rounds=0)
    if not found.within_tolerance:
        raise TaskError(DIFFERS, "the rewritten graph computes something else", figures)


def _perform_saved_model(order: RewriteOrder) -> dict[str, Any]:
    from memopt.saved_model.entry import make_wish
    from memopt.saved_model.rewriting import rewrite_message

    options = order.options
    wish = make_wish(
        budget=order.budget,
        shapes=parse_shape_set(order.shapes) if order.shapes else None,
        algorithm=options.algorithm,
        fix_shapes=options.fix_shapes,
        every=options.every,
        after_grappler=options.after_grappler,
        pass_options=options.pass_options,
    )
    source, folder = Path(order.source), Path(order.folder)
    message = read_saved_model(source)
    try:
        reports, _ = rewrite_message(message, wish, source)
    except BudgetError as error:
        raise TaskError(
            BUDGET, str(error), [figures_of_function(one) for one in error.functions]
        ) from error
    _write(message, source, folder)
    figures = [figures_of_function(one) for one in reports]
    if options.verify:
        _verify_saved_model(order, reports, figures)
    return {"functions": figures, "verified": options.verify}


def _write(message: Any, source: Path, folder: Path) -> None:
    """Write what is new; the fingerprint is of variables as well, by their index."""
    index = source / INDEX_FILE
    if index.is_file():
        (folder / VARIABLES_FOLDER).mkdir()
        shutil.copyfile(index, folder / INDEX_FILE)
    write_message(message, source, folder)
    shutil.rmtree(folder / VARIABLES_FOLDER, ignore_errors=True)


def _verify_saved_model(
    order: RewriteOrder, reports: Sequence[FunctionReport], figures: list[dict[str, Any]]
) -> None:
    from memopt.saved_model.verification import verify_saved_models

    keys = sorted({k for one in reports if one.outcome == "rewritten" for k in one.signatures})
    if not keys:
        return
    source, folder = Path(order.source), Path(order.folder)
    checked = folder.with_name(f"{folder.name}-checked")
    try:
        with written_whole(source, checked) as part:
            put_message(folder, part)
        found = verify_saved_models(
            source,
            checked,
            signatures=keys,
            shapes=parse_shape_set(order.shapes) if order.shapes else None,
            timing_rounds=0,
        )
    finally:
        shutil.rmtree(checked, ignore_errors=True)
    if not found.equal:
        raise TaskError(DIFFERS, "the rewritten SavedModel computes something else", figures)


def put_message(folder: Path, target: Path) -> None:
    """Copy what a task wrote of a SavedModel into a folder that has the rest."""
    for name in (MODEL_FILE, FINGERPRINT_FILE):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, target / name)
