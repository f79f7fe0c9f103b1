"""Which graphs are worth a look: cheap tests of a GraphDef, before anything expensive."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memopt.graph.backward import find_backward_nodes
from memopt.graph.graphdef import from_graph_def
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
    if policy.only != TRAINING or any(_GRADIENT_OP.search(op) for op in ops):
        return ""
    if not any(_UPDATE_OP.match(op) for op in ops):
        return "computes no gradients"
    if not find_backward_nodes(from_graph_def(graph_def)):
        return "computes no gradients"
    return ""
