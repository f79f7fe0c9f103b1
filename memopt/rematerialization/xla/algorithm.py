"""The walk along the sequence: while too much is in use, something is recomputed or stored.

XLA's `HloRematerialization::RematerializeComputation`
(tensorflow/compiler/xla/service/hlo_rematerialization.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from memopt.rematerialization.dead_code import find_dead
from memopt.rematerialization.instructions import Instructions
from memopt.rematerialization.rematerialized import Rematerialized
from memopt.rematerialization.storage.forms import Strategies
from memopt.rematerialization.xla.blocks import copy_block, store_result
from memopt.rematerialization.xla.candidates import Candidates
from memopt.rematerialization.xla.memory_tracker import MemoryUsageTracker
from memopt.time_limit import NO_LIMIT, TimeLimit

if TYPE_CHECKING:
    from collections.abc import Collection

    from memopt.rematerialization.network import Network
    from memopt.rematerialization.xla.candidates import Block

_RECOMPUTE = Strategies()
_MOST_BLOCKS_PER_NODE = 4
"""Where a limit is far out of reach, making more and more copies of copies has to end."""


def rematerialize(
    network: Network,
    limit_bytes: int,
    *,
    largest_block: int = 1,
    smallest_bytes: int = 0,
    strategies: Strategies = _RECOMPUTE,
) -> Rematerialized:
    """Walk along a sequence, recompute and store what reduces the memory in use to a limit.

    At each instruction, while more is in use than the limit allows: the candidate of least cost is
    copied, and all its readers that have not begun get the copy, which is placed before the first
    of them, and before the last remaining readers of its operands, so that these do not live
    longer. If nobody had read the original, it was only moved: then it is removed, and a copy that
    is moved once more is skipped from then on.

    Or, if that costs less, the candidate's result is stored in another form after its last use so
    far and restored for all its readers that have not begun, before the first of them. What was
    compressed is not compressed again; what lies on the host can be had from there again.

    A limit that cannot be kept is no error; see `peak_bytes`.

    Args:
        network: The sequence with its buffers.
        limit_bytes: What may be in use, what was held before the step included. So what is held
            and what is returned is off the limit, as in XLA.
        largest_block: How many instructions are recomputed together at most; 1 is XLA's rule.
        smallest_bytes: What makes no more than this is never recomputed, but for the sake of
            something else.
        strategies: What may be done.
    """
    walk = Walk(
        limit_bytes,
        largest_block=largest_block,
        smallest_bytes=smallest_bytes,
        strategies=strategies,
    )
    return along_sequence(network, walk)


class Walked(NamedTuple):
    """What came of a walk.

    Attributes:
        peak_bytes: The most that is in use at any time, by its count.
        block_count: How many times something was recomputed or stored.
    """

    peak_bytes: int
    block_count: int


@dataclass(frozen=True)
class Walk:
    """One walk along instructions; arguments as for `rematerialize`."""

    limit_bytes: int
    largest_block: int = 1
    smallest_bytes: int = 0
    strategies: Strategies = _RECOMPUTE
    time_limit: TimeLimit = NO_LIMIT

    def along(
        self, instructions: Instructions, *, at: int | None = None, dead: Collection[int] = ()
    ) -> Walked:
        """Walk along instructions and insert what reduces the memory in use.

        Args:
            instructions: What runs; changed in place.
            at: The only instruction at which the limit counts; every one if not given.
            dead: Instructions in the line that do not run any more and read nothing.

        Raises:
            TimeIsUpError: It took too long.
        """
        tracker = MemoryUsageTracker(instructions)
        for instruction in dead:
            # What has to come before one of these cannot be recomputed later.
            tracker.placed[instruction] = True
        candidates = Candidates(
            instructions,
            tracker,
            self.limit_bytes,
            self.strategies,
            largest_block=self.largest_block,
            smallest_bytes=self.smallest_bytes,
        )
        moved: set[int] = set()
        block_count = 0
        most_blocks = _MOST_BLOCKS_PER_NODE * len(instructions.network.sequence)
        for instruction in instructions.line:
            if instruction in dead:
                continue
            self.time_limit.check()
            tracker.begin(instruction)
            candidates.begin(instruction)
            counts = at is None or instruction == at
            while (
                counts and tracker.usage_now_bytes > self.limit_bytes and block_count < most_blocks
            ):
                block = candidates.pick()
                if block is None:
                    break
                block_count += 1
                _insert(instructions, tracker, candidates, block, moved)
            tracker.end()
            candidates.add(instruction)
        return Walked(tracker.most_bytes, block_count)


def along_sequence(network: Network, walk: Walk) -> Rematerialized:
    """What one walk along a network's sequence makes of it, see `rematerialize`."""
    instructions = Instructions(network)
    walked = walk.along(instructions)
    return finish(instructions, walked.peak_bytes, walked.block_count)


def finish(instructions: Instructions, peak_bytes: int, block_count: int) -> Rematerialized:
    """What was inserted, without what nobody needs any more."""
    removed = find_dead(instructions)
    gone = frozenset(removed)
    sequence = [instruction for instruction in instructions.line if instruction not in gone]
    return Rematerialized(instructions, sequence, removed, peak_bytes, block_count)


def _insert(
    instructions: Instructions,
    tracker: MemoryUsageTracker,
    candidates: Candidates,
    block: Block,
    moved: set[int],
) -> None:
    """Recompute a block, or store its result."""
    if block.form is not None:
        _store(instructions, tracker, candidates, block)
        return
    copied = copy_block(instructions, tracker, block.members)
    for buffer in tracker.add_copies(block.members[-1], copied.copies, copied.moved):
        candidates.revive(buffer)
    for copy in copied.copies:
        # What is made for the sake of the last one is read by it, and gone, at once.
        if copy != copied.last:
            candidates.skip(copy)
    if not block.is_move:
        return
    if block.members[-1] in moved:
        # A copy that took the place of its original is replaced itself: no third time.
        candidates.skip(copied.last)
    moved.add(copied.last)


def _store(
    instructions: Instructions,
    tracker: MemoryUsageTracker,
    candidates: Candidates,
    block: Block,
) -> None:
    """Store a result in its form."""
    assert block.form is not None
    (original,) = block.members
    stored = store_result(instructions, tracker, original, block.form)
    for buffer in tracker.add_stored(original, stored):
        candidates.revive(buffer)
    if not block.form.stays:
        candidates.skip(stored.copied.last)
