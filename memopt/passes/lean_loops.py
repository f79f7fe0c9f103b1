"""LeanLoops: loops that keep no copies of what every turn is given, where XLA would make them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.graph.functiondef import Library
from memopt.loops.pairs import Loop, find_paired_lists, why_asked_for
from memopt.loops.rewritten_loop import TOUCHES
from memopt.loops.spared_lists import find_only_read, find_spared, read_before, spare_lists
from memopt.passes.base import Pass

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter, Touches
    from memopt.loops.pairs import PairedLists


@dataclass(frozen=True)
class LeanLoops(Pass):
    """Take out of the lists that loops keep what their turns are given, in a step for XLA.

    A loop whose gradient is taken puts into lists what each turn computes, the values of variables
    that it reads included, and the samples that it takes out of a list of all. TensorFlow's lists
    hold tensors, which are there once. XLA's hold copies: one of each variable for each turn.

    1. Variables that the turns of a loop only read are read before it, and it is given the values.
    2. Where a list holds what every turn is given, the loop of the gradient is given it too, and
       the list is not there.
    3. Likewise where it holds one part of that after the other, as one sample of all, if another
       list holds their numbers: the loop of the gradient takes the same parts out again.

    Nothing is computed that was not, so all bits stay. Loops that are fed are left alone, and those
    of which tensors are fetched.
    """

    name: ClassVar[str] = "lean-loops"
    touches: ClassVar[frozenset[Touches]] = TOUCHES

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at each loop that another one takes out of, with one edit for each."""
        written: set[Node] = set()
        for pair in list(find_paired_lists(rewriter.graph, context.named)):
            first, second = pair.forward.node, pair.backward.node
            if first in written or second in written:
                rewriter.decline(first, "a loop that it belongs to was written anew already")
            elif why := why_asked_for((first, second), context):
                rewriter.decline(first, why)
            elif _write(rewriter, context, pair):
                written |= {first, second}


def _write(rewriter: Rewriter, context: Context, pair: PairedLists) -> bool:
    """Write a pair of loops anew, if there is something to spare; whether there was."""
    first, library = pair.forward, rewriter.graph.library
    assert isinstance(library, Library)
    known = context.properties.certain.function(first.body_name)
    reads = find_only_read(first)
    if reads:
        with rewriter.edit(f"its turns are given the values of {len(reads)} variables"):
            read_before(rewriter, first, reads, known)
    before, pair = pair, pair._replace(forward=Loop.of(first.node, library))
    spared = find_spared(pair)
    if spared:
        elements = (known.tensor(before.pushed(each.position).name) for each in spared)
        size_bytes = sum(element.least_bytes for element in elements if element is not None)
        reason = (
            f"{len(spared)} lists would hold {size_bytes} bytes of each turn that all are given"
        )
        with rewriter.edit(reason):
            spare_lists(rewriter, pair, spared)
    return bool(reads or spared)
