"""Fission: operations that need more than a budget, split into parts of their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeVar

from memopt.buffers.kernel_call import Runtime
from memopt.buffers.working_sets import working_sets
from memopt.errors import OptionsError
from memopt.fission.facts import Facts
from memopt.fission.growth import grow
from memopt.fission.kernel_trials import find_unequal, settings_of, try_products
from memopt.fission.parts import write_parts
from memopt.fission.products import GRADIENTS, write_products
from memopt.fission.trial_records import Outcome
from memopt.fission.trials import Trials
from memopt.graph.op_types import called_functions
from memopt.graph.rewriter import Decision, Touches
from memopt.passes.base import Pass
from memopt.sequencing.step import Step
from memopt.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from memopt.context import Context
    from memopt.fission.dimensions import Roles
    from memopt.fission.gradients import Gradient
    from memopt.fission.regions import Region
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter

T = TypeVar("T")

_MEBIBYTE = 1 << 20
_ROUNDS = 8
_REGROWN = 5
"""How often a region is looked for anew, without what has other bits in parts."""
_WORTH_IT = 0.9
"""Of what an operation needs, what it may need at most in parts for it to be split."""
_MOST_WAYS = 16
"""In how many ways a gradient is tried to be computed as products."""
_ROOM = 0.35
"""Of a budget, what single operations may need: a plan needs more than the largest of them, and
less is computed again where they need little."""
_ROOM_IN_HASTE = 0.6
"""The same where the time is limited: more operations in more parts take longer to be planned."""
_NEAR_THE_FLOOR = 0.7
"""Of the largest need, what counts as large where no budget says what does."""


@dataclass(frozen=True)
class Fission(Pass):
    """Run operations part by part along their first dimension, so that they need less at once.

    No order and no recomputation gets below what a single operation reads, makes and needs as
    scratch memory. An operation whose rows depend on the same rows of its inputs can run for some
    rows at a time, and a chain of them together, so that what lies within the chain is never there
    as a whole.

    1. Considered are operations that need more than a part of the budget by themselves; without a
       budget, those that need nearly as much as the largest that cannot be split, or more.
    2. Around each a region is grown; see `grow`. What others read as well can be computed in the
       region again, row by row: so the gradients of attention need no more of the scores than
       those of one part.
    3. It is split into the fewest parts with which it needs no more than that; see `write_parts`.
    4. Kernels whose last bits could depend on how many rows they get are run first, in a process
       of their own, as a whole and in parts; where a bit differs, they stay whole.
    5. A gradient of a convolution is computed as products instead, where its kernel would hold
       columns of many images, and that has the same bits when it is tried; see
       `fission.gradients`.

    Refused, with a reason in the report: what sums over its rows, is random, has a state, stands in
    v1 control flow, is fed, fetched or kept; what has other bits in parts; what is read by a sum
    whose order of addition could change; and what would need hardly less.
    """

    name: ClassVar[str] = "fission"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {
            *(Touches.NODES, Touches.DATA_EDGES, Touches.CONTROL_EDGES),
            *(Touches.OPS, Touches.ATTRIBUTES),
        }
    )

    most_parts: int = 8
    """Into how many parts an operation is split at most; 1 splits none."""
    memory_limit: int = 0
    """Bytes that may be in use at any moment, everything included; 0: what the optimizer's budget
    leaves, and as few as can be without one."""
    lowest: bool = False
    """Whether all is split that keeps the step from needing less, whatever the limit."""
    try_kernels: bool = True
    """Whether kernels are run in parts before they are split. Without, last bits can CHANGE."""
    planning_seconds: float = 0.0
    """After how many seconds no further operation is split; 0: when nothing is left to split."""
    trial_seconds: float = 0.0
    """How long all trials of kernels may take, once TensorFlow has started for them; 0: as long as
    they take. They are made once on a machine, and do not count as planning."""

    def __post_init__(self) -> None:
        if self.most_parts < 1:
            raise OptionsError(f"{self.name}: most_parts is {self.most_parts}, less than 1")
        for option in ("memory_limit", "planning_seconds", "trial_seconds"):
            if getattr(self, option) < 0:
                raise OptionsError(f"{self.name}: {option} is {getattr(self, option)}, less than 0")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Split what needs most, round after round, until nothing is left that is worth it."""
        if self.most_parts == 1 or not len(rewriter.graph):
            return
        settings = settings_of(context.runtime, Runtime().intra_op_threads)
        time_limit = TimeLimit.after(self.planning_seconds)
        with Trials(settings if self.try_kernels else (), self.trial_seconds) as trials:
            splitting = _Splitting(self, rewriter, context, trials, time_limit)
            for _ in range(_ROUNDS):
                # What was left alone can be split once others are.
                splitting.forget_declined()
                if not splitting.round():
                    break
            splitting.report()


