"""Which graphs are worth a look: cheap tests of a GraphDef, before anything expensive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph.backward import find_backward_nodes
from memopt.graph.graphdef import from_graph_def
from memopt.graph.op_types import NEXT_ITERATIONS
from memopt.plugin.policy import TRAINING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.plugin.policy import Policy

_GRADIENT_OP = re.compile(r"Grad(?:V[0-9]+|WithArgmax|Ext)?$|GradGrad|Backprop")
"""Ops that there are only to compute gradients with."""
_UPDATE_OP = re.compile(
    r"Assign|(?:Resource)?(?:Sparse)?Apply|ResourceScatter|Scatter(?:Update|Add|Sub|Nd)"
)
_DATASET_OP = re.compile(r"Dataset(?:V[0-9]+)?$")


def why_not(graph_def: GraphDef, policy: Policy) -> str:
    """Why a graph is passed over, or "" if it is not.

    1. It is small.
    2. It describes a pipeline of data, in which the operations run elsewhere.
    3. It computes no gradients, and only training steps are asked for. An op that serves nothing
       but gradients decides; where there is none, but variables are updated, the structure does.
    """
    count = len(graph_def.node)
    if count < policy.min_nodes:
        return f"has {count} nodes, fewer than {policy.min_nodes}"
    ops = {node.op for node in graph_def.node}
    if any(_DATASET_OP.search(op) for op in ops):
        return "describes a data set"
    if policy.only == TRAINING and not _computes_gradients(graph_def, ops):
        return "computes no gradients"
    return ""


def calls_gradients(graph_def: GraphDef) -> bool:
    """Whether a function that a graph may call has operations that only compute gradients."""
    bodies = graph_def.library.function
    return any(_GRADIENT_OP.search(node.op) for body in bodies for node in body.node_def)


def _computes_gradients(graph_def: GraphDef, ops: set[str]) -> bool:
    if any(_GRADIENT_OP.search(op) for op in ops):
        return True
    has_updates = any(_UPDATE_OP.match(op) for op in ops)
    return has_updates and bool(find_backward_nodes(from_graph_def(graph_def)))


def has_lists_in_loops(graph_def: GraphDef) -> bool:
    """Whether a graph has loops and lists, as recurrent layers do."""
    ops = {node.op for node in graph_def.node}
    return not ops.isdisjoint(NEXT_ITERATIONS) and any(op.startswith("TensorList") for op in ops)
