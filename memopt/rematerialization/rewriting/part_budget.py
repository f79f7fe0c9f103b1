"""Budgets of parts of a step: of some of its buffers, whatever the others take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.rematerialization.network import Network


class PartBudget(ABC):
    """What a part of a step may have in use at any moment.

    Attributes:
        limit_bytes: What its buffers, and its kernels' scratch memory, may take.
    """

    limit_bytes: int

    @abstractmethod
    def buffers(self, buffer_graph: BufferGraph) -> BufferGraph:
        """The same buffers, of which those of other parts take nothing."""

    def narrow(self, network: Network, kept: Sequence[PartBudget]) -> Network:
        """What a plan for the part alone starts from.

        Args:
            network: All of the step.
            kept: Other parts, which are within their budgets and have to stay there.
        """
        del kept
        return replace(network, buffer_graph=self.buffers(network.buffer_graph))

    def peak_bytes(self, buffer_graph: BufferGraph, sequence: Sequence[int]) -> int:
        """The most that the part has in use in a step."""
        return simulate(self.buffers(buffer_graph), sequence).peak_bytes
