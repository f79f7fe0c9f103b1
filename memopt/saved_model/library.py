"""Functions of one library rewritten: planned, checked, and put in the place of the old ones."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from memopt.errors import BudgetError, InvalidGraphError, MemoptError, OptionsError
from memopt.graph.final import is_final
from memopt.plugin.policy import Policy
from memopt.plugin.screening import why_not
from memopt.plugin.settled_item import settle_item
from memopt.plugin.work import Work
from memopt.runtime.library import rename_changed_functions, rename_functions
from memopt.saved_model.assembly import with_graph, without_grappler
from memopt.saved_model.bodies import Body
from memopt.saved_model.captures import keep_captured
from memopt.saved_model.report import FunctionReport
from memopt.saved_model.shapes import fixed_shape
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult
    from memopt.saved_model.functions import ModelFunction

_CAPTURED = (
    "it computes no gradients, and the functions that do capture tensors inside of it (custom "
    "gradients)"
)


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
    """The functions of one graph with its tags."""

    def __init__(self, meta_graph: MetaGraphDef, wish: Wish) -> None:
        self._meta_graph = meta_graph
        self._wish = wish
        self._library = meta_graph.graph_def.library
        self._functions = {one.signature.name: one for one in self._library.function}

    def rewrite(self, one: ModelFunction) -> FunctionReport:
        """Rewrite a function, or say why not."""
        function = self._functions[one.name]
        report = FunctionReport(
            one.name,
            one.called_as,
            tuple(one.signatures),
            tuple(self._meta_graph.meta_info_def.tags),
            "left alone",
            one.refusal,
            nodes=len(function.node_def),
            nodes_after=len(function.node_def),
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
        declared = self._meta_graph.meta_info_def.stripped_op_list.op
        if not declared:
            return
        for op in sorted(used - {one.name for one in declared}):
            definition = op_def_registry.get(op)
            if definition is not None:
                declared.add().CopyFrom(definition)

    def body(self, one: ModelFunction) -> Body:
        """A function's body as it stands in the library.

        Raises:
            InvalidGraphError: It breaks a rule.
        """
        versions = self._meta_graph.graph_def.versions
        return Body.of(self._functions[one.name], self._library, one.variables, versions)

    def why_not(self, body: Body) -> str:
        """Why a function is not rewritten, or "" if it is."""
        wish = self._wish
        policy = replace(wish.policy, only="all") if wish.names_some else wish.policy
        refused = why_not(body.item.graph_def, policy)
        still_open = body.open_arguments(wish.shapes or {})
        if refused or not still_open:
            return refused
        name, shape = still_open[0]
        return f"the shape of {name} is open, {shape}: give one to plan with, --shape {name}=..."

    def settled(self, body: Body) -> Body:
        """A body as Grappler makes it; itself where that is not what is to be rewritten.

        Raises:
            OptionsError: It was asked for, and Grappler makes nothing of it.
            InvalidGraphError: What Grappler made cannot be built again.
        """
        wish, item = self._wish, body.item
        if is_final(item.graph_def) or wish.after_grappler is False:
            return body
        if wish.after_grappler is None and not computes_gradients(item.graph_def):
            return body
        settled = _settled(item)
        if settled is None and wish.after_grappler:
            raise OptionsError("Grappler is off, or makes nothing of the function")
        return body if settled is None else replace(body, item=settled)

    def _rewritten(self, one: ModelFunction, report: FunctionReport) -> FunctionReport:
        body = self.body(one)
        refused = self.why_not(body)
        if not refused and one.captured and not computes_gradients(body.item.graph_def):
            refused = _CAPTURED
        if refused:
            return replace(report, reason=refused)
        settled = self.settled(body)
        return self._planned(one, settled, replace(report, after_grappler=settled is not body))

    def _planned(self, one: ModelFunction, body: Body, report: FunctionReport) -> FunctionReport:
        """Plan and rewrite a function, or say what came of it."""
        shapes = self._wish.shapes or {}
        sized = body.sized(shapes)
        is_open = sized.graph_def != body.item.graph_def
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
        self, one: ModelFunction, body: Body, graph_def: GraphDef, *, after_grappler: bool
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
