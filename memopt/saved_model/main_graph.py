"""Steps in the main graph of a SavedModel, as TensorFlow 1 saves them: signatures and train ops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from memopt.errors import InvalidGraphError
from memopt.graph.graphdef import from_graph_def
from memopt.graph.verify import verify_graph
from memopt.item import TRAIN_OP_COLLECTION, GrapplerItem
from memopt.runtime.graph_import import import_graph
from memopt.runtime.library import rename_changed_functions
from memopt.runtime.step_graph import needed_nodes, node_name
from memopt.saved_model.bodies import StepBody, argument_names
from memopt.saved_model.functions import ModelFunction, find_functions, signatures_in_graph
from memopt.saved_model.settled_graph import without_hints
from memopt.saved_model.uses import keep_uses

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


@dataclass(frozen=True)
class GraphBody(StepBody):
    """One use of a main graph, in which there may be others.

    Attributes:
        item: The whole main graph, and what is fed and fetched.
        names: By name of a node that is fed what callers call it.
    """

    item: GrapplerItem
    names: Mapping[str, str]

    @classmethod
    def of(cls, meta_graph: MetaGraphDef, use: ModelFunction) -> GraphBody:
        """A use of a main graph."""
        graph_def = type(meta_graph.graph_def)()
        graph_def.CopyFrom(meta_graph.graph_def)
        item = GrapplerItem(graph_def, feed=tuple(use.feed.values()), fetch=use.fetch)
        return cls(item, {node_name(tensor): name for name, tensor in use.feed.items()})

    def with_item(self, item: GrapplerItem) -> Self:
        """The same with another graph."""
        return replace(self, item=item)

    @property
    def called_as(self) -> Mapping[str, str]:
        """By name of a node that is fed what callers call it."""
        placeholders = {node.name for node in self.item.graph_def.node if node.op in _PLACEHOLDERS}
        return {node: name for node, name in self.names.items() if node in placeholders}

    @property
    def step_graph(self) -> GraphDef:
        """The part of the graph that the use needs."""
        needed = needed_nodes(self.item.graph_def, self.item.fetch, self.item.feed)
        part = type(self.item.graph_def)()
        part.CopyFrom(self.item.graph_def)
        del part.node[:]
        part.node.extend(node for node in self.item.graph_def.node if node.name in needed)
        return part

    def with_uses_kept(self, graph_def: GraphDef) -> GraphDef:
        """A rewritten graph in which whatever else is asked for runs what it ran before.

        Raises:
            InvalidGraphError: A node of the original is lost.
        """
        return keep_uses(self.item.graph_def, graph_def)


def find_work(meta_graph: MetaGraphDef) -> list[ModelFunction]:
    """The functions of a model that do work, and the uses of its main graph that do some."""
    return [*find_functions(meta_graph), *find_uses(meta_graph)]


def arguments_of(one: ModelFunction, library: Mapping[str, FunctionDef]) -> dict[str, str]:
    """By name of an argument, or of a node that is fed, what callers call it."""
    if one.fetch:
        return {node_name(tensor): name for name, tensor in one.feed.items()}
    return argument_names(library[one.name], one.variables)


def find_uses(meta_graph: MetaGraphDef) -> list[ModelFunction]:
    """The uses of a main graph whose operations stand in it and in no function.

    1. Each signature that is such a one, by the name of its key.
    2. What the collection `train_op` names, unless a signature runs all of it; what signatures give
       and that computes anyway is fetched with it.
    """
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    train_ops = _train_ops(meta_graph, nodes)
    found: list[ModelFunction] = []
    is_run = False
    outputs: list[str] = []
    for key in signatures_in_graph(meta_graph):
        signature = meta_graph.signature_def[key]
        tensors = _tensors(info.name for info in signature.outputs.values())
        if not tensors or not _are_there((*tensors, *train_ops), nodes):
            continue
        outputs += tensors
        needed = _needed(meta_graph, tensors)
        runs_all = bool(train_ops) and needed.issuperset(train_ops)
        is_run = is_run or runs_all
        feed = {name: info.name for name, info in sorted(signature.inputs.items()) if info.name}
        if not _are_there(feed.values(), nodes):
            continue
        found.append(
            ModelFunction(
                f"(main graph: {key})", key, signatures=[key], fetch=tuple(tensors), feed=feed
            )
        )
    if train_ops and not is_run and _are_there(train_ops, nodes):
        found.append(_training(meta_graph, train_ops, outputs))
    return found


def put_in_main_graph(meta_graph: MetaGraphDef, graph_def: GraphDef) -> None:
    """Put a rewritten main graph in the place of the old one.

    Functions that were rewritten with it get names of their own: others may call the old ones.

    Raises:
        InvalidGraphError: TensorFlow would refuse it.
    """
    import tensorflow as tf

    library = meta_graph.graph_def.library
    before = {one.signature.name: one for one in library.function}
    without_hints(graph_def, meta_graph.graph_def)
    named = rename_changed_functions(graph_def, lambda one: before.get(one.signature.name) != one)
    verify_graph(from_graph_def(named))
    import_graph(named, tf.Graph())
    added: list[FunctionDef] = [
        one for one in named.library.function if one.signature.name not in before
    ]
    del meta_graph.graph_def.node[:]
    meta_graph.graph_def.node.extend(named.node)
    library.function.extend(added)


def _train_ops(meta_graph: MetaGraphDef, nodes: Mapping[str, NodeDef]) -> list[str]:
    # Only looking a collection up would add it to the message.
    if TRAIN_OP_COLLECTION not in meta_graph.collection_def:
        return []
    names = meta_graph.collection_def[TRAIN_OP_COLLECTION].node_list.value
    return [name for name in dict.fromkeys(map(node_name, names)) if name in nodes]


def _training(
    meta_graph: MetaGraphDef, train_ops: Sequence[str], outputs: Iterable[str]
) -> ModelFunction:
    """The use that runs train ops."""
    needed = _needed(meta_graph, train_ops)
    computed = [tensor for tensor in dict.fromkeys(outputs) if node_name(tensor) in needed]
    feed = {
        node.name: f"{node.name}:0"
        for node in meta_graph.graph_def.node
        if node.name in needed and node.op == "Placeholder"
    }
    name = TRAIN_OP_COLLECTION
    return ModelFunction(f"(main graph: {name})", name, fetch=(*computed, *train_ops), feed=feed)


def _needed(meta_graph: MetaGraphDef, names: Iterable[str]) -> set[str]:
    try:
        return needed_nodes(meta_graph.graph_def, names, ())
    except InvalidGraphError:  # a damaged graph, which is told when it is rewritten
        return set()


def _tensors(names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name})


def _are_there(tensors: Iterable[str], nodes: Mapping[str, NodeDef]) -> bool:
    return all(node_name(tensor) in nodes for tensor in tensors)
