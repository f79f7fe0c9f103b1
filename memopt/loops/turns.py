"""How often a loop runs, from the integers that it counts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from memopt.graph.traversal import Numbering
from memopt.shapes.constants import constant_numbers
from memopt.shapes.loop_counters import count_turns, known_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.loops.pairs import Body, Loop
    from memopt.shapes.known_integers import KnownIntegers


def loop_turns(loop: Loop, graph: Graph, integers: KnownIntegers | None = None) -> int | None:
    """How often a loop runs; `None` where its counters do not tell.

    Args:
        loop: The loop.
        graph: The graph that it is in.
        integers: What one call computes of the shapes that it has; without, only what holds for
            every call counts.
    """
    start = _numbers(graph, {}, loop.node.inputs)
    if integers is not None:
        start = [
            integers.number(tensor) if number is None else number
            for number, tensor in zip(start, loop.node.inputs, strict=True)
        ]
    first = _numbers(loop.body.graph, _given(loop.body, start), loop.body.results)
    second = _numbers(loop.body.graph, _given(loop.body, first), loop.body.results)
    steps = []
    for numbers in zip(start, first, second, strict=True):
        before, once, twice = numbers
        is_steady = None not in numbers and twice - once == once - before  # type: ignore[operator]
        steps.append(once - before if is_steady else None)  # type: ignore[operator]
    goes_on = partial(_goes_on, loop.test, start, steps)
    if not any(steps):
        return None
    begins = goes_on(0)
    if not begins:
        return None if begins is None else 0
    return count_turns(lambda turns: goes_on(turns) is True) or None


def _goes_on(
    test: Body, start: Sequence[int | None], steps: Sequence[int | None], turns: int
) -> bool | None:
    later = [
        None if number is None or step is None else number + turns * step
        for number, step in zip(start, steps, strict=True)
    ]
    result = _numbers(test.graph, _given(test, later), test.results)[0]
    return None if result is None else bool(result)


def _given(body: Body, numbers: Sequence[int | None]) -> Mapping[Node, int | None]:
    return dict(zip(body.arguments, numbers, strict=True))


def _numbers(
    graph: Graph, given: Mapping[Node, int | None], tensors: Sequence[Tensor]
) -> list[int | None]:
    """The integers that tensors hold, where they are known, of one element each."""
    known: dict[Node, int | None] = dict(given)
    numbering = Numbering.of(graph)
    for place in numbering.order:
        node = numbering.nodes[place]
        if node in known:
            continue
        numbers = constant_numbers(node)
        if numbers is not None:
            known[node] = numbers[0] if len(numbers) == 1 else None
        else:
            known[node] = known_number(node, [_known(known, tensor) for tensor in node.inputs])
    return [_known(known, tensor) for tensor in tensors]


def _known(known: Mapping[Node, int | None], tensor: Tensor) -> int | None:
    return known.get(tensor.node) if tensor.port == 0 else None
