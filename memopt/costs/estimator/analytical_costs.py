"""AnalyticalCosts: the time of a node by the work that its op does, and how fast that is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.costs.cost_model import Cost
from memopt.costs.estimator.device_rates import OTHER_DEVICE, DeviceRates
from memopt.costs.estimator.op_info import NOTHING_KNOWN, OpInfo
from memopt.costs.estimator.registry import FREE_OPS, MINIMUM_COST_OPS
from memopt.costs.estimator.unknown_op import UNKNOWN_OP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memopt.cluster import Device
    from memopt.costs.estimator.op_info import Formula, Work
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

FREE = Cost(0, 0, 0)
IMPOSSIBLE = Cost(0, 0, 0, inaccurate=True)
"""Of a node that cannot be what its op says, such as a convolution of nothing."""
MINIMUM = Cost(1, 1, 0)
MINIMUM_OF_UNKNOWN = Cost(1, 1, 0, inaccurate=True)

Key = tuple[str, tuple[Any, ...], tuple["TensorProperties", ...], tuple["TensorProperties", ...]]
"""All that a node's time depends on besides the device: op, attributes, inputs, outputs."""


class AnalyticalCosts:
    """Counts the work of a node by its op's formula, and what time that takes on a device.

    Equal nodes are computed once.

    Args:
        formulas: How the work of ops is counted; of others what they read and write counts.
        price: The time of an op's work on a device with such rates.
    """

    def __init__(
        self, formulas: Mapping[str, Formula], price: Callable[[str, Work, DeviceRates], Cost]
    ) -> None:
        self._formulas = formulas
        self._price = price
        self._devices: dict[Device, _DeviceCosts] = {}
        self._device: Device | None = None
        self._on_device = _DeviceCosts(OTHER_DEVICE, {})

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The time of one execution of a node on a device.

        Inaccurate where a shape is not known (it counts as the smallest possible), and for an op
        without a formula (what it reads and writes counts).

        Raises:
            InvalidGraphError: TensorFlow refuses the graph, so that no shape is known.
        """
        op = node.op
        if op in FREE_OPS:
            return FREE
        outputs = properties.outputs(node.name)
        if op in MINIMUM_COST_OPS:
            for output in outputs:
                shape = output.shape
                if shape is None or -1 in shape:
                    return MINIMUM_OF_UNKNOWN
            return MINIMUM
        formula = self._formulas.get(op, UNKNOWN_OP)
        attributes = _attributes(node, formula) if formula.attributes else ()
        key = (op, attributes, _inputs(node, properties), outputs)
        if device is not self._device:
            self._select(device)
        on_device = self._on_device
        known = on_device.costs.get(key)
        if known is None:
            known = on_device.costs[key] = self._cost(formula, key)
        return known

    def _cost(self, formula: Formula, key: Key) -> Cost:
        op, values, inputs, outputs = key
        names = (attribute.name for attribute in formula.attributes)
        info = OpInfo(inputs, outputs, dict(zip(names, values, strict=True)))
        work = formula.work(info)
        return IMPOSSIBLE if work is None else self._price(op, work, self._on_device.rates)

    def _select(self, device: Device) -> None:
        """Look up a device's costs; done when the device changes, as it takes a while."""
        if device not in self._devices:
            self._devices[device] = _DeviceCosts(DeviceRates.of(device), {})
        self._device, self._on_device = device, self._devices[device]


class _DeviceCosts(NamedTuple):
    """The costs that are known on one device."""

    rates: DeviceRates
    costs: dict[Key, Cost]


def _attributes(node: Node, formula: Formula) -> tuple[Any, ...]:
    """What the formula reads of the node."""
    given = node.attributes
    values = []
    for name, read, default in formula.attributes:
        value = given.get(name)
        values.append(default if value is None else read(value))
    return tuple(values)


def _inputs(node: Node, properties: Properties) -> tuple[TensorProperties, ...]:
    """What is known of the node's inputs."""
    outputs = properties.outputs
    try:
        return tuple([outputs(tensor.node.name)[tensor.port] for tensor in node.inputs])
    except IndexError:  # A producer of which nothing is known.
        ports = [(outputs(tensor.node.name), tensor.port) for tensor in node.inputs]
        return tuple([known[port] if port < len(known) else NOTHING_KNOWN for known, port in ports])
