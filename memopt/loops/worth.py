"""What a pair of loops keeps, as it is and in segments; how many turns run again at least."""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.op_types import DT_VARIANT
from memopt.loops.pairs import UnfitError, source
from memopt.loops.turns import loop_turns
from memopt.shapes.known_integers import KnownIntegers

if TYPE_CHECKING:
    from memopt.graph.graph import Graph, Tensor
    from memopt.loops.pairs import Loop, LoopPair
    from memopt.shapes.properties import Properties

_MOST_SEGMENTS = 10_000
_THERE_ANYWAY = frozenset({"Const", "ReadVariableOp", "TensorListGetItem"})


class Cut(NamedTuple):
    """How the turns of a loop are divided.

    Attributes:
        segments: How many segments run again.
        turns: How many turns each of them has; the last one may have less, where none are left.
        last: How many turns at the end keep what they compute, as all turns did.
    """

    segments: int
    turns: int
    last: int = 0


class Kept(NamedTuple):
    """What a pair of loops keeps for the gradient.

    Attributes:
        turns: How often it turns.
        turn_bytes: What each turn keeps.
        state_bytes: What a turn is given that changes from turn to turn.
        always: Whether it turns as often in every call; else it is how often it turns in one.
    """

    turns: int
    turn_bytes: int
    state_bytes: int
    always: bool = True

    @property
    def whole_bytes(self) -> int:
        """What is kept as it is."""
        return self.turns * self.turn_bytes

    def after(self, cut: Cut) -> int:
        """What is kept at most: the states of all segments, and the turns of the largest part."""
        return cut.segments * self.state_bytes + max(cut.turns, cut.last) * self.turn_bytes

    def again(self, cut: Cut) -> int:
        """How many turns run again."""
        return self.turns - cut.last

    def cut_by(self, turns: int) -> Cut:
        """All turns in segments of so many."""
        return Cut(ceil(self.turns / turns), turns)

    def least_cut(self) -> Cut:
        """All turns in segments with which about least is kept.

        To keep the last turns would take no more while a loop runs, but until then.
        """
        best = sqrt(self.turns * self.state_bytes / self.turn_bytes)
        return self.cut_by(max(1, min(self.turns, ceil(best))))

    def cut_within(self, limit_bytes: int, least_segments: int = 1) -> Cut | None:
        """With which fewest turns run again so that no more is kept; `None` if there is none.

        Some turns are left at the end. The fewer segments, the fewer states are kept beside these.
        """
        best: Cut | None = None
        for segments in range(max(1, least_segments), min(self.turns, _MOST_SEGMENTS + 1)):
            left_bytes = limit_bytes - segments * self.state_bytes
            last = min(self.turns - 1, left_bytes // self.turn_bytes)
            if best is not None and last <= best.last:
                break
            turns = ceil((self.turns - last) / segments)
            cut = Cut(segments, turns, self.turns - segments * turns)
            if cut.last > 0 and turns <= last and (best is None or cut.last > best.last):
                best = cut
        return best

    @classmethod
    def of(cls, pair: LoopPair, graph: Graph, properties: Properties) -> Kept:
        """What a pair keeps.

        Args:
            pair: The loops.
            graph: The graph that they are in.
            properties: What is known of it.

        Raises:
            UnfitError: That is not known before the step.
        """
        loop = pair.forward
        counted = turns = loop_turns(loop, graph)
        if turns is None and properties.certain is not properties:
            turns = loop_turns(loop, graph, KnownIntegers.of(properties))
        if turns is None:
            raise UnfitError("how often it turns is not known before the step")
        body = properties.function(loop.body_name)
        pushed = dict.fromkeys(map(_MadeIn(loop).maker, pair.pushed))
        state = (loop.node.output(position) for position in pair.state)
        kept = cls(
            turns,
            sum(_bytes(tensor, body) for tensor in pushed if tensor is not None),
            sum(_bytes(tensor, properties) for tensor in state),
            always=counted is not None,
        )
        if not kept.whole_bytes:
            raise UnfitError("what its turns keep has no known size")
        return kept


class _MadeIn:
    """Which turn's operation has made what a turn keeps."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._numbers = {argument: number for number, argument in enumerate(loop.body.arguments)}

    def maker(self, tensor: Tensor) -> Tensor | None:
        """What makes it, in this turn or the one before; `None` if it is there anyway.

        What all turns are given is there anyway, and so are the elements of a list of them.
        """
        tensor = source(tensor)
        number = self._numbers.get(tensor.node)
        if number is None:
            return None if tensor.node.op in _THERE_ANYWAY else tensor
        if self._loop.body.hands_on(number):
            return None
        made = self._loop.body.results[number]
        return None if made.node in self._numbers else made


def _bytes(tensor: Tensor, properties: Properties) -> int:
    known = properties.tensor(tensor.name)
    return 0 if known is None or known.dtype == DT_VARIANT else known.least_bytes
