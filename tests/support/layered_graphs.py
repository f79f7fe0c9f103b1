"""Random layered cost graphs, after Gagrani et al. (2022), appendix A."""

from __future__ import annotations

import random

from memopt.planning.cost_graph import CostGraph, Operation

_DENSITY = 0.2
"""Share of a layer's predecessors in the layer before that an operation reads."""
_SKIP = 0.14
"""Chance that an operation reads from an earlier layer as well."""


def layered_graph(operations: int, seed: int, width_factor: float = 0.27) -> CostGraph:
    """A layered graph whose order is that of a random topological sort.

    Args:
        operations: How many.
        seed: Of everything random.
        width_factor: How wide it is for its size: 0 is a chain, 1 is one layer.
    """
    draw = random.Random(seed)
    layers = max(2, round(operations ** (1 - width_factor)))
    width = operations / layers
    layer_of = [min(layers - 1, int(index / width)) for index in range(operations)]
    members: list[list[int]] = [[] for _ in range(layers)]
    for index, layer in enumerate(layer_of):
        members[layer].append(index)
    inputs: list[list[int]] = []
    for layer in layer_of:
        before = members[layer - 1] if layer else []
        wanted = max(1, round(_DENSITY * len(before) * draw.uniform(0.5, 1.5)))
        found = set(draw.sample(before, min(len(before), wanted)))
        if layer > 1 and draw.random() < _SKIP * width:
            found.add(draw.choice(members[draw.randrange(layer - 1)]))
        inputs.append(sorted(found))
    made = [
        Operation(
            cost=draw.randint(0, 1000) if sources else 0,
            output_bytes=(draw.randint(10, 650) * 10,),
            inputs=tuple((source, 0) for source in sources),
        )
        for sources in inputs
    ]
    return CostGraph.build(made, _random_order(inputs, draw), name=f"layered-{operations}-{seed}")


def _random_order(inputs: list[list[int]], draw: random.Random) -> list[int]:
    readers: list[list[int]] = [[] for _ in inputs]
    waiting = [len(sources) for sources in inputs]
    for index, sources in enumerate(inputs):
        for source in sources:
            readers[source].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order = []
    while ready:
        # Among the oldest, so that layers overlap but do not mix.
        index = ready.pop(draw.randrange(min(len(ready), 8)))
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order
