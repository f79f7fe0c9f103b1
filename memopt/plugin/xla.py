"""Functions that XLA compiles: Grappler never sees them, so they are rewritten when traced."""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memopt.display import bytes_text
from memopt.errors import InvalidGraphError, MemoptError
from memopt.item import GrapplerItem, is_compiled
from memopt.options import Budget, Level
from memopt.plugin.depthwise import split_gradients
from memopt.plugin.device_memory import device_budget
from memopt.plugin.policy import Policy, current_policy
from memopt.plugin.records import RECORDS, GraphRecord, fingerprint, say_rewritten
from memopt.plugin.scopes import asked_for
from memopt.plugin.screening import why_not
from memopt.plugin.traces import find_argument_shapes, open_arguments
from memopt.plugin.transforms import replace_body
from memopt.runtime.program import Program, captured_values
from memopt.shapes.function_calls import compiled_functions
from memopt.xla.entry import CompiledOptions, CompiledRewrite, rewrite_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.plugin.process import Process
    from memopt.shapes.tensor_properties import Shape

_log = logging.getLogger("memopt")
_busy = threading.local()
_TRACED_NAME = re.compile(
    # The gradient of a function has the number of that, and one of its own.
    r"(?:__inference_)?_*backward_+(?P<differentiated>.*?)(?:_[0-9]+){1,2}"
    r"|(?:__(?:inference|forward))?_*(?P<name>.*?)(?:_[0-9]+)?"
)
_CREATES = "VarIsInitializedOp"
"""An op of functions that make variables: when those are there, the function is traced again."""
_TRACED_BEFORE = "it was traced before memopt was switched on"
_DIFFERENTIATED = "its gradients are taken outside of it"
"""Why a compiled function runs as it is that nobody looked at."""
_SECOND_MS = 1000
_SHARE_OF_COMPILING = 0.5
"""Of the time that a graph may take, what other forms of it are compiled in."""


def watch_traced_functions(process: Process) -> None:
    """Rewrite each function that XLA compiles when it is traced; once in a process."""
    from tensorflow.python.eager.polymorphic_function import transform

    with process.lock:
        if any(getattr(known, "watches_xla", False) for known in process.kept):
            return
        watch = _Watch()
        process.kept.append(watch)
        transform.CONCRETE_FUNCTION_CALLBACKS.append(watch)


def warn_of_compiled(graph_def: GraphDef) -> None:
    """Warn of the functions that a graph has XLA compile and that nobody looked at."""
    for name in compiled_functions(graph_def):
        if name not in _Watch.seen:
            plain = plain_name(name)
            if plain in _Watch.split:
                continue
            is_part = plain in map(plain_name, _Watch.seen)
            _warn(plain, _DIFFERENTIATED if is_part else _TRACED_BEFORE)


def plain_name(traced: str) -> str:
    """What the author called a function that TensorFlow calls `__inference_train_step_123`."""
    match = _TRACED_NAME.fullmatch(traced)
    return (match["differentiated"] or match["name"] if match else "") or traced


class _Watch:
    """Sees every function that is traced."""

    watches_xla = True
    seen: set[str] = set()  # noqa: RUF012 - one for the process, as TensorFlow's functions are
    """The compiled functions that were looked at, by TensorFlow's names."""
    split: set[str] = set()  # noqa: RUF012 - likewise
    """Those whose gradients, taken outside, are computed in parts; by their authors' names."""

    def __call__(self, function: Any) -> None:
        if getattr(_busy, "is_set", False):
            return
        _busy.is_set = True
        try:
            if is_compiled(function):
                self._look_at(function)
        except Exception as error:  # noqa: BLE001 - a bug of memopt's must not stop the user's tracing
            RECORDS.say_once(f"a compiled function is left as it is: {error}", error)
        finally:
            _busy.is_set = False

    def _look_at(self, function: Any) -> None:
        graph_def = function.graph.as_graph_def()
        current = current_policy()
        policy = None if current is None else asked_for(graph_def, current)
        if not isinstance(policy, Policy):
            return
        name = function.function_def.signature.name
        self.seen.add(name)
        if policy.level == Level.ORDERED:
            self._split_gradients(function, graph_def)
        if why_not(graph_def, policy) or any(n.op == _CREATES for n in graph_def.node):
            return
        if policy.level != Level.ORDERED:
            _warn(plain_name(name), f"level {policy.level} has no effect on it")
            return
        _rewrite(function, graph_def, policy)

    def _split_gradients(self, function: Any, graph_def: GraphDef) -> None:
        started = time.monotonic()
        count = split_gradients(function)
        if not count:
            return
        self.split.add(plain_name(function.function_def.signature.name))
        RECORDS.add(
            GraphRecord(
                fingerprint(graph_def),
                "compiled",
                "rewritten",
                f"gradients of {count} depthwise convolutions are taken in parts, by channels",
                Level.ORDERED,
                len(graph_def.node),
                milliseconds=_SECOND_MS * (time.monotonic() - started),
            )
        )


