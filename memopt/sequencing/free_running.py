"""The order in which TensorFlow's executor runs a graph that nobody has ordered."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from memopt.buffers.device_types import GPU, device_type_of
from memopt.graph.op_types import CONTROL_FLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Node
    from memopt.sequencing.devices import Devices
    from memopt.sequencing.precedence import Precedence

_AT_ONCE = CONTROL_FLOW | frozenset(
    "Const HostConst ImmutableConst NoOp Identity IdentityN StopGradient PreventGradient Snapshot "
    "ReadVariableOp VarHandleOp VarIsInitializedOp Shape ShapeN Rank Size Reshape ExpandDims "
    "Squeeze Placeholder _Arg _Retval _DeviceArg _DeviceRetval ControlTrigger".split()
)
"""Ops whose kernels say that they are not expensive."""


def find_expensive(nodes: Sequence[Node]) -> list[bool]:
    """By node: whether it may go to another thread, and does not run as soon as it is ready.

    On a GPU nothing is: to start a kernel there takes the host no time worth mentioning (the
    constructor of `OpKernel`, tensorflow/core/framework/op_kernel.cc).
    """
    return [node.op not in _AT_ONCE and device_type_of(node) != GPU for node in nodes]


def free_running_sequence(buffer_graph: BufferGraph, precedence: Precedence) -> list[int]:
    """The nodes that run, in the order of TensorFlow's executor with one thread for operations.

    A model of `ExecutorState` (tensorflow/core/common_runtime/executor.cc). What is not expensive
    runs at once, in the order in which it got ready. What is expensive goes onto a stack, and the
    last runs when nothing else is ready. In TensorFlow the order of a node's edges, and so the
    order in which nodes get ready, differs from process to process; here it is that of the graph.
    """
    users, nodes = precedence.users, buffer_graph.nodes
    waiting = [len(producers) for producers in precedence.producers]
    expensive = find_expensive(nodes)
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


def free_running_side_by_side(
    buffer_graph: BufferGraph, precedence: Precedence, devices: Devices, times_ns: Sequence[int]
) -> list[int]:
    """The nodes that run, as they start where each device has an executor with one thread.

    Args:
        buffer_graph: The graph in numbers.
        precedence: What must come before what.
        devices: Where the nodes run.
        times_ns: By node: how long it runs, at least 1.
    """
    expensive = find_expensive(buffer_graph.nodes)
    waiting = [len(producers) for producers in precedence.producers]
    queues = [_Queue(expensive) for _ in devices.names]
    for node in precedence.program:
        if not waiting[node]:
            queues[devices.of_node[node]].push(node)
    is_idle = [True] * len(queues)
    running: list[tuple[int, int, int]] = []
    sequence: list[int] = []
    now_ns = 0
    while True:
        for device, queue in enumerate(queues):
            if is_idle[device] and queue:
                node = queue.pop()
                is_idle[device] = False
                heapq.heappush(running, (now_ns + times_ns[node], len(sequence), node))
                sequence.append(node)
        if not running:
            return sequence
        now_ns, _, ended = heapq.heappop(running)
        is_idle[devices.of_node[ended]] = True
        for user in precedence.users[ended]:
            waiting[user] -= 1
            if not waiting[user]:
                queues[devices.of_node[user]].push(user)


class _Queue:
    """What is ready on a device: what runs at once, and the stack."""

    def __init__(self, expensive: Sequence[bool]) -> None:
        self._expensive = expensive
        self._at_once: deque[int] = deque()
        self._stack: list[int] = []

    def __len__(self) -> int:
        return len(self._at_once) + len(self._stack)

    def push(self, node: int) -> None:
        (self._stack if self._expensive[node] else self._at_once).append(node)

    def pop(self) -> int:
        return self._at_once.popleft() if self._at_once else self._stack.pop()
