"""The ConfigProto under which a graph is optimized, which TensorFlow's C API does not pass on.

That of functions is the eager context's. That of a v1 session is known while `Session.run` of
Python runs; a session of another language, or a callable made before, does not tell it.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    from memopt.plugin.process import Process

_of_session: ContextVar[ConfigProto | None] = ContextVar("memopt_session", default=None)
_FIRST_TAG = 1 << 20
"""Larger than what anybody would set `placement_period` to."""


def config_of_session() -> ConfigProto | None:
    """The configuration of the session that runs in this thread; `None` if none is known to."""
    return _of_session.get()


def config_of_functions() -> ConfigProto:
    """The configuration under which this thread runs functions."""
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    config: ConfigProto = config_pb2.ConfigProto()
    options = context.context().function_call_options
    config.ParseFromString(options.config_proto_serialized)
    return config


def note_session_configs(process: Process) -> None:
    """Have Python's sessions tell their configuration while they run; once in a process."""
    from tensorflow.python.client import session

    with process.lock:
        run = session.BaseSession._do_run  # noqa: SLF001 - the one place through which all runs go
        if getattr(run, "notes_config", False):
            return
        session.BaseSession._do_run = _noting(run)  # noqa: SLF001


def _noting(run: Any) -> Any:
    @wraps(run)
    def noting(self: Any, *arguments: Any, **keywords: Any) -> Any:
        token = _of_session.set(getattr(self, "_config", None))
        try:
            return run(self, *arguments, **keywords)
        finally:
            _of_session.reset(token)

    noted: Any = noting
    noted.notes_config = True
    return noted


def tag_functions(number: int, *, disable_fusions: bool) -> Any:
    """Have functions run under a configuration of its own, so that they are optimized anew.

    The configuration is part of what TensorFlow knows a function that it has optimized by. What is
    added to it has no effect, on functions or on sessions, which get it too: how often nodes are
    placed anew, which TensorFlow has not done since it is public. Plugins are switched on, and the
    remapper off if that is asked for. It is so for this thread, and for others as soon as they run
    their first function or change an option.

    Returns:
        What `untag_functions` takes to undo it.
    """
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.eager import context

    known = context.context()
    before = (known._config, dict(known._optimizer_experimental_options))  # noqa: SLF001
    config = config_pb2.ConfigProto()
    if known._config is not None:  # noqa: SLF001
        config.CopyFrom(known._config)  # noqa: SLF001
    config.placement_period = _FIRST_TAG + number
    known._config = config  # noqa: SLF001
    options = {"use_plugin_optimizers": True}
    if disable_fusions:
        options["remapping"] = False
    known.set_optimizer_experimental_options(options)
    return before


def untag_functions(before: Any) -> None:
    """Undo `tag_functions`: functions that ran before run as they did then."""
    from tensorflow.python.eager import context

    known = context.context()
    config, options = before
    known._config = config  # noqa: SLF001
    current = known._optimizer_experimental_options  # noqa: SLF001
    for name in ("use_plugin_optimizers", "remapping"):
        if name in options:
            current[name] = options[name]
        else:
            current.pop(name, None)
    known.set_optimizer_experimental_options({})
