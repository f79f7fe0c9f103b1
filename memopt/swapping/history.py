"""What swapping tried before in the same optimization, read from the rewriter's record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter

SWAP_OUT_PREFIX = "swap_out_"
SWAP_WAIT_PREFIX = "swap_wait_"
SWAP_IN_PREFIX = "swap_in_"
PREFIXES = (SWAP_OUT_PREFIX, SWAP_WAIT_PREFIX, SWAP_IN_PREFIX)

_NO_TRIGGER = "no trigger for copies back: "
_NOT_SWAPPED = re.compile(r"input (?P<slot>-?[0-9]+) not swapped: ")


class SwapHistory:
    """Grappler's skip list: what is not tried twice, however often the pass runs.

    The record is where it belongs: what is reverted is forgotten.

    Attributes:
        nodes: Names of swap operations, and of readers that no trigger was found for.
        inputs: Inputs, as `node:slot`, that were swapped or that could not be.
    """

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.inputs: set[str] = set()

    @classmethod
    def of(cls, rewriter: Rewriter) -> SwapHistory:
        """The history that a rewriter's record tells. Linear in the record."""
        history = cls()
        for edit in rewriter.edits:
            names = [name for name in edit.added if name.startswith(PREFIXES)]
            history.nodes.update(names)
            if names and names[0].startswith(SWAP_OUT_PREFIX):
                reader, _, slot = names[0].removeprefix(SWAP_OUT_PREFIX).rpartition("_")
                history.inputs.add(f"{reader}:{slot}")
        for declined in rewriter.declined:
            if declined.reason.startswith(_NO_TRIGGER):
                history.nodes.add(declined.node)
            match = _NOT_SWAPPED.match(declined.reason)
            if match is not None:
                history.inputs.add(f"{declined.node}:{match['slot']}")
        return history


def decline_reader(rewriter: Rewriter, reader: Node, reason: str) -> None:
    """Record that a reader's inputs stay because nothing could start their copies back."""
    rewriter.decline(reader, f"{_NO_TRIGGER}{reason}")


def decline_input(rewriter: Rewriter, reader: Node, slot: int, reason: str) -> None:
    """Record that one input of a reader stays."""
    rewriter.decline(reader, f"input {slot} not swapped: {reason}")
