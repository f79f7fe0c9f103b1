"""Context: what a pass may know beside the graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from memopt.buffers.kernel_call import Runtime
    from memopt.costs.cost_model import CostModel
    from memopt.item import GrapplerItem
    from memopt.shapes.properties import Properties
    from memopt.simulation.simulated_memory import SimulatedMemory


@dataclass(frozen=True)
class Context:
    """What a pass may know beside the graph. Frozen, and the same for every pass of a run.

    Attributes:
        fed: Names of the nodes whose output the caller gives: their own computation does not run.
        fetched: Names of the nodes that the caller asks for.
        fetched_tensors: Those tensors of them, `node:port`, that it asks for.
        kept: Names of further nodes that must stay as they are called.
        properties: Shapes and types of the graph's tensors; unknown where nothing was inferred.
        simulated: The step's timeline and memory on the devices that it runs on; `None` where no
            devices are known or nothing is fetched.
        budget_bytes: What may be in use at any moment while the graph runs, everything included,
            also what callers of a function hold; 0 for as little as possible.
        device_limits_bytes: Where the graph runs on several devices, what each of them may have in
            use, by name; the others have no limit.
        runtime: What kernels run on; this machine, without oneDNN, if not given.
        costs: How long operations take; by the analytical model if not given.
        in_function: Whether the graph runs as a function as it is: see `GrapplerItem`.
        data_ends: Whether data that the graph reads may come to an end: see `GrapplerItem`.
        stored: Where XLA compiles the graph: names of the operations whose results it puts in
            memory and computes nowhere else, of the graph as it is; empty if nobody knows.
        library_sums: There, those of its sums that a library adds up.
    """

    properties: Properties
    fed: frozenset[str] = frozenset()
    fetched: frozenset[str] = frozenset()
    fetched_tensors: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    simulated: SimulatedMemory | None = None
    budget_bytes: int = 0
    device_limits_bytes: Mapping[str, int] = field(default_factory=dict)
    runtime: Runtime | None = None
    costs: CostModel | None = None
    in_function: bool = False
    data_ends: bool = True
    stored: frozenset[str] = frozenset()
    library_sums: frozenset[str] = frozenset()

    @classmethod
    def of_item(
        cls, item: GrapplerItem, properties: Properties, simulated: SimulatedMemory | None = None
    ) -> Context:
        """What is known of the main graph of an item."""
        return cls(
            properties,
            fed=_nodes(item.feed),
            fetched=_nodes(item.fetch),
            fetched_tensors=frozenset(item.fetched_tensors),
            kept=_nodes(item.keep),
            simulated=simulated,
            in_function=item.in_function,
            data_ends=item.data_ends,
        )

    @property
    def inter_op_threads(self) -> int:
        """Operations that may run at once."""
        return 1 if self.runtime is None else self.runtime.inter_op_threads

    @property
    def named(self) -> frozenset[str]:
        """Names of all nodes that must stay: those that are fed, fetched or kept."""
        return self.fed | self.fetched | self.kept


def _nodes(references: Iterable[str]) -> frozenset[str]:
    return frozenset(name.partition(":")[0] for name in references)
