"""Graphs of files as Grappler leaves them, with what a step does not need beside it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.graph.final import mark_final
from memopt.plugin.capture import capturing
from memopt.plugin.installing import install
from memopt.plugin.settled import settle_any
from memopt.runtime.function import Interface, build_plain_function
from memopt.runtime.graph_import import import_graph
from memopt.runtime.step_graph import (
    as_function_graph,
    find_variables,
    needed_nodes,
    node_name,
    renamed,
    with_named_variables,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.item import GrapplerItem
    from memopt.runtime.step_graph import StepVariable

_BEFORE = "before_grappler"
"""What the names of nodes end in that Grappler changed, and that something else than the step
needs as they were."""
_numbers = itertools.count(1)


def settle_item(item: GrapplerItem) -> GrapplerItem | None:
    """An item with what Grappler makes of its step, to be run with Grappler off.

    What the step does not need (initializers, savers) stays as it is, but for a function, of which
    nobody can ask for more: there it would run beside the step if it has effects, as loops over
    variables do. The step does not run.

    Args:
        item: The item.

    Returns:
        The item, with the same feeds and fetches; `None` where Grappler is off, or makes nothing of
        the step.

    Raises:
        InvalidGraphError: The graph cannot be imported, or what Grappler made of it cannot.
        OptionsError: A feed is not the first output of its node.
        PluginError: Another plugin rewrites graphs in this process.
    """
    install()
    variables = find_variables(item)
    if any(variable.kind == "reference" for variable in variables):
        step = _in_session(item)
    else:
        step = _as_function(item, variables)
    if step is None:
        return None
    graph_def = step if item.in_function else _with_rest(step, item)
    mark_final(graph_def, [node_name(name) for name in (*item.feed, *item.fetch)])
    return replace(item, graph_def=graph_def)


def _as_function(item: GrapplerItem, variables: Iterable[StepVariable]) -> GraphDef | None:
    """The step as Grappler leaves it when it runs as a function."""
    captures = [(f"{one.name}:0", _handle(one)) for one in variables]
    function = build_plain_function(
        as_function_graph(item),
        Interface(item.feed, captures, item.fetched_tensors, item.fetched_operations),
    )
    settled = settle_any(function)
    if settled is None:
        return None
    graph_def: GraphDef = settled.graph.as_graph_def()
    originals = {node.name: node for node in item.graph_def.node}
    for node in graph_def.node:
        # What the function captures or takes is what stands in the file.
        if node.op == "Placeholder" and node.name in originals:
            device = node.device
            node.CopyFrom(originals[node.name])
            node.device = node.device or device
    return graph_def


def _handle(variable: StepVariable) -> tf.Tensor:
    """A handle of a variable that nobody has given a value."""
    import tensorflow as tf

    return tf.raw_ops.VarHandleOp(
        dtype=variable.spec.dtype,
        shape=None if variable.spec.shape is None else _known(variable.spec.shape),
        shared_name=f"memopt_capture_{next(_numbers)}",
    )


def _known(shape: Iterable[int]) -> list[int | None]:
    return [None if size < 0 else size for size in shape]


def settle_in_session(item: GrapplerItem) -> GraphDef | None:
    """What Grappler makes of a step when it runs in a session of TensorFlow 1: the step alone.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
        PluginError: Another plugin rewrites graphs in this process.
    """
    install()
    return _in_session(item)


def _in_session(item: GrapplerItem) -> GraphDef | None:
    """The step as Grappler leaves it when it runs in a session of TensorFlow 1."""
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2

    graph = tf.Graph()
    import_graph(with_named_variables(item.graph_def), graph)
    options = config_pb2.CallableOptions(
        feed=item.feed, fetch=item.fetched_tensors, target=item.fetched_operations
    )
    with tf.compat.v1.Session(graph=graph) as session, capturing(in_session=True) as capture:
        try:
            # It optimizes the graph, and nothing runs until the callable is called.
            session._make_callable_from_options(options)  # noqa: SLF001 - there is no public way
        except tf.errors.OpError as error:
            raise InvalidGraphError(f"TensorFlow refuses the graph: {error.message}") from error
    step = capture.result()
    if step is not None:
        step.library.CopyFrom(item.graph_def.library)
    return step


def _with_rest(step: GraphDef, item: GrapplerItem) -> GraphDef:
    """A step and what else the original graph has.

    What that needs of the step's nodes it shares, where they are still the same, and has copies of
    otherwise.
    """
    originals = {node.name: node for node in item.graph_def.node}
    needed = needed_nodes(item.graph_def, (*item.fetch, *item.feed), item.feed)
    rest = [node for node in item.graph_def.node if node.name not in needed]
    present = {node.name: node for node in step.node}
    names: dict[str, str] = {}
    pending = [node_name(source) for node in rest for source in node.input]
    while pending:
        name = pending.pop()
        if name in names or name not in needed:
            continue
        original = originals[name]
        is_shared = name in present and _is_same(present[name], original)
        names[name] = name if is_shared else f"{name}/{_BEFORE}"
        if not is_shared:
            pending += [node_name(source) for source in original.input]
    copies = [originals[name] for name, now in names.items() if now != name]
    for node in (*rest, *copies):
        added = step.node.add()
        added.CopyFrom(node)
        added.name = names.get(node.name, node.name)
        if added.name in present:
            raise InvalidGraphError(
                "Grappler has made a node of a name that the graph has", node=added.name
            )
        added.input[:] = [renamed(source, names) for source in node.input]
        # It may lie beside what Grappler has taken out.
        added.attr.pop("_class", None)
    return step


def _is_same(now: NodeDef, before: NodeDef) -> bool:
    """Whether a node is what it was, but for its device and private attributes."""
    return (now.op, list(now.input)) == (before.op, list(before.input)) and (
        _public(now) == _public(before)
    )


def _public(node: NodeDef) -> dict[str, Any]:
    return {key: value for key, value in node.attr.items() if not key.startswith("_")}
