"""Many models rewritten within many budgets: `memopt.fleet`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from memopt.fleets.manifest import Manifest
from memopt.fleets.progress import Progress
from memopt.fleets.report import FleetReport
from memopt.fleets.run import Run
from memopt.fleets.tasks import FleetOptions, find_models, find_tasks
from memopt.options import as_texts, parse_bytes
from memopt.progress import task
from memopt.saved_model.entry import make_wish, parse_sizes
from memopt.workers.places import HOUR_S, Places, open_executor
from memopt.workers.surroundings import process_variables, versions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from memopt.options import Budget

COPY_LIMIT = "16GiB"


def fleet(  # noqa: PLR0913 - keywords, each with a default
    models: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    budgets: Iterable[Budget | int | str],
    shapes: Sequence[Mapping[str, Iterable[int]]] = (),
    verify: bool = False,
    algorithm: str | None = None,
    fix_shapes: bool = False,
    every: bool = False,
    after_grappler: bool | None = None,
    pass_options: Sequence[str] = (),
    jobs: int | None = None,
    memory_limit: int | str | None = None,
    timeout_s: float = HOUR_S,
    copy_limit: int | str = COPY_LIMIT,
    on: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> FleetReport:
    """Rewrite every one of many models within every one of several budgets.

    Each model within each budget (and at each set of shapes) is a task, done in a process of its
    own that is ended if it takes too much: what one does, or does not, is nothing to the others.
    What was done before, in the same folder, from the same models and options and by the same
    memopt and packages, is not done again. Results are the same bytes on every machine of the same
    type, and those of `optimize` and `optimize_saved_model` under TensorFlow's threads here.

    Args:
        models: Folders of SavedModels and graph files, anywhere that `tf.io.gfile` or fsspec
            reaches.
        out: The folder for results: new, empty, or an earlier fleet's. A SavedModel's result is
            the folder `NAME/BUDGET`, that of a graph file the file `NAME/BUDGET.pb`.
        budgets: Budgets as for `optimize`; of shares and bytes several in one text: "50%,70%".
        shapes: Sets of shapes, each by name of an argument, where dimensions are open: a task for
            each set.
        verify: Whether original and result are run for real, so that nothing is written that
            computes something else.
        algorithm: How budgets are kept: see `Rematerialization`.
        fix_shapes: Of SavedModels: accept functions that take the given shapes and no others.
        every: Of SavedModels: rewrite functions that compute no gradients as well.
        after_grappler: Whether Grappler works first; if not said, for functions of SavedModels that
            compute gradients.
        pass_options: Options of passes, such as "ordering{smallest_bytes=65536}".
        jobs: How many tasks run at a time; one for each core, or CPU of the cluster, if not given.
        memory_limit: Resident memory that a task may take, such as "8GiB"; if not given, nine
            tenths of this machine's, or of Ray's for a CPU, in equal shares.
        timeout_s: Seconds that a task may take.
        copy_limit: What the copy of a model may have that is not in this machine's file system.
        on: Where tasks run: the address of a Ray cluster, see `ray.init`; processes of this machine
            if not given.
        progress: Gets a line whenever a task has come to its end.

    Returns:
        What became of every task, failures too.

    Raises:
        OptionsError: An option is not valid, or Ray is needed and not installed.
        FileError: The folder holds something else, cannot be written, or is in use.
        MemoptError: No Ray cluster is at the address.
    """
    begun_s = time.monotonic()
    options = FleetOptions(
        verify, algorithm, fix_shapes, every, after_grappler, as_texts("pass_options", pass_options)
    )
    sets = [{name: parse_sizes(name, one) for name, one in each.items()} for each in shapes]
    tasks = find_tasks(find_models(models), budgets, sets)
    _check_options(options)
    places = Places(jobs, on, memory_limit, timeout_s)
    copy_limit_bytes = parse_bytes(str(copy_limit))
    variables = process_variables()
    with Manifest(Path(out).absolute()) as manifest, open_executor(places, variables) as executor:
        with task("tasks", len(tasks)) as under_way:
            told = Progress(under_way, str(out), progress or _say_nothing)
            run = Run(manifest, executor, options, variables, copy_limit_bytes, told)
            done = run.do(tasks)
        width = executor.width
    return FleetReport(
        str(manifest.folder), done, round(time.monotonic() - begun_s, 3), width, dict(versions())
    )


def _say_nothing(line: str) -> None:
    del line


def _check_options(options: FleetOptions) -> None:
    """Refuse what every task would refuse.

    Raises:
        OptionsError: An option is not valid.
    """
    make_wish(algorithm=options.algorithm, pass_options=options.pass_options)
