"""Functions that call themselves: TensorFlow's shape functions would follow them without an end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.shapes.function_calls import CALLS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef


def refuse_recursion(graph_def: GraphDef) -> None:
    """Check that no function of a graph calls itself, directly or through others; linear.

    Calls count, branches and loops do not: shape functions do not look into those.

    Raises:
        InvalidGraphError: One does; the message names it.
    """
    if not graph_def.library.function:
        return
    functions = {function.signature.name: function for function in graph_def.library.function}
    done: set[str] = set()
    for name, function in functions.items():
        open_calls = {} if name in done else {name: _callees(function, functions)}
        while open_calls:
            caller = next(reversed(open_calls))
            callee = next(open_calls[caller], None)
            if callee is None:
                done.add(caller)
                del open_calls[caller]
            elif callee in open_calls:
                raise InvalidGraphError(f"function {callee!r} calls itself", node=callee)
            elif callee not in done:
                open_calls[callee] = _callees(functions[callee], functions)


def _callees(function: FunctionDef, functions: Mapping[str, FunctionDef]) -> Iterator[str]:
    for node in function.node_def:
        name = node.attr["f"].func.name if node.op in CALLS and "f" in node.attr else node.op
        if name in functions:
            yield name
