"""Library functions of a graph, made known to this process beside those that it has.

TensorFlow keeps one library of functions per process and silently calls the first one that came
under a name. A rewritten graph whose library functions were rewritten too would run the old ones.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_NAME_ATTRIBUTES = ("forward_function_name", "backward_function_name")
"""String attributes that name a function."""


def rename_changed_functions(
    graph_def: GraphDef, differs: Callable[[FunctionDef], bool] | None = None
) -> GraphDef:
    """The graph with new names for functions that differ from this process's under their name.

    The functions that call them change with them, so they are renamed too. The new names depend
    only on the content, so the same graph always gets the same ones.

    Args:
        graph_def: The graph.
        differs: Which functions get a new name, where it is not this process that knows others.

    Returns:
        `graph_def` itself when nothing has to be renamed, otherwise a changed copy.
    """
    changed = _changed_functions(graph_def, differs or _differs_from_known)
    if not changed:
        return graph_def
    content = graph_def.library.SerializeToString(deterministic=True)
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    return rename_functions(graph_def, {name: f"{name}_memopt_{digest}" for name in changed})


def rename_functions(graph_def: GraphDef, names: Mapping[str, str]) -> GraphDef:
    """A copy of a graph in which library functions have other names, wherever they are called."""
    renamed = type(graph_def)()
    renamed.CopyFrom(graph_def)
    _rename(renamed, names)
    return renamed


def register_functions(graph_def: GraphDef) -> None:
    """Make the library functions of a graph known to this process, which importing does not."""
    from tensorflow.python.eager import context

    process = context.context()
    for function in graph_def.library.function:
        if not process.has_function(function.signature.name):
            process.add_function_def(function)


def called_by(node: NodeDef) -> Iterator[str]:
    """What a node may call by name; names of no function and "" are among it."""
    yield node.op
    for value in node.attr.values():
        yield value.func.name
        yield from (function.name for function in value.list.func)


def _changed_functions(graph_def: GraphDef, differs: Callable[[FunctionDef], bool]) -> set[str]:
    changed = {f.signature.name for f in graph_def.library.function if differs(f)}
    callers = _callers(graph_def)
    pending = list(changed)
    while pending:
        fresh = callers.get(pending.pop(), set()) - changed
        changed |= fresh
        pending.extend(fresh)
    return changed


def _differs_from_known(function: FunctionDef) -> bool:
    from tensorflow.python.eager import context

    process = context.context()
    name = function.signature.name
    return bool(process.has_function(name) and process.get_function_def(name) != function)


def _callers(graph_def: GraphDef) -> dict[str, set[str]]:
    callers: dict[str, set[str]] = {}
    for function in graph_def.library.function:
        for node in function.node_def:
            for callee in called_by(node):
                callers.setdefault(callee, set()).add(function.signature.name)
    return callers


def _rename(graph_def: GraphDef, names: Mapping[str, str]) -> None:
    for node in graph_def.node:
        _rename_in_node(node, names)
    for function in graph_def.library.function:
        function.signature.name = names.get(function.signature.name, function.signature.name)
        _rename_in_strings(function.attr, names)
        for node in function.node_def:
            _rename_in_node(node, names)
    for gradient in graph_def.library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)


def _rename_in_node(node: NodeDef, names: Mapping[str, str]) -> None:
    node.op = names.get(node.op, node.op)
    _rename_in_strings(node.attr, names)
    for value in node.attr.values():
        if value.func.name in names:
            value.func.name = names[value.func.name]
        for function in value.list.func:
            function.name = names.get(function.name, function.name)


def _rename_in_strings(attributes: Mapping[str, AttrValue], names: Mapping[str, str]) -> None:
    for key in _NAME_ATTRIBUTES:
        if key not in attributes:
            continue
        name = attributes[key].s.decode(errors="replace")
        if name in names:
            attributes[key].s = names[name].encode()
