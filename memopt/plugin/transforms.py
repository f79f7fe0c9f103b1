"""The last resort: functions are rewritten when they are traced, without Grappler."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memopt.plugin.process import Process

_log = logging.getLogger("memopt")
_busy = threading.local()


def install_transform(process: Process) -> None:
    """Have every function that is traced from now on offered to `Process.rewrite_function`.

    It reaches `tf.function` and Keras, whose step is one graph. It does not reach v1 Sessions,
    functions that were traced before, nor a forward part and its gradients that are traced as
    functions of their own. To do this twice does no harm.
    """
    from tensorflow.python.eager.polymorphic_function import transform

    if any(isinstance(known, _Swap) for known in process.kept):
        return
    swap = _Swap(process)
    process.kept.append(swap)
    transform.CONCRETE_FUNCTION_CALLBACKS.append(swap)


class _Swap:
    """Puts a rewritten body in the place of a function's own."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def __call__(self, function: Any) -> None:
        rewrite = self._process.rewrite_function
        if rewrite is None or getattr(_busy, "is_set", False):
            return
        _busy.is_set = True
        try:
            rewritten = rewrite(function)
            if rewritten is not None:
                replace_body(function, rewritten)
        except Exception:  # noqa: BLE001 - a bug of memopt's must not stop the user's tracing
            _log.exception("a function is left unchanged: memopt failed")
        finally:
            _busy.is_set = False


def replace_body(function: Any, rewritten: Any) -> None:
    """Let TensorFlow's runtime know another body by the function's name."""
    from tensorflow.core.framework import function_pb2
    from tensorflow.python.eager import context

    known = context.context()
    body = function_pb2.FunctionDef()
    body.CopyFrom(rewritten.function_def)
    body.signature.name = function.name
    known.remove_function(function.name)
    known.add_function_def(body)
