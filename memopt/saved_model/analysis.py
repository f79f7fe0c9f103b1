"""What the functions of a SavedModel are and need, without running any of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memopt.context import Context
from memopt.display import Overview, Paged, Table, bytes_text, count_text
from memopt.errors import MemoptError
from memopt.graph.graphdef import from_graph_def
from memopt.plugin.work import runtime_here
from memopt.saved_model.entry import make_wish
from memopt.saved_model.files import read_saved_model
from memopt.saved_model.library import LibraryRewriting, computes_gradients
from memopt.saved_model.main_graph import arguments_of, find_work
from memopt.saved_model.remote import at_hand
from memopt.saved_model.report import FunctionAnalysis
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.saved_model.functions import ModelFunction


@dataclass(frozen=True, repr=False)
class SavedModelAnalysis(Paged):
    """What the functions of a SavedModel are and need.

    Attributes:
        path: The SavedModel.
        functions: Each function that does work, in the order of graphs and names.
        notes: What else is to be known, a sentence each.
    """

    path: str
    functions: tuple[FunctionAnalysis, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "path": self.path,
            "functions": [one.to_json() for one in self.functions],
            "notes": list(self.notes),
        }

    def _overview(self) -> Overview:
        outcome = f"{self.path}, {count_text(len(self.functions), 'function')}"
        table = Table.of(COLUMNS, self.functions, _row)
        return Overview("SavedModelAnalysis", outcome, (table,), self.notes)


_IN_GRAPH = "what is in brackets stands in the main graph, as in TensorFlow 1"
COLUMNS = ("function", "signatures", "kind", "nodes", "held", "predicted peak", "arguments", "")


def analyze_saved_model(
    path: str | os.PathLike[str], *, shapes: Mapping[str, Iterable[int]] | None = None
) -> SavedModelAnalysis:
    """Tell of every function of a SavedModel what it is and how much memory it needs at its peak.

    Peaks are those of TensorFlow's allocator under its defaults, as predicted; nothing of the model
    runs.

    Args:
        path: The folder of the SavedModel.
        shapes: Shapes to go by where dimensions are open, by name of an argument.

    Raises:
        FileError: It cannot be read.
        OptionsError: A shape is none.
    """
    wish = make_wish(every=True, shapes=shapes)
    known = wish.shapes or {}
    found: list[FunctionAnalysis] = []
    with at_hand(path) as folder:
        for meta_graph in read_saved_model(folder).meta_graphs:
            rewriting = LibraryRewriting(meta_graph, wish, folder)
            found += [_analysis(meta_graph, rewriting, one, known) for one in find_work(meta_graph)]
    notes = (_IN_GRAPH,) if any(one.name.startswith("(") for one in found) else ()
    return SavedModelAnalysis(str(path), tuple(found), notes)


def _analysis(
    meta_graph: MetaGraphDef,
    rewriting: LibraryRewriting,
    one: ModelFunction,
    shapes: Mapping[str, tuple[int, ...]],
) -> FunctionAnalysis:
    library = {each.signature.name: each for each in meta_graph.graph_def.library.function}
    found = FunctionAnalysis(
        one.name,
        one.called_as,
        tuple(one.signatures),
        tuple(meta_graph.meta_info_def.tags),
        "unknown",
        len(rewriting.nodes(one)),
        tuple(arguments_of(one, library).values()),
        reason=one.refusal or ("XLA compiles it" if one.compiled else ""),
    )
    try:
        body = rewriting.body(one)
        trains = computes_gradients(body.step_graph)
        found = replace(found, kind="training" if trains else "inference")
        found = replace(found, reason=found.reason or rewriting.why_not(body))
        if found.reason:
            return found
        item = rewriting.settled(body).sized(shapes)
        context = replace(Context.of_item(item, Properties.of(item)), runtime=runtime_here())
        memory = Step.in_context(from_graph_def(item.graph_def), context).run(
            context.inter_op_threads
        )
        return replace(
            found, held_bytes=memory.held_bytes, peak_bytes=memory.peak_bytes, memory=memory
        )
    except (MemoptError, RecursionError) as error:
        return replace(found, reason=" ".join(str(error).split()))


def _row(one: FunctionAnalysis) -> tuple[str, ...]:
    sizes = ("", "")
    if one.peak_bytes:
        sizes = (bytes_text(one.held_bytes), bytes_text(one.peak_bytes))
    keys, arguments = ", ".join(one.signatures), ", ".join(one.arguments)
    name = one.name if one.name.startswith("(") else one.called_as
    return name, keys, one.kind, f"{one.nodes:,}", *sizes, arguments, one.reason
