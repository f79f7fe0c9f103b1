"""What memopt does when TensorFlow calls it for a graph that is about to run."""

from __future__ import annotations

import time
from dataclasses import replace
from os import fspath
from typing import TYPE_CHECKING

from memopt.collector import collector_paused
from memopt.errors import MemoptError
from memopt.options import Budget, Level
from memopt.plugin import marks
from memopt.plugin.calls import data_may_end, find_open_input, find_shapes, usual_shapes
from memopt.plugin.capture import current_capture
from memopt.plugin.configs import config_of_functions, config_of_session
from memopt.plugin.deadline import deadline
from memopt.plugin.inferred_shapes import with_assumed, with_declared, with_list_elements
from memopt.plugin.native_item import is_function, item_of, read_names, read_shapes
from memopt.plugin.policy import Policy, Unset, current_policy
from memopt.plugin.records import (
    RECORDS,
    GraphRecord,
    fingerprint,
    say_rewritten,
    write_report,
)
from memopt.plugin.repeated import REPEATED, Rewriting, key_of, options_of
from memopt.plugin.scopes import asked_for
from memopt.plugin.screening import why_not
from memopt.plugin.work import Work, runtime_here
from memopt.plugin.xla import warn_of_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    from memopt.item import GrapplerItem
    from memopt.plugin.native_item import Names
    from memopt.plugin.records import Outcome
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import Shape


def rewrite(data: bytes, native: int, device: str) -> bytes | None:
    """Rewrite a graph, or leave it as it is. Whatever fails leaves it as it is, and is recorded.

    TensorFlow calls twice for each graph. The first time memopt only leaves a mark: what Grappler
    itself does with the graph is then the same with memopt and without, and so are the results. The
    second time nothing of Grappler's comes after memopt that could undo its work.

    Args:
        data: The GraphDef.
        native: TensorFlow's item, alive during this call.
        device: For which type of device TensorFlow calls.

    Returns:
        The rewritten GraphDef, or `None`.

    Raises:
        KeyboardInterrupt: The user wants to stop the program.
    """
    capture = current_capture()
    if capture is not None:
        taken = capture.take(parse(data), native, device)
        return None if taken is None else serialize(taken)
    policy = current_policy()
    if policy is None or (isinstance(policy, Unset) and marks.SCOPE.encode() not in data):
        return None
    call = _Call(native, device, policy)
    try:
        with collector_paused():
            return call.run(data)
    except KeyboardInterrupt as error:
        call.fail(error)
        raise
    except BaseException as error:  # noqa: BLE001 - nothing of memopt's may stop the training
        call.fail(error)
        return None


def parse(data: bytes) -> GraphDef:
    """The graph that TensorFlow hands over."""
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef.FromString(data)
    return graph_def


def serialize(graph_def: GraphDef) -> bytes:
    """The bytes that TensorFlow gets."""
    data: bytes = graph_def.SerializeToString()
    return data


class _PassedOverError(Exception):
    """The graph is not looked at any further."""


