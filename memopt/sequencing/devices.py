"""The devices that a step runs on side by side, and what each of them has in use."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from memopt.cluster import has_accelerator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.graph.graph import Node

_DEVICE = re.compile(
    r"(?P<where>/job:[^/]+/replica:\d+/task:\d+)?/?(?:device:)?(?P<type>[A-Za-z_]+):(?P<index>\d+)"
)
_HOST = "CPU"
_FIRST_HOST = f"{_HOST}:0"
_FEWEST = 2
_ONLY_FEED = frozenset("_Arg Placeholder Const IteratorGetNext _Retval".split())
"""Ops that compute nothing: where they alone lie, beside a GPU the host, a step does not run."""


def name_devices(spelled: Iterable[str]) -> dict[str, str]:
    """Devices as graphs spell them, each with its short name; "" for what names none.

    That is "GPU:0", with the task before it where there are several tasks.
    """
    found = {device: _DEVICE.fullmatch(device) for device in spelled}
    tasks = {match["where"] or "" for match in found.values() if match is not None}
    return {
        device: "" if match is None else _short_name(match, with_task=len(tasks) > 1)
        for device, match in found.items()
    }


def working_devices(nodes: Iterable[Node]) -> list[str]:
    """The short names of the devices on which a step computes anything, sorted.

    What it is fed from elsewhere is copied to where it is read, and counts there.
    """
    spelled = {node.device for node in nodes if node.op not in _ONLY_FEED}
    return sorted(set(name_devices(spelled).values()))


def queue_names(spelled: Iterable[str]) -> dict[str, str]:
    """Devices as graphs spell them, each with a name of those whose operations run in one queue.

    What is on no device is on the only one that is named, if that is the host and TensorFlow has no
    other here; else it is told apart.
    """
    short = name_devices(spelled)
    named = set(short.values()) - {""}
    if named != {_FIRST_HOST} or "" not in short.values() or has_accelerator():
        return short
    return dict.fromkeys(short, _FIRST_HOST)


def _short_name(match: re.Match[str], *, with_task: bool) -> str:
    task = f"{match['where']}/device:" if with_task and match["where"] else ""
    return f"{task}{match['type'].upper()}:{match['index']}"


@dataclass(frozen=True)
class Devices:
    """The devices of a graph all of whose nodes are placed, two at least.

    Attributes:
        names: Their names, such as "GPU:0"; with the task before it where there are several.
        of_node: By node: the number of its device.
    """

    names: tuple[str, ...]
    of_node: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Devices | None:
        """The devices of nodes by number; `None` if it is only one, or not all are placed."""
        if len(working_devices(nodes)) < _FEWEST:
            return None
        short = name_devices(node.device for node in nodes)
        names = sorted(set(short.values()))
        if "" in names:
            return None
        number = {device: names.index(name) for device, name in short.items()}
        return cls(tuple(names), tuple(number[node.device] for node in nodes))

    @cached_property
    def _on_host(self) -> tuple[bool, ...]:
        return tuple(_HOST in name.rpartition("/")[2] for name in self.names)

    def memory_of(self, number: int, graph: BufferGraph) -> BufferGraph:
        """The same buffers, of which those that a device does not hold take nothing.

        It holds what its operations make, and copies of what they read from another device. What
        another device reads is sent when it is made, and not held for that any longer. Among
        devices that are the host's there is nothing to copy.

        Args:
            number: The device's.
            graph: The buffers.
        """
        homes = self._homes(graph)
        holds = [home == number for home in homes]
        read = list(graph.read)
        for node, device in enumerate(self.of_node):
            if device == number:
                for buffer in graph.read[node]:
                    holds[buffer] |= self._is_copied(homes[buffer], device)
            else:
                read[node] = [
                    buffer
                    for buffer in graph.read[node]
                    if homes[buffer] != number or not self._is_copied(number, device)
                ]
        own = graph.only(holds, [device == number for device in self.of_node])
        return replace(own, read=read)

    def _is_copied(self, source: int, target: int) -> bool:
        return source != target and not (self._on_host[source] and self._on_host[target])

    def _homes(self, graph: BufferGraph) -> list[int]:
        """By buffer: the device that makes it; of what is there before, the first that reads it."""
        homes = [-1] * len(graph.size_bytes)
        for node, device in enumerate(self.of_node):
            for buffer in graph.made[node]:
                homes[buffer] = device
        for node, device in enumerate(self.of_node):
            for buffer in graph.read[node]:
                if graph.makers[buffer] < 0 and (homes[buffer] < 0 or device < homes[buffer]):
                    homes[buffer] = device
        return homes

    def side_by_side(
        self,
        producers: Sequence[Sequence[int]],
        sequence: Sequence[int],
        times_ns: Sequence[int],
        groups: Iterable[Sequence[int]] = (),
    ) -> list[int]:
        """The nodes as they start when each device runs its own in the order of a sequence.

        Args:
            producers: By node: those that come before it in any case.
            sequence: The nodes that run, producers first.
            times_ns: By node: how long it runs, at least 1.
            groups: Nodes of several devices that begin together, side by side in the sequence.
        """
        free_ns = [0] * len(self.names)
        start_ns: dict[int, int] = {}
        together = {node: group for group in groups for node in group}
        for node in sequence:
            ready_ns = (start_ns[p] + times_ns[p] for p in producers[node] if p in start_ns)
            start_ns[node] = max(free_ns[self.of_node[node]], *ready_ns, 0)
            begun = [each for each in together.get(node, (node,)) if each in start_ns]
            latest_ns = max(start_ns[each] for each in begun)
            for each in begun:
                start_ns[each] = latest_ns
                own = self.of_node[each]
                free_ns[own] = max(free_ns[own], latest_ns + times_ns[each])
        return sorted(sequence, key=start_ns.__getitem__)