def _rewrite(function: Any, graph_def: GraphDef, policy: Policy) -> None:
    """Put the body in the place of a function's own that needs less when it is compiled."""
    import tensorflow as tf

    name = plain_name(function.function_def.signature.name)
    started = time.monotonic()
    shapes = find_argument_shapes(function)
    try:
        with tf.init_scope():
            options = _options(policy, graph_def)
            done = rewrite_compiled(function, options, program=_program(function, shapes))
            if done.function is not function:
                replace_body(function, done.function)
    except MemoptError as error:
        _warn(name, str(error))
        RECORDS.add(
            GraphRecord(
                fingerprint(graph_def),
                "compiled",
                "failed",
                "XLA compiles it",
                Level.ORDERED,
                len(graph_def.node),
                milliseconds=_SECOND_MS * (time.monotonic() - started),
                error=f"{type(error).__name__}: {error}",
            )
        )
        return
    record = _record(graph_def, done, _SECOND_MS * (time.monotonic() - started))
    RECORDS.add(record)
    if policy.verbose and record.outcome == "rewritten":
        say_rewritten(record)
    _log.debug("%s, which XLA compiles: %s", name, record)
    _tell(name, done)


def _options(policy: Policy, graph_def: GraphDef) -> CompiledOptions:
    budget = policy.budget
    if isinstance(budget, Budget) and budget.of_device:
        budget = _budget_here(graph_def)
    return CompiledOptions(
        budget=budget if isinstance(budget, Budget) else None,
        same_bits=policy.same_bits,
        nearest=True,
        algorithm=policy.algorithm,
        scheduler=policy.scheduler,
        planning_seconds=policy.planning_seconds,
        seconds=_SHARE_OF_COMPILING * policy.deadline_ms / _SECOND_MS,
        remembers=True,
    )


def _budget_here(graph_def: GraphDef) -> Budget:
    """What the device has that a function runs on which is not placed yet: the first one."""
    import tensorflow as tf

    placed = type(graph_def)()
    device = (tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))[0]
    placed.node.add(name="placed", op="NoOp", device=device.name)
    budget = device_budget(placed)
    return budget.devices[0][1] if budget.devices else budget


def _program(function: Any, shapes: Mapping[str, tuple[Shape, ...]]) -> Program:
    """The step to compile and compare, with its values if they are known where it is traced.

    Args:
        function: The function.
        shapes: Those of arguments in the call that waits, where the function leaves them open.

    Raises:
        InvalidGraphError: A shape is neither known nor told by the call.
    """
    open_ones = [one.name for one in open_arguments(function) if one.op.name not in shapes]
    if open_ones:
        raise InvalidGraphError(
            f"nothing tells how large its arguments are ({', '.join(open_ones)} is open); trace it "
            "with known shapes, or let it be traced by the call that runs it"
        )
    item = replace(GrapplerItem.from_concrete_function(function), assumed_shapes=shapes)
    try:
        constants, variables = captured_values(function, item)
    except Exception:  # noqa: BLE001 - variables may not be initialized, or be of an outer graph
        constants, variables = {}, {}
    return Program.from_item(item, constants, variables)


def _record(graph_def: GraphDef, done: CompiledRewrite, milliseconds: float) -> GraphRecord:
    held_bytes = done.original.argument_bytes
    is_changed = bool(done.reports)
    told = f"XLA compiled {done.compilations} forms of it"
    if is_changed:
        edits = (edit for report in done.reports for edit in report.edits)
        told = "; ".join((*dict.fromkeys(edit.reason for edit in edits), told))
    return GraphRecord(
        fingerprint(graph_def),
        "compiled",
        "rewritten" if is_changed else "unchanged",
        told,
        Level.ORDERED,
        len(graph_def.node),
        len(done.function.graph.get_operations()),
        held_bytes,
        held_bytes + done.original.step_peak_bytes,
        held_bytes + done.memory.step_peak_bytes,
        held_bytes + done.limit_bytes if done.limit_bytes else 0,
        milliseconds,
    )


def _tell(name: str, done: CompiledRewrite) -> None:
    """Warn of a budget that is not kept."""
    if not done.limit_bytes or done.memory.step_peak_bytes <= done.limit_bytes:
        return
    needs = bytes_text(done.memory.step_peak_bytes)
    why = "the lowest that was found"
    if not done.reports:
        why = "no form of it was found that needs much less"
    if done.equal is False:
        why = (
            "what keeps the budget computes other last bits, since XLA fuses and rounds otherwise; "
            "same_bits=False accepts that"
        )
    RECORDS.say_once(
        f"XLA compiles {name!r}: it needs {needs} of its own, over the budget of "
        f"{bytes_text(done.limit_bytes)} for that: {why}"
    )


def _warn(name: str, why: str) -> None:
    RECORDS.say_once(f"XLA compiles {name!r}, and it runs as it is: {why}")
