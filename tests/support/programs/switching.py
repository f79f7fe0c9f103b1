"""Switches memopt on and off in all ways, breaks each of its steps, and tells what happened."""

from __future__ import annotations

import importlib
import logging
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

import memopt
from memopt.plugin import callback, interrupts, records, rewriting
from support.programs.steps import KINDS, Net, make_data, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

CASES: list[Callable[[], Any]] = []


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    CASES.append(function)
    return function


def outcomes(run: Callable[[], Any]) -> list[str]:
    """What was done to graphs of some size while a function ran."""
    seen = len(memopt.last_reports())
    run()
    return [r.outcome for r in memopt.last_reports()[seen:] if r.outcome != "passed over"]


def new_step(**keywords: Any) -> Callable[[], Any]:
    """A training step that was not traced before."""
    import tensorflow as tf

    net = Net()
    step = tf.function(net.train, **keywords)
    return lambda: step(*make_data()).numpy()


@case
def nothing_happens_before_it_is_switched_on() -> Any:
    before = memopt.plugin_status()
    return [before.registered, before.policy, outcomes(new_step())]


@case
def functions_that_ran_are_optimized_anew() -> Any:
    step = new_step()
    found = [outcomes(step)]
    for switch in (
        memopt.enable,
        memopt.enable,
        lambda: memopt.enable(level="recomputation_heuristics"),
        lambda: memopt.enable(budget="60%"),
        memopt.disable,
        lambda: memopt.enable(level="recomputation_heuristics"),
    ):
        switch()
        found.append(outcomes(step))
    memopt.disable()
    return found


@case
def it_is_on_inside_a_with_statement() -> Any:
    step, other = new_step(), new_step()
    with memopt.enabled():
        inside = outcomes(step)
        elsewhere: list[list[str]] = []
        thread = threading.Thread(target=lambda: elsewhere.append(outcomes(other)))
        thread.start()
        thread.join()
    return [inside, elsewhere[0], outcomes(new_step()), outcomes(step)]


@case
def the_users_options_come_back() -> Any:
    import tensorflow as tf

    def options() -> Any:
        return dict(sorted(tf.config.optimizer.get_experimental_options().items()))

    tf.config.optimizer.set_experimental_options({"remapping": True})
    before = options()
    memopt.enable(disable_fusions=True)
    inside = options()
    memopt.disable()
    return [before == options(), inside["remapping"], inside["use_plugin_optimizers"]]


@case
def the_status_says_how() -> Any:
    memopt.enable()
    status = memopt.plugin_status()
    memopt.disable()
    return [status.registered, status.failures, str(status).splitlines()[0]]


@case
def functions_ask_for_themselves() -> Any:
    import tensorflow as tf

    from memopt.plugin.policy import UNSET, set_policy

    def decorated(**options: Any) -> Callable[[], Any]:
        net = Net()
        step = memopt.optimize_function(only_lower=False, **options)(tf.function(net.train))
        return lambda: step(*make_data())

    def below() -> Callable[[], Any]:
        net = Net()
        step = tf.function(memopt.optimize_function(only_lower=False)(net.train))
        return lambda: step(*make_data())

    set_policy(UNSET)
    found = [outcomes(decorated()), outcomes(below()), outcomes(new_step())]
    found.append(outcomes(decorated(level="recomputation_heuristics")))
    found.append([memopt.last_reports()[-1].level])
    memopt.enable()
    found.append(outcomes(decorated(enabled=False)))
    memopt.disable()
    found.append(outcomes(decorated()))
    return found


@case
def faults() -> Any:
    """For each step of the work: same results, a record, and one warning."""
    without = KINDS["function"]()
    found = {}
    failures = {
        "parse": ValueError("broken"),
        "asked_for": ZeroDivisionError(),
        "why_not": KeyError("x"),
        "read_names": memopt.InvalidGraphError("no names"),
        "item_of": RuntimeError("no item"),
        "read_shapes": OSError("no shapes"),
        "Work": memopt.InvalidGraphError("not verified"),
        "serialize": MemoryError(),
        "config_of_functions": SystemExit(3),
    }
    for name, error in failures.items():
        records.RECORDS.clear()
        memopt.enable()
        with mock.patch.object(rewriting, name, side_effect=error), _Logged() as logged:
            same = KINDS["function"]() == without
        last = [r for r in memopt.last_reports() if r.outcome == "failed"]
        found[name] = [same, sorted({r.error for r in last}), len(logged.messages)]
        memopt.disable()
    return found


