"""CheckpointLoops: loops that keep the state of some turns, and run the others again."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.errors import OptionsError
from memopt.graph.functiondef import Library
from memopt.graph.op_types import DT_INT32
from memopt.loops.pairs import LoopPair, UnfitError, find_pairs, reads_of, why_asked_for
from memopt.loops.rewritten_loop import TOUCHES
from memopt.loops.segments import OpenTurns, Segments, Variable, write_segments
from memopt.loops.worth import Kept
from memopt.passes.base import Pass
from memopt.shapes.known_integers import KnownIntegers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node
    from memopt.graph.rewriter import Rewriter, Touches
    from memopt.shapes.properties import Properties

_MEBIBYTE = 1 << 20
_PARTS = 1000
"""Of what loops keep, so fine are the shares that are tried."""
_WORTH_IT = 0.8
"""Of what a loop keeps, what it may keep at most in segments for it to be rewritten."""
_MARGIN = 1.25
"""How much more loops together have to be able to keep less than is asked of them: one alone at its
least runs in segments of single turns, two at the half of it in long ones, and comes nearer."""


@dataclass(frozen=True)
class CheckpointLoops(Pass):
    """Keep the state of some turns of a loop, and run the others again for the gradient.

    A recurrent layer is a loop that puts what each turn computes into lists, out of which the loop
    of its gradient takes it, in the opposite order: everything of every turn is there at once. No
    order and no recomputation of single operations helps. As with the checkpoints of Chen et al.
    (2016, "Training Deep Nets with Sublinear Memory Cost"), along time:

    1. The first loop becomes a loop over segments of some turns, and keeps the state with which a
       segment begins: of n turns, about the square root of n, by what states and turns need.
    2. The loop of the gradient becomes one over the segments, from the last to the first. It runs a
       segment again, which fills lists for as many turns, and then the gradient of these.

    With `enough_bytes`, turns at the end keep what they compute as they did, and only those before
    run in segments: the more may be kept, the fewer run again.

    Every operation is given what it was given before, so all bits stay; of the first loop, what
    runs in segments is done twice. Variables are read where they were read before, and their values
    kept.

    How often a loop turns may be another number in each call, as with sequences that are padded to
    the longest of a batch. Segments are as long as is best for the call of which the item tells
    (`GrapplerItem.assumed_shapes`); in every call as large a part of the turns runs in them, and
    how many are left at the end is counted in the step.

    Refused, with a reason in the report: a loop with effects, randomness or states of its own in
    what would run twice; whose turns cannot be counted before the step, and no call tells; that is
    fed, or whose tensors are fetched; and one that would keep hardly less.
    """

    name: ClassVar[str] = "checkpoint-loops"
    touches: ClassVar[frozenset[Touches]] = TOUCHES

    run_again: bool = True
    """Whether turns may run again; without, every loop is left alone."""
    segment_turns: int = 0
    """Turns in a segment; 0: with how many least is kept."""

    least_segments: int = 1
    """How many segments there are at least, if turns at the end keep what they compute. XLA takes
    a loop of one turn apart, and fills what would be its lists when the step begins."""

    enough_bytes: int = 0
    """How much less is to be kept: of several loops those that keep most run in segments, until it
    is enough, and as many turns of them as are needed for that; 0: all turns of all loops."""

    def __post_init__(self) -> None:
        for option in ("segment_turns", "least_segments", "enough_bytes"):
            if getattr(self, option) < 0:
                raise OptionsError(f"{self.name}: {option} is {getattr(self, option)}, less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at each loop that another one reads; rewrite those that are chosen."""
        if not self.run_again:
            return
        candidates = []
        for node, pair in find_pairs(rewriter.graph, context.named):
            try:
                if not isinstance(pair, str):
                    candidates.append(self._candidate(rewriter.graph, context, pair))
                    continue
                reason = pair
            except UnfitError as error:
                reason = str(error)
            rewriter.decline(node, reason)
        for chosen in self._in_few_turns(self._choose(rewriter, candidates)):
            _write(rewriter, chosen)

    def _candidate(self, graph: Graph, context: Context, pair: LoopPair) -> _Candidate:
        """A pair of loops with what is known of it.

        Raises:
            UnfitError: It is left alone.
        """
        if why := why_asked_for((pair.forward.node, pair.backward.node), context):
            raise UnfitError(why)
        body = context.properties.certain.function(pair.forward.body_name)
        kept = Kept.of(pair, graph, context.properties)
        known = (body.tensor(tensor.name) for tensor in pair.pushed)
        elements = [None if each is None else each.shape for each in known]
        cut = kept.cut_by(self.segment_turns) if self.segment_turns else kept.least_cut()
        if kept.after(cut) > _WORTH_IT * kept.whole_bytes:
            before, after = map(_mebibytes, (kept.whole_bytes, kept.after(cut)))
            raise UnfitError(f"its turns keep {before}, and in segments they would keep {after}")
        variables = _variables(pair, body)
        open_turns = None if kept.always else _open_turns(pair, kept, context.properties)
        return _Candidate(kept, Segments(pair, cut, variables, elements, open_turns))

    def _choose(self, rewriter: Rewriter, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        """Those that are rewritten, the one that saves most first; says why others are not."""
        chosen: list[_Candidate] = []
        loops: set[Node] = set()
        saved = 0
        for each in sorted(candidates, key=lambda one: one.saved_bytes, reverse=True):
            pair = each.segments.pair
            forward, backward = pair.forward.node, pair.backward.node
            if self.enough_bytes and saved >= _MARGIN * self.enough_bytes:
                rewriter.decline(forward, "the loops that keep more are enough")
            elif loops & {forward, backward}:
                rewriter.decline(forward, "a loop that it belongs to runs in segments already")
            else:
                chosen.append(each)
                loops |= {forward, backward}
                saved += each.saved_bytes
        return chosen

    def _in_few_turns(self, chosen: Sequence[_Candidate]) -> list[_Candidate]:
        """The same with the last turns of each left as they are, as long as that is enough.

        Each keeps the same share of what it kept. Nearly all turns of one loop and few of another
        would save as much, but more of them would have to run again.
        """

        def saves_enough(parts: int) -> bool:
            within = (each.within(parts, self.least_segments) for each in chosen)
            return sum(each.saved_bytes for each in within) >= self.enough_bytes

        parts = 0
        if self.enough_bytes and not self.segment_turns:
            parts = bisect_left(range(1, _PARTS + 1), x=True, key=lambda n: not saves_enough(n))
        return [each.within(parts, self.least_segments) for each in chosen]


class _Candidate(NamedTuple):
    """A pair of loops that can run in segments.

    Attributes:
        kept: What they keep.
        segments: The loops, and how they would run.
    """

    kept: Kept
    segments: Segments

    @property
    def after_bytes(self) -> int:
        """What they keep at most in segments."""
        return self.kept.after(self.segments.cut)

    @property
    def saved_bytes(self) -> int:
        """How much less that is."""
        return self.kept.whole_bytes - self.after_bytes

    def within(self, parts: int, least_segments: int) -> _Candidate:
        """One that keeps no more than a share, in parts of `_PARTS`; this one if there is none."""
        cut = self.kept.cut_within(self.kept.whole_bytes * parts // _PARTS, least_segments)
        return self if cut is None else self._replace(segments=self.segments._replace(cut=cut))


def _write(rewriter: Rewriter, chosen: _Candidate) -> None:
    """Rewrite a pair of loops."""
    kept, segments = chosen
    before, after = map(_mebibytes, (kept.whole_bytes, chosen.after_bytes))
    library = rewriter.graph.library
    assert isinstance(library, Library)
    cut = segments.cut
    reason = (
        f"{kept.again(cut)} of {kept.turns} turns run in segments of {cut.turns}, which run again "
        f"for the gradient: with the state that each begins with, {after} are kept at most instead "
        f"of {before}"
    )
    if not kept.always:
        reason += "; in calls with more or fewer turns as large a part of them"
    with rewriter.edit(reason):
        write_segments(rewriter, library, segments)


def _mebibytes(size_bytes: int) -> str:
    return f"{size_bytes / _MEBIBYTE:.2f} MiB"


def _open_turns(pair: LoopPair, kept: Kept, properties: Properties) -> OpenTurns:
    """How many turns of the first loop there are in one call, and what tells it in each.

    That is no number which is the same in every call, though it may be as large in this one.
    """
    here, everywhere = KnownIntegers.of(properties), KnownIntegers.of(properties.certain)
    for tensor in pair.forward.node.inputs:
        known = properties.tensor(tensor.name)
        if known is None or known.dtype != DT_INT32:
            continue
        if here.number(tensor) == kept.turns and everywhere.number(tensor) is None:
            return OpenTurns(kept.turns, tensor)
    return OpenTurns(kept.turns, None)


def _variables(pair: LoopPair, body: Properties) -> dict[int, Variable]:
    """What a pair's first loop reads from variables, by position.

    Raises:
        UnfitError: One is not known.
    """
    found = {}
    for position in pair.variables:
        read = reads_of(pair.forward.body, position)[0]
        known = body.tensor(read.output().name)
        if known is None:
            raise UnfitError("what it reads from variables is not known")
        found[position] = Variable(known.dtype, known.shape)
    return found
