"""Whole training steps: every node takes as long as TensorFlow's own simulation says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.native_simulation import cpu, gpu, simulate_native

from memopt.costs.estimator import GrapplerCosts
from memopt.graph.graphdef import from_graph_def
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.native_simulation import NativeNode

    from memopt.cluster import Device
    from memopt.item import GrapplerItem
    from memopt.shapes.tensor_properties import TensorProperties

MODELS = ["convnet_v1", "mlp", "unet", "bert", "lstm"]

SLOW_GPU = replace(gpu(), num_cores=1, frequency_mhz=1, bandwidth_kb_per_s=1000)
DEVICES = [(SLOW_GPU, cpu()), (replace(gpu(), architecture="3.5"),), (cpu(),)]


class Step:
    """A model's step as TensorFlow simulates it and as this package sees it."""

    def __init__(self, item: GrapplerItem, devices: tuple[Device, ...]) -> None:
        graph_def = item.with_variable_handles()
        self.graph = from_graph_def(graph_def)
        fetch = [node.name for node in graph_def.node]
        self.native = simulate_native(graph_def, devices, fetch).nodes
        self.seen = Properties.unknown()
        for name, node in self.native.items():
            self.seen.add(name, properties_seen(node))
        self._devices = {device.name: device for device in devices}

    def differences(self, properties: Properties) -> dict[str, tuple[int, int]]:
        """The nanoseconds of nodes, ours and TensorFlow's, where they differ."""
        costs = GrapplerCosts()
        found = {}
        for node in self.graph:
            native = self.native[node.name]
            cost = costs.cost(node, self._devices[native.device], properties)
            # A Merge's is that of its two visits together.
            ours = cost.execution_ns * (2 if node.op == "Merge" else 1)
            if ours != native.end_ns - native.start_ns:
                found[node.name] = (ours, native.end_ns - native.start_ns)
        return found


def properties_seen(node: NativeNode) -> tuple[TensorProperties, ...]:
    """A node's outputs as TensorFlow's simulation sees them; it has many numbers for not known."""
    return tuple(
        tensor_properties(dtype, None if shape is None else tuple(max(n, -1) for n in shape))
        for dtype, shape in zip(node.output_dtypes, node.output_shapes, strict=True)
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("devices", DEVICES, ids=["slow", "kepler", "cpu"])
def test_every_node_takes_as_long_as_in_tensorflow(
    tiny_item: Callable[[str], GrapplerItem], model: str, devices: tuple[Device, ...]
) -> None:
    step = Step(tiny_item(model), devices)
    assert len(step.native) == len(step.graph)
    assert step.differences(step.seen) == {}


@pytest.mark.parametrize("model", MODELS)
def test_inferred_shapes_give_the_same_times(
    tiny_item: Callable[[str], GrapplerItem], model: str
) -> None:
    item = tiny_item(model)
    step = Step(item, DEVICES[0])
    assert step.differences(Properties.as_in_grappler(item)) == {}
