"""The order in which TensorFlow's executor runs a graph that nobody has ordered."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from memopt.sequencing.frames import CONTROL_FLOW

if TYPE_CHECKING:
    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.precedence import Precedence

_AT_ONCE = CONTROL_FLOW | frozenset(
    "Const HostConst ImmutableConst NoOp Identity IdentityN StopGradient PreventGradient Snapshot "
    "ReadVariableOp VarHandleOp VarIsInitializedOp Shape ShapeN Rank Size Reshape ExpandDims "
    "Squeeze Placeholder _Arg _Retval _DeviceArg _DeviceRetval ControlTrigger".split()
)
"""Ops whose kernels say that they are not expensive."""


def free_running_sequence(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """The nodes that run, in the order of TensorFlow's executor with one thread for operations.

    A model of `ExecutorState` (tensorflow/core/common_runtime/executor.cc). What is not expensive
    runs at once, in the order in which it got ready. What is expensive goes onto a stack, and the
    last runs when nothing else is ready. In TensorFlow the order of a node's edges, and so the
    order in which nodes get ready, differs from process to process; here it is that of the graph.
    """
    users, nodes = precedence.users, buffer_graph.nodes
    waiting = [len(producers) for producers in precedence.producers]
    expensive = [node.op not in _AT_ONCE for node in nodes]
    stack: list[int] = []
    at_once = deque(node for node in precedence.program if not waiting[node])
    sequence: list[int] = []
    while at_once or stack:
        node = at_once.popleft() if at_once else stack.pop()
        sequence.append(node)
        for user in users[node]:
            waiting[user] -= 1
            if not waiting[user]:
                (stack if expensive[user] else at_once).append(user)
    return sequence
