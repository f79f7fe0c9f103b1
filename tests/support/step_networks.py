"""Networks in the shape of training steps: the way forward, and the way back that reads it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from support.remat_networks import network_of
from support.small_buffers import Step, small_graph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.rematerialization.network import Network

_UNIT_BYTES = 4096
_HELD_BYTES = 300 * _UNIT_BYTES
_SMALL_BYTES = 8
"""Too small to matter, as a sum of squares or a counter is."""


class _Forward:
    """The way forward as it grows, of operations of different sizes and costs."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._steps: dict[str, Step] = {}
        self._weights: list[int] = []
        self._append(Step("x0", (), -1), 0)

    def add(self, name: str, *reads: str, waits: tuple[str, ...] = ()) -> str:
        """One more operation; now and then it shows what it reads, or takes its memory over."""
        draw = self._random
        size_bytes = draw.choice((1, 4, 9, 16, 40)) * _UNIT_BYTES
        reuses = reads[:1] if draw.random() < 0.2 else ()
        if reuses and self._steps[reads[0]].size_bytes > 0:
            size_bytes = self._steps[reads[0]].size_bytes
        is_view = draw.random() < 0.15 and reads != ("x0",)
        step = Step(
            name,
            reads[:1] if is_view else reads,
            0 if is_view else size_bytes,
            aliases=is_view,
            waits=waits,
            scratch_bytes=draw.choice((0, 0, 0, 12)) * _UNIT_BYTES,
            reuses=() if is_view else reuses,
        )
        self._append(step, draw.choice((1, 1, 2, 5, 20)))
        if draw.random() < 0.2:
            self._append(Step(f"{name}_small", (name,), _SMALL_BYTES), 1)
        return name

    def _append(self, step: Step, weight: int) -> None:
        self._steps[step.name] = step
        self._weights.append(weight)

    def network(self, waits: bool) -> Network:
        """With the way back: each gradient reads the one behind it and what went forward."""
        draw = self._random
        forward = list(self._steps.values())[1:]
        gradient = forward[-1].name
        for step in reversed(forward):
            reads = tuple(dict.fromkeys((gradient, step.name, *step.reads)))
            late = (draw.choice(forward).name,) if waits and draw.random() < 0.15 else ()
            is_small = step.size_bytes == _SMALL_BYTES
            size_bytes = _SMALL_BYTES if is_small else draw.choice((4, 9, 16)) * _UNIT_BYTES
            gradient = f"d_{step.name}"
            self._append(Step(gradient, reads, size_bytes, waits=late), draw.choice((1, 2, 5)))
        fixed = ("x0", *(step.name for step in forward if draw.random() < 0.1))
        graph = small_graph(list(self._steps.values()))
        network = network_of(graph, fixed=fixed, returned_bytes=_HELD_BYTES)
        return replace(network, weights=self._weights)


def layers(count: int, *, weights: Sequence[int] = ()) -> Network:
    """`count` layers and their way back; every result takes 8 bytes, and x0 is there before.

    Args:
        count: How many layers.
        weights: What the first operations after x0 cost; the others cost 1.
    """
    steps = [Step("x0", (), -1), Step("f1", ("x0",), 8)]
    steps += [Step(f"f{n}", (f"f{n - 1}",), 8) for n in range(2, count + 1)]
    steps.append(Step(f"g{count}", (f"f{count}",), 8))
    steps += [Step(f"g{n}", (f"g{n + 1}", f"f{n}"), 8) for n in reversed(range(1, count))]
    network = network_of(small_graph(steps), fixed=("x0",))
    others = [1] * (len(steps) - 1 - len(weights))
    return replace(network, weights=[network.weights[0], *weights, *others])


def chain(seed: int, count: int = 24) -> Network:
    """Layer after layer, some of which wait for one that is not their input."""
    forward = _Forward(seed)
    last = "x0"
    for number in range(count):
        waits = (f"f{number - 3}",) if number % 7 == 5 else ()
        last = forward.add(f"f{number}", last, waits=waits)
    return forward.network(waits=True)


def residual(seed: int, blocks: int = 8) -> Network:
    """Blocks of three operations around each of which a shortcut leads."""
    forward = _Forward(seed)
    last = forward.add("stem", "x0")
    for number in range(blocks):
        inner = forward.add(f"b{number}", forward.add(f"a{number}", last))
        last = forward.add(f"sum{number}", inner, last)
    return forward.network(waits=False)


def nested(seed: int, depth: int = 7) -> Network:
    """A way down and a way up again that reads what lies at its height, as in a U-net."""
    forward = _Forward(seed)
    last = "x0"
    levels = []
    for number in range(depth):
        last = forward.add(f"down{number}", last)
        levels.append(forward.add(f"skip{number}", last))
    for number in reversed(range(depth)):
        last = forward.add(f"up{number}", last, levels[number])
    return forward.network(waits=False)


def branches(seed: int, blocks: int = 5) -> Network:
    """Blocks of three branches whose results are joined."""
    forward = _Forward(seed)
    last = forward.add("stem", "x0")
    for number in range(blocks):
        ways = [forward.add(f"w{number}_{way}", last) for way in range(3)]
        last = forward.add(f"join{number}", *ways)
    return forward.network(waits=True)
