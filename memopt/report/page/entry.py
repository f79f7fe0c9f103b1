"""Which page a result has, and the page as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from memopt.analysis import MemoryAnalysis
from memopt.display import bytes_text
from memopt.errors import BudgetError, FileError, OptionsError
from memopt.files.whole_files import write_bytes, write_local
from memopt.report.page.decisions import readable
from memopt.report.page.model import Fact, Grid, Page
from memopt.report.page.optimized import page_of_refusal, page_of_report, page_of_verification
from memopt.report.page.rendering import check_installed, render
from memopt.report.page.saved_models import (
    page_of_saved_model,
    page_of_saved_model_analysis,
    page_of_saved_model_refusal,
    page_of_saved_model_verification,
)
from memopt.report.page.simulated import page_of_analysis
from memopt.result import OptimizationReport, OptimizationResult

if TYPE_CHECKING:
    from memopt.fitting.result import Fit
    from memopt.planning.cost_graph import CostGraph

_Kind = TypeVar("_Kind")


def page_html(shown: Any, *others: Any) -> str:
    """The report page of a result, a text that refers to nothing outside.

    Args:
        shown: An OptimizationResult or its report, a MemoryAnalysis, Verification, Fit, Plan, the
            plans of a sweep, what was done to a SavedModel or found of one, or a BudgetError that
            has a result.
        others: What belongs to it: the Verification of a rewriting, the CostGraph of a plan.

    Raises:
        OptionsError: There is no page for such a thing, or what draws it is not installed.
    """
    check_installed()
    return render(page_of(shown, *others))


def check_page(path: str) -> None:
    """Check that a page can be made and written, before the work that it is to show.

    Raises:
        OptionsError: What draws pages is not installed.
        FileError: The place is a folder, or in none.
    """
    check_installed()
    check_place(path)


def check_place(path: str) -> None:
    """Check that a file can be where it is to be written at the end.

    Raises:
        FileError: The place is a folder, or in none.
    """
    target = Path(path)
    if "\0" in path:
        raise FileError(f"{path!r}: is no path")
    if "://" not in path and (target.is_dir() or not target.parent.is_dir()):
        raise FileError(f"{path}: cannot be written: it is a folder, or in none")


def write_page(path: str, shown: Any, *others: Any) -> None:
    """Write the report page of a result to a file, whole or not at all.

    Args:
        path: The file; of what TensorFlow was needed for anywhere that `tf.io.gfile` or
            fsspec reaches.
        shown: As for `page_html`.
        others: As for `page_html`.

    Raises:
        OptionsError: As for `page_html`.
        FileError: The place cannot be written to. What was there before is still there.
    """
    from memopt.planning.plan import Plan, Plans

    write = write_local if isinstance(shown, Plan | Plans) else write_bytes
    write(path, page_html(shown, *others).encode())


def page_of(shown: Any, *others: Any) -> Page:
    """What the page of a result shows; as for `page_html`.

    Raises:
        OptionsError: There is no page for such a thing.
    """
    for find in (_page_of_step, _page_of_plans, _page_of_refusal, _page_of_saved_model):
        page = find(shown, others)
        if page is not None:
            return page
    raise OptionsError(f"there is no report page of a {type(shown).__name__}")


def _page_of_step(shown: Any, others: tuple[Any, ...]) -> Page | None:
    """The page of what is about one step; `None` if it is about something else."""
    # What runs steps and plans takes numpy and more, which is there if there is such a result.
    from memopt.fitting.result import Fit
    from memopt.runtime.verification import Verification

    if isinstance(shown, MemoryAnalysis):
        return page_of_analysis(shown)
    if isinstance(shown, Verification):
        return page_of_verification(shown)
    if isinstance(shown, Fit):
        return _page_of_fit(shown)
    report = shown.report if isinstance(shown, OptimizationResult) else shown
    if not isinstance(report, OptimizationReport):
        return None
    return page_of_report(report, _first(Verification, others))


def has_page(error: BudgetError) -> bool:
    """Whether there is something to show of a budget that cannot be kept."""
    return error.result is not None or bool(error.functions)


def _page_of_refusal(error: Any, others: tuple[Any, ...]) -> Page | None:
    """The page of a budget that cannot be kept; `None` if it is something else."""
    from memopt.planning.plan import Plan
    from memopt.report.page.planned import page_of_plan_refusal

    if not isinstance(error, BudgetError) or not has_page(error):
        return None
    if error.functions:
        return page_of_saved_model_refusal(error.functions, str(error))
    if isinstance(error.result, Plan):
        return page_of_plan_refusal(error, _cost_graph(others))
    return page_of_refusal(error.result.report, str(error))


def _page_of_saved_model(shown: Any, others: tuple[Any, ...]) -> Page | None:
    """The page of what is about a SavedModel; `None` if it is about something else."""
    from memopt.saved_model.analysis import SavedModelAnalysis
    from memopt.saved_model.report import SavedModelReport
    from memopt.saved_model.verification import SavedModelVerification

    if isinstance(shown, SavedModelAnalysis):
        return page_of_saved_model_analysis(shown)
    if isinstance(shown, SavedModelVerification):
        return page_of_saved_model_verification(shown)
    if isinstance(shown, SavedModelReport):
        return page_of_saved_model(shown, _first(SavedModelVerification, others))
    return None


def _page_of_plans(shown: Any, others: tuple[Any, ...]) -> Page | None:
    """The page of a plan, or of those of a sweep; `None` if it is something else."""
    from memopt.planning.plan import Plan, Plans
    from memopt.report.page.planned import page_of_plan, page_of_plans

    if isinstance(shown, Plans):
        return page_of_plans(shown)
    return page_of_plan(shown, _cost_graph(others)) if isinstance(shown, Plan) else None


def _cost_graph(others: tuple[Any, ...]) -> CostGraph | None:
    from memopt.planning.cost_graph import CostGraph

    return _first(CostGraph, others)


def _first(kind: type[_Kind], others: tuple[Any, ...]) -> _Kind | None:
    """The first of some results that is of a kind."""
    return next((one for one in others if isinstance(one, kind)), None)


def _page_of_fit(fit: Fit) -> Page:
    looked_for = ", ".join(str(each) for each in fit.dimensions if not each.size)
    unchanged = f"{fit.free_size:,}" if fit.free_size else "none"
    measured = fit.measured_peak_bytes
    facts = [
        Fact(f"largest size of {looked_for}", f"{fit.size:,}", f"{unchanged} fits unchanged"),
        Fact("memory", bytes_text(fit.memory_bytes)),
        Fact("estimated overhead", f"{fit.overhead:.1%}", f"at most {fit.max_overhead:.1%}"),
    ]
    if measured is not None:
        facts.append(Fact("measured peak", bytes_text(measured), "of a real step"))
    rows = tuple(
        (f"{one.size:,}", bytes_text(one.peak_bytes), f"{one.overhead:.1%}", readable(one.outcome))
        for one in fit.probes
    )
    probes = Grid("Sizes that were planned", ("size", "peak", "overhead", "outcome"), rows)
    return page_of_report(fit.result.report, None, facts, (probes,))
