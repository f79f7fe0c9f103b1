"""The function that TensorFlow calls for each graph: nothing that fails in it gets out."""

from __future__ import annotations

import ctypes
import logging
import threading
from typing import TYPE_CHECKING, Any

from memopt.plugin.interrupts import guard, interrupt_later
from memopt.plugin.structures import ABORTED, OK, Buffer, api

if TYPE_CHECKING:
    from memopt.plugin.process import Process

_log = logging.getLogger("memopt")
_busy = threading.local()


def make_optimize(device: str, process: Process) -> Any:
    """The Python side of `TP_Optimizer.optimize` for one type of device.

    1. ABORTED, which leaves the graph as it is, is the outcome that is set first; OK is set last,
       once a graph that is not empty stands in the buffer.
    2. A graph that is optimized while memopt works on another in the same thread, for a function
       that memopt itself runs, is left alone.
    3. Whatever is raised is logged. An exception that reached C would leave an empty graph behind;
       what is raised before the first line does reach it, and `guard` looks after that.
    """
    set_status = api().TF_SetStatus

    def optimize(_self: Any, source: Any, item: int, target: Any, status: int) -> None:
        set_status(status, ABORTED, b"memopt: unchanged")
        rewrite = process.rewrite
        if rewrite is None or getattr(_busy, "is_set", False):
            return
        _busy.is_set = True
        try:
            data = ctypes.string_at(source.contents.data, source.contents.length)
            rewritten = rewrite(data, item, device)
            if rewritten:
                _hand_over(target, rewritten)
                set_status(status, OK, b"")
        except KeyboardInterrupt:
            interrupt_later()
        except BaseException:  # noqa: BLE001 - C++ would take an exception for an empty graph
            _log.exception("a graph is left unchanged: memopt failed")
        finally:
            _busy.is_set = False

    guard(optimize)
    return optimize


def _hand_over(target: Any, content: bytes) -> None:
    """Put bytes where TensorFlow frees them itself, with the C library's `free`."""
    libc = _libc()
    place = libc.malloc(len(content))
    if not place:
        raise MemoryError
    ctypes.memmove(place, content, len(content))
    buffer: Buffer = target.contents
    buffer.data, buffer.length = place, len(content)
    buffer.deallocator = ctypes.cast(libc.free, ctypes.c_void_p).value


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    return libc
