"""A main graph with a step in it as Grappler leaves it, and all that it had under its old names.

Grappler works on a session's graph for what is asked for. It names what it makes after what was
there, which need not be the same any more. So what changed gets a name of its own, and what it was
stays for who asks for it by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memopt.errors import InvalidGraphError
from memopt.plugin.settled_item import settle_in_session
from memopt.rematerialization.rewriting.hints import ATTRIBUTE, KEEP
from memopt.runtime.step_graph import needed_nodes, node_name, renamed
from memopt.saved_model.uses import effects, keep_uses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.item import GrapplerItem

_AFTER = "after_grappler"
"""What the names of nodes end in that Grappler has made something else of."""
_ARITHMETIC = frozenset("Add AddV2 Sub Mul Div RealDiv".split())
_CONSTANTS = frozenset({"Const", "HostConst"})


def settle_main_graph(item: GrapplerItem) -> GrapplerItem | None:
    """An item whose step is what Grappler makes of it in a session, with all nodes that it had.

    A product with a constant of which another one is made is not to be computed twice. Grappler
    sees the graph again in the session that runs it: where only one reads the first, as it would a
    copy, it makes one product of both constants, which rounds otherwise (constant folding).

    What is fetched and what has effects is under its old name what Grappler made; all else that
    Grappler changed stands under its old name as it was, and the step runs another.

    Returns:
        The item; `None` where Grappler is off, or makes nothing of the step.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph, or a name is taken.
        PluginError: Another plugin rewrites graphs in this process.
    """
    step = settle_in_session(item)
    if step is None:
        return None
    originals = {node.name: node for node in item.graph_def.node}
    asked_for = {node_name(name) for name in (*item.fetch, *item.feed)}
    kept = asked_for | (effects(item.graph_def) & originals.keys())
    changed = _changed(step, originals, kept)
    names = {name: f"{name}/{_AFTER}" for name in changed}
    graph_def = type(item.graph_def)()
    graph_def.CopyFrom(item.graph_def)
    del graph_def.node[:]
    needed = needed_nodes(item.graph_def, item.fetch, item.feed)
    inner = _inner_products(step)
    has_devices = any(originals[name].device for name in needed)
    for node in step.node:
        added = graph_def.node.add()
        added.CopyFrom(node)
        added.name = names.get(node.name, node.name)
        added.input[:] = [renamed(source, names) for source in node.input]
        if node.name in inner:
            added.attr[ATTRIBUTE].s = KEEP.encode()
        if added.name in originals and added.name in changed:
            raise InvalidGraphError(f"the name {added.name!r} is taken", added.name)
        # Where the model says nothing of devices, who loads it chooses them.
        if not has_devices:
            added.device = ""
    there = {node.name for node in graph_def.node}
    graph_def.node.extend(node for node in item.graph_def.node if node.name not in there)
    return replace(item, graph_def=keep_uses(item.graph_def, graph_def, same_ops=False))


def without_hints(graph_def: GraphDef, original: GraphDef) -> None:
    """Take hints off nodes that had none in a model's own graph."""
    hinted = {node.name for node in original.node if ATTRIBUTE in node.attr}
    for node in graph_def.node:
        if ATTRIBUTE in node.attr and node.name not in hinted:
            del node.attr[ATTRIBUTE]


def _inner_products(step: GraphDef) -> set[str]:
    """Sums and products with a constant that another one reads."""
    constants = {node.name for node in step.node if node.op in _CONSTANTS}
    read = {
        node.name: {node_name(source) for source in node.input if not source.startswith("^")}
        for node in step.node
        if node.op in _ARITHMETIC
    }
    outer = {name: sources for name, sources in read.items() if sources & constants}
    return outer.keys() & set[str]().union(*outer.values())


def _changed(step: GraphDef, originals: Mapping[str, NodeDef], kept: Iterable[str]) -> set[str]:
    """The nodes whose outputs, under their names, need not be what they were."""
    readers: dict[str, list[str]] = {}
    for node in step.node:
        for source in node.input:
            if not source.startswith("^"):
                readers.setdefault(node_name(source), []).append(node.name)
    same_values = frozenset(kept)
    pending = [
        node.name
        for node in step.node
        if node.name in originals
        and node.name not in same_values
        and _content(node) != _content(originals[node.name])
    ]
    changed: set[str] = set()
    while pending:
        name = pending.pop()
        if name in changed or name in same_values:
            continue
        changed.add(name)
        pending += readers.get(name, ())
    return changed & originals.keys()


def _content(node: NodeDef) -> tuple[Any, ...]:
    """What a node computes from what: control inputs and private attributes aside."""
    data = [source.removesuffix(":0") for source in node.input if not source.startswith("^")]
    public = {
        key: value.SerializeToString(deterministic=True)
        for key, value in node.attr.items()
        if not key.startswith("_")
    }
    return node.op, data, public
