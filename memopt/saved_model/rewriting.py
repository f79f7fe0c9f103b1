"""A SavedModel rewritten: its message read, functions in it replaced, all of it written anew."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from memopt.errors import BudgetError, OptionsError
from memopt.plugin.policy import ALL
from memopt.progress import task
from memopt.saved_model.compiled import COMPILED
from memopt.saved_model.files import read_saved_model, write_message, written_whole
from memopt.saved_model.functions import choose
from memopt.saved_model.library import LibraryRewriting
from memopt.saved_model.main_graph import arguments_of, find_work
from memopt.saved_model.remote import at_hand, delivered
from memopt.saved_model.report import SavedModelReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    from memopt.saved_model.functions import ModelFunction
    from memopt.saved_model.library import Wish
    from memopt.saved_model.report import FunctionReport

_MOST_REASONS = 3
_OF_SESSIONS = (
    "what stands in the main graph, as in TensorFlow 1, goes through Grappler again in the session "
    "that runs it; `memopt verify` shows whether bits are the same"
)
_SAY_WHICH = "name it with --function, or give --all for those that compute no gradients"


def rewrite_saved_model(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    wish: Wish,
    check: Callable[[Path, SavedModelReport], None] | None = None,
) -> SavedModelReport:
    """Write a SavedModel in which functions need less memory.

    Args:
        path: The SavedModel, anywhere that `tf.io.gfile` or fsspec reads; it stays as it is.
        out: The folder that is to be.
        wish: What is to be done.
        check: Gets the folder before it has its name, and may raise.

    Raises:
        FileError: The one cannot be read, or the other not be written.
        OptionsError: Something is named that is not there, or there is nothing to rewrite.
        BudgetError: None of the functions keeps the budget.
    """
    with at_hand(path) as source, delivered(out) as target:
        message = read_saved_model(source)
        with written_whole(source, target) as folder:
            reports, notes = rewrite_message(message, wish, source)
            write_message(message, source, folder)
            report = SavedModelReport(os.fspath(path), os.fspath(out), reports, notes)
            if check is not None:
                check(folder, report)
    return report


def rewrite_message(
    message: SavedModel, wish: Wish, path: Path
) -> tuple[tuple[FunctionReport, ...], tuple[str, ...]]:
    """Rewrite functions of a SavedModel's message in place.

    Args:
        message: The message.
        wish: What is to be done.
        path: The folder that it comes from.

    Returns:
        What was done to each function, and notes.

    Raises:
        OptionsError: Something is named that is not there, or there is nothing to rewrite.
        BudgetError: None of the functions keeps the budget.
    """
    reports: list[FunctionReport] = []
    found = [find_work(meta_graph) for meta_graph in message.meta_graphs]
    _check_names(found, wish)
    _check_shapes(message, found, wish)
    for meta_graph, functions in zip(message.meta_graphs, found, strict=True):
        reports += _rewrite_meta_graph(meta_graph, functions, wish, path)
    notes = [_OF_SESSIONS] if any(_is_in_main_graph(one) for one in reports) else []
    _check_outcome(reports, wish)
    return tuple(reports), tuple(notes)


def _check_names(found: Sequence[Sequence[ModelFunction]], wish: Wish) -> None:
    choose([one for functions in found for one in functions], wish.functions, wish.signatures)


def _check_shapes(
    message: SavedModel, found: Sequence[Sequence[ModelFunction]], wish: Wish
) -> None:
    """Refuse a shape for an argument that no function has.

    Raises:
        OptionsError: There is one; the message has the names that there are.
    """
    names: set[str] = set()
    for meta_graph, functions in zip(message.meta_graphs, found, strict=True):
        library = {one.signature.name: one for one in meta_graph.graph_def.library.function}
        for one in functions:
            names |= set(arguments_of(one, library).values())
    unknown = sorted((wish.shapes or {}).keys() - names)
    if unknown:
        raise OptionsError(
            f"no function takes an argument {unknown[0]!r}; there are: "
            f"{', '.join(sorted(names)) or 'none'}"
        )


def _check_outcome(reports: Sequence[FunctionReport], wish: Wish) -> None:
    """Refuse an output in which nothing is as it was asked for.

    Raises:
        OptionsError: There was nothing to rewrite.
        BudgetError: None of the functions keeps the budget.
    """
    tried = [one for one in reports if one.outcome != "left alone"]
    if not tried:
        reasons = "; ".join(f"{one.called_as}: {one.reason}" for one in reports[:_MOST_REASONS])
        hint = "" if wish.names_some or wish.policy.only == ALL else f" ({_SAY_WHICH})"
        raise OptionsError(f"no function is rewritten: {reasons or 'there is none'}{hint}")
    budgeted = [one for one in tried if one.budget_bytes]
    if not budgeted or any(one.keeps_budget for one in budgeted):
        return
    first = budgeted[0]
    why = f" ({first.reason})" if first.reason.startswith(COMPILED) else ""
    error = BudgetError(
        f"no function keeps the budget; {first.called_as}: the budget of {first.budget_bytes} "
        f"bytes cannot be kept: the lowest peak that was found is {first.peak_after_bytes} bytes"
        f"{why}",
        first.budget_bytes,
        first.peak_after_bytes,
    )
    error.functions = tuple(tried)
    raise error


def _rewrite_meta_graph(
    meta_graph: MetaGraphDef, found: Sequence[ModelFunction], wish: Wish, path: Path
) -> list[FunctionReport]:
    wanted = {one.name for one in _chosen(found, wish)}
    if not wanted:
        return []
    rewriting = LibraryRewriting(meta_graph, wish, path)
    reports = []
    with task("functions", len(wanted)) as under_way:
        for one in found:
            if one.name not in wanted:
                continue
            under_way.say(one.called_as)
            reports.append(rewriting.rewrite(one))
            under_way.advance()
    rewriting.finish()
    return reports


def _is_in_main_graph(report: FunctionReport) -> bool:
    return report.outcome == "rewritten" and report.name.startswith("(")


def _chosen(found: Sequence[ModelFunction], wish: Wish) -> list[ModelFunction]:
    """Those of a graph's functions that are named; other graphs may have the rest."""
    if not wish.names_some:
        return list(found)
    return [
        one
        for one in found
        if not {one.name, one.called_as}.isdisjoint(wish.functions)
        or not set(one.signatures).isdisjoint(wish.signatures)
    ]
