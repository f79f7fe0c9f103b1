"""Collectives: operations that end together, on several devices, though no edge says so.

Each waits until all have begun. Where one device waited for another between the beginning of one
and the end of another, neither would go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from memopt.graph.graph import Node

_COLLECTIVE = "Collective"
_PREPARATIONS = frozenset({"CollectiveInitializeCommunicator", "CollectiveAssignGroupV2"})


def find_meetings(nodes: Sequence[Node], program: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs (before, after): whatever waits for one of the collectives that meet waits for all.

    Args:
        nodes: The nodes by number.
        program: The nodes that run, as numbers, producers first.
    """
    groups = list(find_groups(nodes, program))
    if groups:
        numbers = {nodes[number]: number for number in program}
        yield from pairs_of(
            groups, lambda one: [numbers[n] for n in nodes[one].users if n in numbers]
        )


def pairs_of(
    groups: Iterable[Sequence[int]], users: Callable[[int], Iterable[int]]
) -> Iterator[tuple[int, int]]:
    """The pairs (before, after) that follow from collectives which meet.

    Args:
        groups: The collectives that meet, as numbers.
        users: What waits for one of them.
    """
    for met in groups:
        for one in met:
            for user in users(one):
                yield from ((other, user) for other in met if other != one)


def find_groups(nodes: Sequence[Node], program: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The collectives that meet, one of each device.

    They come at the same place among the collectives of their kind on their devices, as all devices
    run the same ones in the same order. None are found where some device has more of a kind than
    another.

    Args:
        nodes: The nodes by number.
        program: The nodes that run, as numbers, producers first.
    """
    kinds: dict[tuple[str, int], dict[str, list[int]]] = {}
    for number in program:
        node = nodes[number]
        if node.op.startswith(_COLLECTIVE) and node.op not in _PREPARATIONS:
            dtype = node.attributes["T"].type if "T" in node.attributes else 0
            devices = kinds.setdefault((node.op, dtype), {})
            devices.setdefault(node.device, []).append(number)
    for devices in kinds.values():
        if len(devices) > 1 and len(set(map(len, devices.values()))) == 1:
            yield from zip(*devices.values(), strict=True)
