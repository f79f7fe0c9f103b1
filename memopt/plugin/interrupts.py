"""Ctrl-C while TensorFlow waits for memopt: it stops the program, and no graph is lost by it."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from memopt.plugin.structures import ABORTED, api

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

_AFTER_S = 0.05
_guarded: set[CodeType] = set()


def interrupt_later() -> None:
    """Let the user's Ctrl-C stop the program, once TensorFlow is done with the graph.

    The thread is not waited for: by then it might interrupt this very callback.
    """
    _thread.start_new_thread(_interrupt, ())


def _interrupt() -> None:
    time.sleep(_AFTER_S)
    main = threading.main_thread().ident
    if main is not None and callable(signal.getsignal(signal.SIGINT)):
        # A real signal, since `interrupt_main` does not wake a thread that sleeps.
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def guard(callback: Callable[..., None]) -> None:
    """Leave the graph as it is where an exception gets out of a callback all the same.

    What the handler of a signal raises is raised as soon as Python runs again. If TensorFlow was at
    work in C++ until then, that is before the first line of the callback, where no `try` can stand.
    ctypes tells `sys.unraisablehook` of it, and returns to C++ with no status set and an empty
    graph: the user's function would be broken for good.

    Args:
        callback: A Python side of `TP_Optimizer.optimize`, whose last argument is `status`.
    """
    if not _guarded:
        sys.unraisablehook = _make_hook(sys.unraisablehook)
    _guarded.add(callback.__code__)


def _make_hook(usual: Callable[[Any], None]) -> Callable[[Any], None]:
    set_status = api().TF_SetStatus

    def hook(unraisable: Any) -> None:
        traceback = unraisable.exc_traceback
        if traceback is None or traceback.tb_frame.f_code not in _guarded:
            usual(unraisable)
            return
        set_status(traceback.tb_frame.f_locals["status"], ABORTED, b"memopt: interrupted")
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            interrupt_later()
        else:
            usual(unraisable)

    return hook