class _Aim(NamedTuple):
    """What is to be split, and how far.

    Attributes:
        large_bytes: What needs more than this is split.
        enough_bytes: So that it needs no more than this.
    """

    large_bytes: int
    enough_bytes: int


class _Splitting:
    def __init__(
        self,
        options: Fission,
        rewriter: Rewriter,
        context: Context,
        trials: Trials,
        time_limit: TimeLimit,
    ) -> None:
        self._options = options
        self._rewriter = rewriter
        self._context = context
        self._trials = trials
        self._time_limit = time_limit
        limit_bytes = options.memory_limit or context.budget_bytes
        self._limit_bytes = 0 if options.lowest else limit_bytes
        self._room = _ROOM_IN_HASTE if options.planning_seconds else _ROOM
        self._reasons: dict[Node, str] = {}
        self._parts: set[str] = set()

    def round(self) -> bool:
        """Split each operation that needs too much now; whether anything was split."""
        step = Step.in_context(self._rewriter.graph, self._context)
        if step.devices is not None:
            return False
        nodes = step.buffer_graph.nodes
        facts = Facts(self._rewriter.graph, self._context, self._parts)
        fixed_bytes, sets = working_sets(step.buffer_graph, sorted(step.precedence.program))
        needs = {
            nodes[each.node]: each.size_bytes for each in sets if self._is_own(nodes[each.node])
        }
        aim = self._aim(needs, facts, fixed_bytes)
        if aim is None:
            return False
        done = False
        touched: set[Node] = set()
        for node in sorted(needs, key=lambda each: (-needs[each], each.index)):
            if needs[node] <= aim.large_bytes:
                break
            if self._time_limit.is_over:
                self._reasons[node] = "the time for planning was up before it was looked at"
                return False
            if node in touched or node.name not in facts.graph:
                continue
            members = self._less(node, needs[node], aim.enough_bytes, facts)
            if not members:
                aim = self._aim_beside(needs[node], aim)
                continue
            done = True
            touched |= members
            for each in members:
                touched.update(each.users)
            facts = Facts(self._rewriter.graph, self._context, self._parts)
        return done

    def forget_declined(self) -> None:
        """Say nothing of what was left alone so far: it is looked at again."""
        self._reasons.clear()

    def report(self) -> None:
        """Say what was left alone in the last round, and why."""
        for node, reason in self._reasons.items():
            self._rewriter.decline(node, reason)

    def _is_own(self, node: Node) -> bool:
        """Whether a node needs what it needs by itself, and not what it calls."""
        library = self._rewriter.graph.library
        return library is None or not called_functions(node, library)

    def _aim(self, needs: dict[Node, int], facts: Facts, fixed_bytes: int) -> _Aim | None:
        """What an operation may need besides what is held; `None` if splitting is in vain."""
        stays = {node: need for node, need in needs.items() if not facts.can_need_less(node)}
        fixed = max(stays.values(), default=0)
        largest = max(needs.values(), default=0)
        if not self._limit_bytes:
            # What cannot be split is what no part has to be smaller than.
            return _Aim(max(fixed, int(_NEAR_THE_FLOOR * largest)), fixed)
        room_bytes = self._limit_bytes - fixed_bytes
        if fixed > room_bytes:
            node = max(stays, key=stays.__getitem__)
            self._reasons[node] = (
                f"it needs {needs[node] / _MEBIBYTE:.2f} MiB, more than the budget leaves, and is "
                f"not split: {_why_whole(node, facts)}"
            )
            return None
        aim_bytes = int(self._room * room_bytes)
        return _Aim(aim_bytes, aim_bytes)

    def _aim_beside(self, whole_bytes: int, aim: _Aim) -> _Aim:
        """How far the others are split beside what stays whole, and cannot be got below."""
        if not self._limit_bytes:
            return aim
        aim_bytes = max(aim.enough_bytes, int(self._room * whole_bytes))
        return _Aim(aim_bytes, aim_bytes)

    def _less(self, node: Node, need_bytes: int, aim_bytes: int, facts: Facts) -> frozenset[Node]:
        """Let an operation need less; what is not there as it was, nothing if it is declined."""
        if node.op in GRADIENTS:
            if self._compute_as_products(node, need_bytes, aim_bytes, facts):
                return frozenset({node})
            if not facts.is_split(node):
                return frozenset()
        region = self._split(node, need_bytes, aim_bytes, facts)
        return frozenset() if region is None else region.members

    def _split(self, node: Node, need_bytes: int, aim_bytes: int, facts: Facts) -> Region | None:
        """Split an operation with the region around it; `None` if it is declined."""
        why = ""
        for _ in range(_REGROWN):
            region = grow(facts, node, self._options.most_parts)
            if region is None:
                roles = facts.roles(node)
                why = why or (
                    roles if isinstance(roles, str) else "no region around it can be split"
                )
                break
            choices = self._choices(region, need_bytes, aim_bytes)
            if not choices:
                why = why or "in parts it needs hardly less"
                break
            unequal: dict[Node, Outcome] = {}
            for parts, needed_bytes in choices:
                found = self._find_unequal(region, parts)
                if not found:
                    self._write(region, parts, node, need_bytes, needed_bytes)
                    return region
                unequal |= found
            for each, outcome in unequal.items():
                why = f"{each.op} {each.name!r} {outcome}"
                facts.exclude(each, why)
        self._reasons[node] = why
        return None

    def _compute_as_products(
        self, node: Node, need_bytes: int, aim_bytes: int, facts: Facts
    ) -> bool:
        """Compute a gradient of a convolution as products; whether it is not declined."""
        gradient = facts.products(node)
        if isinstance(gradient, str):
            self._reasons[node] = gradient
            return False
        ways = sorted(gradient.ways, key=lambda way: max(way.need_bytes, aim_bytes))[:_MOST_WAYS]
        outcomes = []
        for way in ways:
            outcomes.append(self._try_products(node, way))
            if outcomes[-1] is Outcome.EQUAL:
                self._write_products(node, way, need_bytes)
                return True
        how = "has other bits" if set(outcomes) == {Outcome.OTHER} else outcomes[-1]
        self._reasons[node] = f"{node.op} {node.name!r} from {gradient.what} {how}"
        return False

    def _write_products(self, node: Node, way: Gradient, need_bytes: int) -> None:
        reason = (
            f"{node.name!r} is computed from {way.what}: it needs {need_bytes / _MEBIBYTE:.2f} MiB "
            f"by itself, and they need {way.need_bytes / _MEBIBYTE:.2f} MiB"
        )
        decisions = [Decision(node.name, "computed as products")]
        with self._rewriter.edit(reason, decisions=decisions):
            write_products(self._rewriter, self._context, node, way)
        self._parts.update((node.name, *self._rewriter.edits[-1].added))

    def _try_products(self, node: Node, way: Gradient) -> Outcome:
        return self._tried(lambda: try_products(node, way, self._trials), Outcome.EQUAL)

    def _choices(self, region: Region, need_bytes: int, aim_bytes: int) -> list[tuple[int, int]]:
        """Numbers of parts and what is needed with them, the best first.

        That is the fewest parts with which little enough is needed, or else those that need least.
        """
        found = [(parts, region.need_bytes(parts)) for parts in self._part_numbers(region)]
        worth_it = [each for each in found if each[1] <= _WORTH_IT * need_bytes]
        return sorted(worth_it, key=lambda each: (max(each[1], aim_bytes), each[0]))

    def _find_unequal(self, region: Region, parts: int) -> dict[Node, Outcome]:
        return self._tried(lambda: find_unequal(region, parts, self._trials), {})

    def _tried(self, make: Callable[[], T], trusted: T) -> T:
        """What trials say, which do not count as planning; without, what is trusted."""
        found = [trusted]
        if self._options.try_kernels:
            self._time_limit = self._time_limit.after_all(lambda: found.append(make()))
        return found[-1]

    def _part_numbers(self, region: Region) -> list[int]:
        most = min(self._options.most_parts, region.unit)
        numbers = [parts for parts in range(2, most + 1) if region.unit % parts == 0]
        return [parts for parts in (numbers or [most]) if region.can_be_in(parts)]

    def _write(
        self, region: Region, parts: int, node: Node, need_bytes: int, needed_bytes: int
    ) -> None:
        reason = (
            f"{len(region.nodes)} operations run in {parts} parts of their rows, one after the "
            f"other: {node.name!r} needs {need_bytes / _MEBIBYTE:.2f} MiB by itself, and they need "
            f"{needed_bytes / _MEBIBYTE:.2f} MiB in parts"
        )
        decisions = [Decision(each.name, _role(region, each)) for each in region.nodes]
        with self._rewriter.edit(reason, decisions=decisions):
            write_parts(self._rewriter, region, parts, self._context)
        self._parts.update(self._rewriter.edits[-1].added)


def _why_whole(node: Node, facts: Facts) -> Gradient | Roles | str:
    return facts.products(node) if node.op in GRADIENTS else facts.roles(node)


def _role(region: Region, node: Node) -> str:
    if node in region.copied:
        return "its rows are computed in each part again, as others read all of it"
    return "split into parts"