@case
def verification_failed() -> Any:
    """A graph without its nodes is never handed over."""
    from memopt.plugin import marks

    def forget_node(graph_def: Any, _names: Any) -> None:
        del graph_def.node[:]

    without = KINDS["function"]()
    memopt.enable()
    with mock.patch.object(marks, "mark_done", forget_node):
        same = KINDS["function"]() == without
    memopt.disable()
    return [same, memopt.last_reports()[-1].error]


@case
def interrupted() -> Any:
    """The user's Ctrl-C still stops the program, and the function is as good as before."""
    gradient = _new_gradient()
    without = gradient()()
    step = gradient()
    memopt.enable()
    with mock.patch.object(rewriting, "read_shapes", side_effect=KeyboardInterrupt) as pressed:
        stopped = _is_stopped(step)
    same = step() == without
    memopt.disable()
    error = [r.error for r in memopt.last_reports() if r.error][-1]
    return [same, stopped, pressed.call_count, error]


@case
def interrupted_in_between() -> Any:
    """Likewise while TensorFlow is at work in C++, and memopt the next Python that runs.

    Nobody can say when that is, so Ctrl-C is pressed again and again, for a new function each time.
    """
    gradient = _new_gradient()
    without = gradient()()
    found = set()
    in_between = False
    later = mock.Mock(wraps=interrupts.interrupt_later)
    memopt.enable()
    for _ in range(_TRIES):
        step = gradient()
        with mock.patch.object(interrupts, "interrupt_later", later):
            stopped = _interrupted_after_serializing(step)
        found.add((step() == without, stopped))
        in_between = later.called
        if in_between:
            break
    memopt.disable()
    return [*map(list, found), in_between]


_TRIES = 20


def _interrupted_after_serializing(step: Callable[[], object]) -> bool:
    """Press Ctrl-C once memopt has left the graph to TensorFlow; whether that stops the program."""
    pressing: list[threading.Thread] = []

    def serialize_and_interrupt(*arguments: Any) -> bytes:
        content = serialize(*arguments)
        if not pressing:
            target = partial(_interrupt_outside_of, callback.__file__)
            pressing.append(threading.Thread(target=target))
            pressing[0].start()
        return content

    serialize = rewriting.serialize
    with mock.patch.object(rewriting, "serialize", serialize_and_interrupt):
        return _is_stopped(step)


def _new_gradient() -> Callable[[], Callable[[], bytes]]:
    """Makes functions that were not traced before, each of which computes the same."""
    import tensorflow as tf

    net = Net()

    def gradient() -> Any:
        with tf.GradientTape() as tape:
            value = net.loss(*make_data())
        return tape.gradient(value, net.weights)[0]

    def new_function() -> Callable[[], bytes]:
        function = tf.function(gradient)
        return lambda: bytes(function().numpy().tobytes())

    return new_function


def _is_stopped(step: Callable[[], object]) -> bool:
    """Whether a function, or what comes next, is stopped as if by Ctrl-C."""
    # In the background of a shell, where Ctrl-C is ignored, it would not be.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        step()
        time.sleep(5)
    except KeyboardInterrupt:
        return True
    return False


def _interrupt_outside_of(file: str) -> None:
    """Press Ctrl-C as soon as the main thread is not in any function of a file."""
    main = threading.main_thread().ident
    assert main is not None
    # No pause: the lock that runs Python has to be got as soon as the main thread leaves it.
    while file in _files_of(sys._current_frames()[main]):
        pass
    signal.pthread_kill(main, signal.SIGINT)


def _files_of(frame: FrameType | None) -> set[str]:
    files = set()
    while frame is not None:
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    return files


@case
def too_late() -> Any:
    without = KINDS["function"]()
    memopt.enable(deadline_ms=100)

    def slow(*_: Any) -> Any:
        while True:
            time.sleep(0.001)

    with mock.patch.object(rewriting, "read_shapes", side_effect=slow):
        same = KINDS["function"]() == without
    memopt.disable()
    return [same, memopt.last_reports()[-1].error]


@case
def a_budget_that_cannot_be_kept() -> Any:
    without = KINDS["function"]()
    memopt.enable(budget=1000)
    records.RECORDS.clear()
    with _Logged() as logged:
        same = KINDS["function"]() == without
    memopt.disable()
    last = memopt.last_reports()[-1]
    return [same, last.outcome, last.budget_bytes, last.peak_after_bytes, logged.messages]


@case
def a_report_is_written() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder, "new")
        with memopt.enabled(report_dir=str(inside)):
            new_step()()
        last = memopt.last_reports()[-1]
        return [
            [path.name for path in inside.iterdir()],
            f"{last.fingerprint}-ordered.json",
            sorted(asdict(last)),
        ]


