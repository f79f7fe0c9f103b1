"""A deadline for work in Python: where it passes, the work ends with an exception."""

from __future__ import annotations

import ctypes
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memopt.errors import MemoptError

if TYPE_CHECKING:
    from collections.abc import Iterator


class DeadlineError(BaseException):
    """The time was up. No `Exception`: what handles failures of one pass must not handle it."""


@contextmanager
def deadline(milliseconds: int) -> Iterator[None]:
    """Raise a `MemoptError` from the code inside if it takes longer.

    The interpreter raises it between two steps of Python; a call into C is waited for.
    """
    timer = _Timer(threading.get_ident(), milliseconds / 1000)
    timer.start()
    try:
        yield
        timer.stop()
    except DeadlineError:
        raise MemoptError(f"the deadline of {milliseconds} ms has passed") from None
    finally:
        timer.stop()


class _Timer:
    """Raises in another thread after a while, but never once it was stopped."""

    def __init__(self, thread: int, seconds: float) -> None:
        self._thread = ctypes.c_ulong(thread)
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True
        self._is_stopped = False
        self._has_fired = False

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            if self._has_fired:
                # Take it back, if it was not raised yet.
                self._raise(None)
        self._timer.cancel()

    def _fire(self) -> None:
        with self._lock:
            if not self._is_stopped:
                self._has_fired = True
                self._raise(ctypes.py_object(DeadlineError))

    def _raise(self, error: ctypes.py_object[type[BaseException]] | None) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self._thread, error)
