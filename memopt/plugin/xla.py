"""Functions that XLA compiles: nothing can rewrite them, and one warning says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memopt.item import COMPILED, is_compiled
from memopt.plugin.policy import Policy, current_policy
from memopt.plugin.records import RECORDS
from memopt.plugin.screening import why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.plugin.process import Process

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_TRACED_NAME = re.compile(
    # The gradient of a function has the number of that, and one of its own.
    r"(?:__inference_)?_*backward_+(?P<differentiated>.*?)(?:_[0-9]+){1,2}"
    r"|(?:__(?:inference|forward))?_*(?P<name>.*?)(?:_[0-9]+)?"
)


def watch_traced_functions(process: Process) -> None:
    """Warn of each function that XLA compiles when it is traced; once in a process.

    Grappler never sees such a function if it is called directly.
    """
    from tensorflow.python.eager.polymorphic_function import transform

    with process.lock:
        if any(getattr(known, "watches_xla", False) for known in process.kept):
            return
        watch = _Watch()
        process.kept.append(watch)
        transform.CONCRETE_FUNCTION_CALLBACKS.append(watch)


def warn_of_compiled(graph_def: GraphDef) -> None:
    """Warn of the functions that a graph has XLA compile."""
    for name in compiled_functions(graph_def):
        _warn(name)


def compiled_functions(graph_def: GraphDef) -> Iterator[str]:
    """The functions that a graph has XLA compile, as their authors call them."""
    for node in graph_def.node:
        if node.op in _CALLS and COMPILED in node.attr and node.attr[COMPILED].b:
            yield plain_name(node.attr["f"].func.name)


def plain_name(traced: str) -> str:
    """What the author called a function that TensorFlow calls `__inference_train_step_123`."""
    match = _TRACED_NAME.fullmatch(traced)
    return (match["differentiated"] or match["name"] if match else "") or traced


class _Watch:
    watches_xla = True

    def __call__(self, function: Any) -> None:
        policy = current_policy()
        if not isinstance(policy, Policy):
            return
        try:
            if not is_compiled(function):
                return
            if not why_not(function.graph.as_graph_def(), policy):
                _warn(plain_name(function.function_def.signature.name))
        except Exception as error:  # noqa: BLE001 - a bug of memopt's must not stop the user's tracing
            RECORDS.say_once(f"a function was not looked at: {error}", error)


def _warn(name: str) -> None:
    RECORDS.say_once(
        f"XLA compiles {name!r}, so nothing can rewrite it and it runs as it is; use "
        "jit_compile=False to have it rewritten (in Keras, model.compile(jit_compile=False))"
    )
