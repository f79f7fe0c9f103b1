"""What a cost model is: the time that one execution of a node takes on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from memopt.cluster import Device
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties


class Cost(NamedTuple):
    """The time of one execution, in whole nanoseconds.

    Attributes:
        execution_ns: The time from start to end.
        compute_ns: The part of arithmetic.
        memory_ns: The part of moving inputs and outputs.
        inaccurate: Whether the op or a shape was not known, so that this is a guess.
    """

    execution_ns: int
    compute_ns: int
    memory_ns: int
    inaccurate: bool = False


class CostModel(Protocol):
    """Tells how long a node runs."""

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution of a node, `_execution_count` not counted.

        Args:
            node: The node, in its graph: its inputs say what it reads.
            device: Where it runs.
            properties: Types and shapes of the graph's tensors.
        """