@case
def a_report_that_cannot_be_written() -> Any:
    with tempfile.NamedTemporaryFile() as file, memopt.enabled(report_dir=file.name):
        return [outcomes(new_step()), memopt.last_reports()[-1].report_file]


@case
def sessions_beside_each_other() -> Any:
    """Those that are made without a configuration get that of functions."""
    import tensorflow as tf

    with memopt.enabled(), tf.Graph().as_default():
        doubled = tf.constant(2.0) * 2.0
        with tf.compat.v1.Session() as one, tf.compat.v1.Session() as other:
            return [float(one.run(doubled)), float(other.run(doubled))]


@case
def xla() -> Any:
    import tensorflow as tf

    def outer(value: Any) -> Any:
        return inner(value + 1.0) * 2.0

    def my_step(value: Any) -> Any:
        return tf.tanh(value) * 3.0

    inner = tf.function(my_step, jit_compile=True)
    inner(tf.ones(3))
    with memopt.enabled(), _Logged() as logged:
        traced = tf.function(outer)
        # The first of these was traced before; of the second nobody asks for anything.
        traced(tf.ones(3))
        traced(tf.ones(4))
        tf.function(Net().train, jit_compile=True)(*make_data())
    kinds = [record.kind for record in memopt.last_reports() if record.outcome != "passed over"]
    return logged.messages, kinds.count("compiled")


@case
def from_config() -> Any:
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    v1 = tf.compat.v1
    made = v1.Session
    found = []
    for level in ("NO_MEM_OPT", "RECOMPUTATION_HEURISTICS", "DEFAULT_MEM_OPT"):
        config = config_pb2.ConfigProto()
        options = config.graph_options.rewrite_options
        options.memory_optimization = options.MemOptType.Value(level)
        with (
            mock.patch.object(v1, "Session", partial(made, config=config)),
            memopt.enabled(from_config=True),
        ):
            found.append([outcomes(session), memopt.last_reports()[-1].level])
    return found


@case
def one_turn_of_grappler() -> Any:
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    v1 = tf.compat.v1
    made = v1.Session
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.meta_optimizer_iterations = options.ONE
    without = session()
    with (
        mock.patch.object(v1, "Session", partial(made, config=config)),
        memopt.enabled(),
    ):
        same = []
        done = outcomes(lambda: same.append(session() == without))
    return [same, done]


@case
def what_needs_no_less_stays() -> Any:
    """What needs most has one order, and two chains after it need little in every order."""
    import tensorflow as tf

    def chains(value: Any) -> Any:
        total = tf.reduce_sum(tf.tanh(value @ value))
        one, other = total * 2.0, total * 3.0
        for _ in range(5):
            one, other = tf.tanh(one), tf.sin(other)
        return one, other

    found: list[Any] = []
    for only_lower in (False, True):
        with memopt.enabled(only="all", min_nodes=4, only_lower=only_lower):
            found.append(outcomes(lambda: tf.function(chains)(tf.ones((64, 64)))))
    record = memopt.last_reports()[-1]
    is_as_before = record.peak_before_bytes == record.peak_after_bytes > 0
    return [*found, is_as_before and record.nodes == record.nodes_after, record.reason]


@case
def reloaded() -> Any:
    modules = "policy process callback bridge records rewriting installing status switch"
    for name in modules.split():
        importlib.reload(sys.modules[f"memopt.plugin.{name}"])
    from memopt.plugin import status, switch

    with switch.enabled():
        new_step()()
    return [r.outcome for r in status.last_reports() if r.outcome == "rewritten"]


@case
def second_copy() -> Any:
    own = {name: module for name, module in sys.modules.items() if name.startswith("memopt")}
    for name in own:
        del sys.modules[name]
    copy = importlib.import_module("memopt")
    is_other = copy is not memopt
    with copy.enabled():
        new_step()()
    done = [r.outcome for r in copy.last_reports() if r.outcome == "rewritten"]
    for name in [name for name in sys.modules if name.startswith("memopt")]:
        del sys.modules[name]
    sys.modules.update(own)
    return [is_other, done, copy.plugin_status().registered]


class _Logged(logging.Handler):
    """What memopt logs inside a `with` statement."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def __enter__(self) -> Self:
        logging.getLogger("memopt").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("memopt").removeHandler(self)


def main() -> dict[str, Any]:
    """What each case tells; its error if it has one."""
    found = {}
    for run in CASES:
        try:
            found[run.__name__] = run()
        except Exception as error:  # noqa: BLE001 - the other cases are to run too
            found[run.__name__] = f"{type(error).__name__}: {error}"
        finally:
            if memopt.plugin_status().policy is not None:
                memopt.disable()
    return found