class _Call:
    """One call of TensorFlow's."""

    def __init__(self, native: int, device: str, policy: Policy | Unset) -> None:
        self._native = native
        self._device = device
        self._policy = policy
        self._started = time.perf_counter()
        self._graph_def: GraphDef | None = None

    def run(self, data: bytes) -> bytes | None:
        """What TensorFlow gets; `None` for the graph as it is."""
        graph_def = self._graph_def = parse(data)
        if marks.is_done(graph_def):
            return None
        warn_of_compiled(graph_def)
        try:
            config = config_of_functions() if is_function(graph_def) else config_of_session()
            policy = self._choose(graph_def, config)
            names = self._names()
            if not _is_last_turn(graph_def, self._device, config):
                marks.mark_seen(graph_def, (*names.fetched, *names.kept), self._device)
                return serialize(graph_def)
            return self._rewrite(graph_def, names, policy)
        except _PassedOverError as reason:
            RECORDS.add(self._record("passed over", str(reason)))
            return None

    def _names(self) -> Names:
        """What the caller asks for.

        Raises:
            _PassedOverError: Nothing.
        """
        names = read_names(self._native)
        if not (names.fetched or names.kept):
            raise _PassedOverError("nothing of it is asked for")
        return names

    def fail(self, error: BaseException) -> None:
        """Record what went wrong, and log it once."""
        described = " ".join(f"{type(error).__name__}: {error}".split())
        RECORDS.add(replace(self._record("failed", "the graph runs as it is"), error=described))
        RECORDS.say_once(f"a graph is left unchanged: {described}", error)

    def _choose(self, graph_def: GraphDef, config: ConfigProto | None) -> Policy:
        """What is to be done to a graph.

        Raises:
            _PassedOverError: Nothing is.
            OptionsError: The function or the user's RewriterConfig asks for what cannot be.
        """
        policy = asked_for(graph_def, self._policy)
        if policy is None or isinstance(policy, Unset):
            raise _PassedOverError("its function asks not to be rewritten")
        reason = why_not(graph_def, policy)
        if reason:
            raise _PassedOverError(reason)
        if not policy.from_config or config is None:
            return policy
        configured = policy.as_configured(config.graph_options.rewrite_options)
        if configured is None:
            raise _PassedOverError("its RewriterConfig says NO_MEM_OPT")
        return configured

    def _rewrite(self, graph_def: GraphDef, names: Names, policy: Policy) -> bytes | None:
        with deadline(policy.deadline_ms):
            item = replace(item_of(graph_def, names), data_ends=data_may_end())
            inferred = read_shapes(self._native, graph_def)
            shapes, device = find_shapes(graph_def, inferred), self._device
            key = key_of(
                graph_def,
                (*options_of(policy), names, shapes, item.data_ends, device, runtime_here()),
            )
            before = REPEATED.find(key)
            if before is not None:
                RECORDS.add(before.record)
                return before.rewritten or None
            open_input = find_open_input(graph_def, inferred, shapes)
            if open_input:
                _check_sizes(open_input, policy)
                shapes = {**shapes, **usual_shapes(graph_def, inferred, shapes)}
            known, item = _as_known(inferred, item, shapes)
            work = Work(item, known, policy)
            if work.why_not_ordered:
                raise _PassedOverError(work.why_not_ordered)
            rewritten = serialize(work.finished()) if work.is_worth_it else b""
            # In the deadline, since the effects of edits in a report take time to add up.
            record = self._report(work)
            if open_input:
                told = f"a usual size is assumed of what {open_input!r} gives, which is not known"
                record = replace(record, reason=f"{record.reason}; {told}")
            overhead = work.overhead if policy.verbose and rewritten else None
        RECORDS.add(record)
        REPEATED.keep(key, Rewriting(rewritten, record))
        if policy.verbose and rewritten:
            say_rewritten(record, overhead)
        return rewritten or None

    def _report(self, work: Work) -> GraphRecord:
        is_rewritten = work.is_worth_it
        outcome: Outcome = "rewritten" if is_rewritten else "unchanged"
        record = replace(self._record(outcome, work.summary()), level=work.report.level.value)
        if is_rewritten:
            record = replace(record, nodes_after=work.report.nodes_after)
        runtime = work.report.runtime
        if runtime is not None:
            memory = runtime.budgeted
            before_bytes = memory.peak_before_bytes
            record = replace(
                record,
                held_bytes=memory.held_bytes,
                peak_before_bytes=before_bytes,
                peak_after_bytes=memory.peak_after_bytes if is_rewritten else before_bytes,
                budget_bytes=memory.budget_bytes,
            )
        folder = work.policy.report_dir
        if folder is None or not is_rewritten:
            return record
        try:
            return replace(record, report_file=write_report(fspath(folder), record, work.report))
        except MemoptError as error:
            RECORDS.say_once(f"a report is not written: {error}", error)
            return record

    def _record(self, outcome: Outcome, reason: str) -> GraphRecord:
        graph_def = self._graph_def
        milliseconds = (time.perf_counter() - self._started) * 1000
        if graph_def is None:
            return GraphRecord("", "function", outcome, reason, milliseconds=milliseconds)
        return GraphRecord(
            fingerprint(graph_def),
            "function" if is_function(graph_def) else "session",
            outcome,
            reason,
            nodes=len(graph_def.node),
            nodes_after=len(graph_def.node),
            milliseconds=milliseconds,
        )


def _as_known(
    inferred: Properties, item: GrapplerItem, shapes: Mapping[str, tuple[Shape, ...]]
) -> tuple[Properties, GrapplerItem]:
    """All that is known of a graph's tensors, and its use, with the shapes of one call."""
    known, item = with_assumed(inferred, item, shapes)
    return with_list_elements(with_declared(known, item), item), item


def _check_sizes(open_input: str, policy: Policy) -> None:
    """Look after what comes in and is of a size that nobody knows: a usual one is assumed for it.

    Shares of a step are shares all the same, as far as the batch is in all that counts.

    Raises:
        _PassedOverError: An order would be chosen by such sizes alone.
    """
    if not policy.only_lower or not Level.parse(policy.level).orders:
        return
    if policy.budget is None:
        raise _PassedOverError(f"the size of what {open_input!r} gives is open, in this call too")
    if not Budget.parse(policy.budget).percent:
        RECORDS.say_once(
            f"the size of what {open_input!r} gives is not known before the step runs, so a budget "
            'in bytes says little: give a share ("50%"), let the data set drop what does not fill '
            "a batch (drop_remainder=True), or tell a PyDataset its batch_size"
        )


def _is_last_turn(graph_def: GraphDef, device: str, config: ConfigProto | None) -> bool:
    """Whether Grappler does not optimize the graph again after this.

    Twice it does, unless the configuration says once. Where that is not known and it is once, the
    graph stays as it is.
    """
    if marks.was_seen(graph_def, device):
        return True
    if config is None:
        return False
    rewriter = config.graph_options.rewrite_options
    return bool(rewriter.meta_optimizer_iterations == rewriter.ONE)
