"""Functions of one library rewritten: planned, checked, and put in the place of the old ones."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from memopt.context import Context
from memopt.errors import BudgetError, InvalidGraphError, MemoptError, OptionsError
from memopt.graph.final import is_final
from memopt.graph.graphdef import from_graph_def
from memopt.plugin.policy import Policy
from memopt.plugin.screening import why_not
from memopt.plugin.settled_item import settle_item
from memopt.plugin.work import Work, runtime_here
from memopt.runtime.library import rename_changed_functions, rename_functions
from memopt.saved_model.assembly import with_graph, without_grappler
from memopt.saved_model.bodies import Body, StepBody
from memopt.saved_model.captures import keep_captured
from memopt.saved_model.checkpoint import variable_values
from memopt.saved_model.compiled import rewrite_compiled_item
from memopt.saved_model.main_graph import GraphBody, put_in_main_graph
from memopt.saved_model.report import FunctionReport
from memopt.saved_model.settled_graph import settle_main_graph
from memopt.saved_model.shapes import fixed_shape, with_arguments_of
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult
    from memopt.saved_model.functions import ModelFunction

_CAPTURED = (
    "it computes no gradients, and the functions that do capture tensors inside of it (custom "
    "gradients)"
)

_USES_KEPT = "ordered so that others who ask for parts of it run no more than before"


@dataclass(frozen=True)
class Wish:
    """What is to be done to a SavedModel.

    Attributes:
        policy: What is done to a function.
        functions: Names of those that are rewritten; without any, and without signatures, those
            that the policy says.
        signatures: Keys of signatures whose functions are rewritten.
        shapes: Shapes to plan with, by name of an argument.
        fix_shapes: Whether a rewritten function may take these shapes alone.
        after_grappler: Whether Grappler works on the functions first; `None` for those that train.
    """

    policy: Policy
    functions: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] | None = None
    fix_shapes: bool = False
    after_grappler: bool | None = None

    @property
    def names_some(self) -> bool:
        """Whether functions are named, which are then rewritten whatever they compute."""
        return bool(self.functions or self.signatures)


class _Work(Work):
    """Work whose report says when a budget is not kept, instead of a warning."""

    @cached_property
    def result(self) -> OptimizationResult:
        """The rewritten graph; where a budget cannot be kept, the one that needs least."""
        try:
            return self._optimize()
        except BudgetError as error:
            found: OptimizationResult = error.result
            return found


class LibraryRewriting:
    """The functions of one graph with its tags.

    Args:
        meta_graph: The graph.
        wish: What is to be done.
        path: The folder of the SavedModel, whose variables have values.
    """

    def __init__(self, meta_graph: MetaGraphDef, wish: Wish, path: str | os.PathLike[str]) -> None:
        self._meta_graph = meta_graph
        self._path = path
        self._wish = wish
        self._library = meta_graph.graph_def.library
        self._functions = {one.signature.name: one for one in self._library.function}

    def nodes(self, one: ModelFunction) -> Sequence[NodeDef]:
        """The nodes of a function, or of the main graph."""
        holder = self._functions[one.name] if not one.fetch else None
        found: Sequence[NodeDef] = (
            self._meta_graph.graph_def.node if holder is None else holder.node_def
        )
        return found

    def rewrite(self, one: ModelFunction) -> FunctionReport:
        """Rewrite a function, or say why not."""
        nodes = len(self.nodes(one))
        report = FunctionReport(
            one.name,
            one.called_as,
            tuple(one.signatures),
            tuple(self._meta_graph.meta_info_def.tags),
            "left alone",
            one.refusal,
            nodes=nodes,
            nodes_after=nodes,
        )
        if one.refusal:
            return report
        try:
            return self._rewritten(one, report)
        except (MemoptError, RecursionError) as error:
            return replace(report, reason=" ".join(str(error).split()))

    def finish(self) -> None:
        """Declare the ops that rewriting has added, as loaders expect it."""
        from tensorflow.python.framework import op_def_registry

        used = {node.op for one in self._library.function for node in one.node_def}
        used |= {node.op for node in self._meta_graph.graph_def.node}
        declared = self._meta_graph.meta_info_def.stripped_op_list.op
        if not declared:
            return
        for op in sorted(used - {one.name for one in declared}):
            definition = op_def_registry.get(op)
            if definition is not None:
                declared.add().CopyFrom(definition)

    def variables(self, one: ModelFunction) -> dict[str, npt.NDArray[Any]]:
        """The values of the variables that a function uses, as far as the files have them.

        Raises:
            FileError: They cannot be read.
        """
        return variable_values(self._path, self._meta_graph, one)

    def body(self, one: ModelFunction) -> StepBody:
        """A function's body as it stands in the library, or a use of the main graph.

        Raises:
            InvalidGraphError: It breaks a rule.
        """
        if one.fetch:
            return GraphBody.of(self._meta_graph, one)
        versions = self._meta_graph.graph_def.versions
        return Body.of(self._functions[one.name], self._library, one.variables, versions)

    def why_not(self, body: StepBody) -> str:
        """Why a function is not rewritten, or "" if it is."""
        wish = self._wish
        policy = replace(wish.policy, only="all") if wish.names_some else wish.policy
        refused = why_not(body.step_graph, policy)
        still_open = body.open_arguments(wish.shapes or {})
        if refused or not still_open:
            return refused
        name, shape = still_open[0]
        return f"the shape of {name} is open, {shape}: give one to plan with, --shape {name}=..."

    def settled(self, body: StepBody) -> StepBody:
        """A body as Grappler makes it; itself where that is not what is to be rewritten.

        A main graph has all nodes that it had, since others ask for them by name.

        Raises:
            OptionsError: It was asked for, and Grappler makes nothing of it.
            InvalidGraphError: What Grappler made cannot be built again.
        """
        wish, item = self._wish, body.item
        if is_final(item.graph_def) or wish.after_grappler is False:
            return body
        if wish.after_grappler is None and not computes_gradients(body.step_graph):
            return body
        settled = settle_main_graph(item) if isinstance(body, GraphBody) else _settled(item)
        if settled is None and wish.after_grappler:
            raise OptionsError("Grappler is off, or makes nothing of the function")
        return body if settled is None else body.with_item(settled)

    def _rewritten(self, one: ModelFunction, report: FunctionReport) -> FunctionReport:
        body = self.body(one)
        refused = self.why_not(body)
        if not refused and one.captured and not computes_gradients(body.step_graph):
            refused = _CAPTURED
        if refused:
            return replace(report, reason=refused)
        if one.compiled:
            return self._compiled(one, body, report)
        settled = self.settled(body)
        return self._planned(one, settled, replace(report, after_grappler=settled is not body))

    def _planned(
        self, one: ModelFunction, body: StepBody, report: FunctionReport
    ) -> FunctionReport:
        """Plan and rewrite a function, or say what came of it."""
        shapes = self._wish.shapes or {}
        sized = body.sized(shapes)
        item = sized if self._wish.fix_shapes else body.item
        work = _Work(item, Properties.of(sized), self._wish.policy)
        runtime = work.report.runtime
        report = replace(
            report,
            outcome="unchanged",
            reason=work.summary(),
            report=work.report,
            nodes=len(body.item.graph_def.node),
        )
        if runtime is not None:
            after = runtime.after if work.is_worth_it else runtime.before
            report = replace(
                report,
                held_bytes=runtime.before.held_bytes,
                peak_before_bytes=runtime.before.peak_bytes,
                peak_after_bytes=after.peak_bytes,
                budget_bytes=runtime.budget_bytes,
            )
        if not work.is_worth_it:
            return report
        graph_def = work.finished()
        if isinstance(body, GraphBody):
            kept = body.with_uses_kept(graph_def)
            if kept is not graph_def:
                after_bytes = _peak_bytes(replace(sized, graph_def=with_arguments_of(sized, kept)))
                if after_bytes >= report.peak_before_bytes:
                    reason = f"{_USES_KEPT}, it would need {after_bytes} bytes"
                    return replace(report, peak_after_bytes=report.peak_before_bytes, reason=reason)
                graph_def, report = kept, replace(report, peak_after_bytes=after_bytes)
        return self._put_if_open(one, body, graph_def, report)

    def _compiled(
        self, one: ModelFunction, body: StepBody, report: FunctionReport
    ) -> FunctionReport:
        """Rewrite a function that XLA compiles, or say what came of it."""
        shapes = self._wish.shapes or {}
        values = self.variables(one)
        done = rewrite_compiled_item(body.sized(shapes), self._wish.policy, values)
        report = replace(
            report,
            outcome="unchanged",
            reason=done.reason,
            held_bytes=done.held_bytes,
            peak_before_bytes=done.before_bytes,
            peak_after_bytes=done.after_bytes,
            budget_bytes=done.budget_bytes,
        )
        if done.graph_def is None:
            return report
        return self._put_if_open(one, body, done.graph_def, report)

    def _put_if_open(
        self, one: ModelFunction, body: StepBody, graph_def: GraphDef, report: FunctionReport
    ) -> FunctionReport:
        """Put a rewritten body in its place, unless it would take fewer shapes than before."""
        shapes = self._wish.shapes or {}
        is_open = body.sized(shapes).graph_def != body.item.graph_def
        if is_open and not self._wish.fix_shapes:
            node = fixed_shape(body.item, graph_def, body.sized(shapes, more=1))
            if node:
                return replace(
                    report,
                    outcome="left alone",
                    peak_after_bytes=report.peak_before_bytes,
                    reason="rewritten, it would take these shapes and no others, because of "
                    f"{node!r} (--fix-shapes accepts that)",
                )
        self.put(one, body, graph_def, after_grappler=report.after_grappler)
        return replace(report, outcome="rewritten", nodes_after=len(graph_def.node))

    def put(
        self, one: ModelFunction, body: StepBody, graph_def: GraphDef, *, after_grappler: bool
    ) -> None:
        """Put a rewritten body into the library, with the functions that only it calls.

        Args:
            one: The function.
            body: Its body.
            graph_def: The body's graph, rewritten.
            after_grappler: Whether the body is what Grappler made, to be run without it.

        Raises:
            InvalidGraphError: TensorFlow would refuse the function.
        """
        if not isinstance(body, Body):
            put_in_main_graph(self._meta_graph, graph_def)
            self._functions = {known.signature.name: known for known in self._library.function}
            return
        function, added = with_graph(body, graph_def)
        added = [each for each in added if each.signature.name not in self._functions]
        if after_grappler:
            function, inner = without_grappler(function, self._functions)
            added.append(inner)
        if one.captured:
            added.append(keep_captured(self._functions[one.name], one.captured, self._functions))
        self._functions[one.name].CopyFrom(function)
        for each in added:
            self._library.function.add().CopyFrom(each)
        self._functions = {known.signature.name: known for known in self._library.function}


def _peak_bytes(item: GrapplerItem) -> int:
    """The predicted peak of a step."""
    context = replace(Context.of_item(item, Properties.of(item)), runtime=runtime_here())
    step = Step.in_context(from_graph_def(item.graph_def), context)
    return step.run(context.inter_op_threads).peak_bytes


def _settled(item: GrapplerItem) -> GrapplerItem | None:
    """What Grappler makes of an item, the same whatever functions this process has.

    Raises:
        InvalidGraphError: TensorFlow refuses it.
    """
    import tensorflow as tf

    # TensorFlow goes by names: functions of this process may have those of the model's.
    renamed = rename_changed_functions(item.graph_def, lambda _: True)
    library = item.graph_def.library.function
    names = {
        new.signature.name: old.signature.name
        for new, old in zip(renamed.library.function, library, strict=True)
    }
    try:
        with _functions_forgotten(names):
            settled = settle_item(replace(item, graph_def=renamed))
    except tf.errors.OpError as error:
        raise InvalidGraphError(f"TensorFlow refuses the function: {error.message}") from error
    if settled is None:
        return None
    return replace(settled, graph_def=rename_functions(settled.graph_def, names))


def computes_gradients(graph_def: GraphDef) -> bool:
    """Whether a graph trains, by its operations."""
    return not why_not(graph_def, Policy(min_nodes=0, only_lower=False))


@contextmanager
def _functions_forgotten(names: Iterable[str]) -> Iterator[None]:
    """Let TensorFlow forget functions of a SavedModel's library that it comes to know meanwhile.

    A program that makes functions may come to give one of them the same name.
    """
    from tensorflow.python.eager import context

    known = context.context()
    before = set(known.list_function_names())
    try:
        yield
    finally:
        for name in sorted((set(known.list_function_names()) - before).intersection(names)):
            known.remove_function(name)
