"""Plans for one step at many sizes: does it fit, unchanged and rewritten, and at what cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from memopt.allocator.training import AllocatorLimit, has_room, least_limit_bytes
from memopt.costs.choice import choose_planning_costs
from memopt.display import DisplayedFields
from memopt.errors import BudgetError, InvalidGraphError
from memopt.fitting.dimensions import with_size
from memopt.graph.graphdef import from_graph_def
from memopt.optimization.overhead import estimate_overhead
from memopt.optimizer import MemoryOptimizer
from memopt.options import Level
from memopt.passes.rematerialization import Rematerialization
from memopt.progress import found
from memopt.rematerialization.algorithms import PLANNER, SEGMENTS
from memopt.sequencing.step import Step
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.buffers.kernel_call import Runtime
    from memopt.costs.cost_model import CostModel
    from memopt.fitting.dimensions import Dimension
    from memopt.item import GrapplerItem
    from memopt.result import OptimizationResult

_QUICK = Rematerialization(algorithm=SEGMENTS, find_lowest=False)
"""Nearly always there is a plan by segments, in a fifth of the time that the best of all takes."""
_BEST = Rematerialization(find_lowest=False)
_PLANNED = Rematerialization(algorithm=PLANNER, find_lowest=False)
"""Measured on large steps: as good as the best of all but for a few parts of 1,000, in half the
time."""
_MOST_BEST = 2_000
"""Nodes of a step up to which the best of all algorithms takes no more than seconds."""
_LEAST_EXCESS = 1e-6
_LEAST_OVERHEAD = 0.05
"""What excess is measured by where less is allowed."""


@dataclass(frozen=True, repr=False)
class Probe(DisplayedFields):
    """What came of a plan for one size.

    Attributes:
        size: The size.
        outcome: In words.
        excess: By what share it is over the memory, or else over the overhead that is allowed; 0 or
            less if it fits.
        peak_bytes: The most in use at any moment, as planned; the lowest that was found if there
            is no plan.
        needed_bytes: What the allocator needs to have for that, or the peak if that is enough to
            tell.
        overhead: The share of time that the plan adds, as estimated; 0 if there is none.
        result: The rewritten step, if it fits and was planned by this process.
        is_quick: Whether it is by the quick algorithm alone.
    """

    size: int
    outcome: str
    excess: float
    peak_bytes: int
    needed_bytes: int
    overhead: float = 0.0
    result: OptimizationResult | None = field(default=None, repr=False, compare=False)
    is_quick: bool = False

    @property
    def fits(self) -> bool:
        """Whether it is within the memory and the overhead that are allowed."""
        return self.excess <= 0


class ProbesElsewhere(Protocol):
    """Other processes that plan a step, at several sizes at once."""

    @property
    def width(self) -> int:
        """How many sizes are planned at once."""

    def probe_each(
        self, planner: SizePlanner, sizes: Sequence[int], *, is_quick: bool
    ) -> Iterator[Probe]:
        """What `SizePlanner.probe_here` finds for sizes, in their order, without the graphs.

        Raises:
            MemoptError: A process has failed; the message names the size.
        """


@dataclass
class SizePlanner:
    """Plans a step at any size of its open dimensions; every size once in each way.

    Attributes:
        item: The step, with its dimensions open.
        dimensions: Those that get a size.
        limit_bytes: What the allocator may hand out.
        max_overhead: The share of time that a plan may add.
        costs: How long operations take; see `choose_costs`.
        say: Is told of each probe.
        runtime: What kernels run on; this machine, without oneDNN, if not given.
        keep_open: Whether the graph that is rewritten has its dimensions open still.
        spare_bytes: What is left to the allocator on top of what is planned; what is usual for the
            limit if less than 0.
        elsewhere: Plans several sizes at once, in other processes; `None` if this one plans all.
        probes: What was planned, in order.
    """

    item: GrapplerItem
    dimensions: Sequence[Dimension]
    limit_bytes: int
    max_overhead: float
    costs: CostModel | str
    say: Callable[[str], None]
    runtime: Runtime | None = None
    keep_open: bool = False
    spare_bytes: int = -1
    elsewhere: ProbesElsewhere | None = None
    probes: list[Probe] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._model = choose_planning_costs(self.costs, self.item)
        if self.spare_bytes < 0:
            self.spare_bytes = AllocatorLimit.with_spare(self.limit_bytes).spare_bytes
        self._thorough = _BEST if len(self.item.graph_def.node) <= _MOST_BEST else _PLANNED
        self._known: dict[tuple[int, bool], Probe] = {}

    @property
    def at_once(self) -> int:
        """How many sizes are planned at once."""
        return 1 if self.elsewhere is None else max(1, self.elsewhere.width)

    @property
    def has_quick_plans(self) -> bool:
        """Whether the quick algorithm is any quicker: on large steps it takes as long."""
        return self._thorough is _BEST

    def sized(self, size: int) -> GrapplerItem:
        """The step at a size."""
        return with_size(self.item, self.dimensions, size)

    def free_excess(self, sizes: Sequence[int]) -> list[float]:
        """By what share the step as it is, in TensorFlow's own order, is over the memory.

        Raises:
            InvalidGraphError: TensorFlow refuses the step at one of the sizes.
        """
        return [self._free_excess(size) for size in sizes]

    def _free_excess(self, size: int) -> float:
        timeline = self._run_freely(size)
        excess = timeline.peak_bytes / self.limit_bytes - 1
        if excess <= 0 and not has_room(timeline, self.limit_bytes):
            excess = max(least_limit_bytes(timeline) / self.limit_bytes - 1, _LEAST_EXCESS)
        self.say(f"size {size} unchanged: {'fits' if excess <= 0 else 'does not fit'}")
        return excess

    def quick_excess(self, sizes: Sequence[int]) -> list[float]:
        """By what share the step is over what is allowed, rewritten by the quick algorithm."""
        return [probe.excess for probe in self._probe_each(sizes, is_quick=True)]

    def excess(self, sizes: Sequence[int]) -> list[float]:
        """By what share the rewritten step is over what is allowed; see `Probe`."""
        self._probe_each([size for size in sizes if not self._fits_quickly(size)], is_quick=False)
        return [self.probe(size).excess for size in sizes]

    def probe(self, size: int) -> Probe:
        """Plan the step at a size, unless a quick plan fits.

        Raises:
            InvalidGraphError: TensorFlow refuses the step at that size.
        """
        return self._probe(size, is_quick=self._fits_quickly(size))

    def probe_all(self, size: int) -> Probe:
        """Plan the step at a size as well as can be and, if that does not fit, by segments too."""
        probe = self.probe(size)
        if not probe.fits:
            self._probe(size, is_quick=True)
        return self.probe(size)

    def result(self, size: int) -> OptimizationResult | None:
        """The rewritten step at a size; `None` if it does not fit. Another process makes no graph.

        Raises:
            InvalidGraphError: TensorFlow refuses the step at that size.
        """
        probe = self.probe(size)
        if probe.fits and probe.result is None:
            key = size, probe.is_quick
            probe = self._known[key] = self.probe_here(*key)
        return probe.result

    def probe_here(self, size: int, is_quick: bool) -> Probe:
        """Plan the step at a size in this process, whatever is known of it."""
        probe = self._planned(size, _QUICK if is_quick else self._thorough)
        return replace(probe, is_quick=is_quick)

    def _fits_quickly(self, size: int) -> bool:
        quick = self._known.get((size, True))
        return quick is not None and quick.fits

    def settle(self, size: int) -> None:
        """Plan a size that a quick plan fits as well as can be, and keep the cheaper of the two."""
        if not self._fits_quickly(size):
            return
        best = self._probe(size, is_quick=False)
        if best.fits and best.overhead < self._known[size, True].overhead:
            del self._known[size, True]

    def planned_below(self, size: int) -> int:
        """The largest smaller size that is known to fit, 0 if none is."""
        fitting = (probe.size for probe in self._known.values() if probe.fits)
        return max((each for each in fitting if each < size), default=0)

    def leave_more(self) -> None:
        """Leave the allocator twice as much: what was predicted to find room did not."""
        self.spare_bytes *= 2
        self._known = {key: probe for key, probe in self._known.items() if not probe.fits}

    def lowest(self, size: int) -> tuple[int, OptimizationResult | None]:
        """What the allocator has to have for a size that does not fit, as far as is known.

        Returns:
            The bytes, and the step that comes nearest, if there is one.
        """
        probe = self.probe(size)
        item = self.sized(size)
        try:
            result: OptimizationResult | None = self._plan(size, item, Rematerialization())
        except BudgetError as error:
            return error.lowest_bytes, error.result
        return max(probe.peak_bytes, probe.needed_bytes), result

    def _probe(self, size: int, *, is_quick: bool) -> Probe:
        key = size, is_quick
        if key not in self._known:
            self._note(self.probe_here(*key))
        return self._known[key]

    def _probe_each(self, sizes: Sequence[int], *, is_quick: bool) -> list[Probe]:
        """Plan the step at each of some sizes, several at once where that can be."""
        missing = [size for size in sizes if (size, is_quick) not in self._known]
        if self.elsewhere is not None:
            for probe in self.elsewhere.probe_each(self, missing, is_quick=is_quick):
                self._note(probe)
        return [self._probe(size, is_quick=is_quick) for size in sizes]

    def _note(self, probe: Probe) -> None:
        """Know of a plan, and tell of it."""
        size = probe.size
        self._known[size, probe.is_quick] = probe
        self.probes.append(probe)
        largest = self.planned_below(size + 1)
        if largest:
            found(f"size {largest} fits, the largest planned so far")
        self.say(f"size {size}{', quickly' if probe.is_quick else ''}: {probe.outcome}")

    def _planned(self, size: int, how: Rematerialization) -> Probe:
        item = self.sized(size)
        try:
            return self._judge(size, item, self._plan(size, item, how))
        except BudgetError as error:
            if how is not _PLANNED:
                return self._without_plan(size, error.lowest_bytes)
        return self._planned(size, _BEST)

    def _plan(self, size: int, item: GrapplerItem, how: Rematerialization) -> OptimizationResult:
        within = replace(
            how,
            allocator_limit=self.limit_bytes,
            allocator_spare=self.spare_bytes,
            enough_overhead=self.max_overhead,
        )
        optimizer = MemoryOptimizer(
            Level.ORDERED,
            budget=self.limit_bytes,
            costs=self._model,
            rematerialization=within,
            runtime=self.runtime,
            # What parts cost in time is not estimated, and the search goes by that.
            pass_options=("fission{most_parts=1}",),
        )
        rewritten = self.item if self.keep_open else item
        try:
            return optimizer.optimize(None, rewritten, Properties.of(item))
        except InvalidGraphError as error:
            raise _refused(size, error) from error

    def _judge(self, size: int, item: GrapplerItem, result: OptimizationResult) -> Probe:
        runtime = result.report.runtime
        assert runtime is not None
        timeline = runtime.after
        overhead = estimate_overhead(item, result, self._model)
        if overhead > self.max_overhead:
            scale = max(self.max_overhead, _LEAST_OVERHEAD)
            excess = min((overhead - self.max_overhead) / scale, 1.0)
            outcome = f"fits with {overhead:.1%} more time, which is too much"
            peak_bytes = timeline.peak_bytes
            return Probe(size, outcome, excess, peak_bytes, peak_bytes, overhead)
        if not has_room(timeline, self.limit_bytes, self.spare_bytes):
            least_bytes = least_limit_bytes(timeline, self.spare_bytes)
            needed_bytes = max(least_bytes, self.limit_bytes + 1)
            excess = needed_bytes / self.limit_bytes - 1
            outcome = "fits by its sum, but the allocator would find no room"
            return Probe(size, outcome, excess, timeline.peak_bytes, needed_bytes, overhead)
        left = (overhead - self.max_overhead) / max(self.max_overhead, _LEAST_OVERHEAD)
        outcome = f"fits with {overhead:.1%} more time"
        peak_bytes = timeline.peak_bytes
        return Probe(size, outcome, left, peak_bytes, peak_bytes, overhead, result)

    def _without_plan(self, size: int, lowest_bytes: int) -> Probe:
        excess = max(lowest_bytes / self.limit_bytes - 1, _LEAST_EXCESS)
        outcome = f"does not fit: no plan was found below {lowest_bytes} bytes"
        return Probe(size, outcome, excess, lowest_bytes, lowest_bytes)

    def _run_freely(self, size: int) -> MemoryTimeline:
        item = self.sized(size)
        properties = Properties.of(item)
        try:
            properties.require()
        except InvalidGraphError as error:
            raise _refused(size, error) from error
        step = Step.of(
            from_graph_def(item.graph_def),
            properties,
            fed=[name.partition(":")[0] for name in item.feed],
            fetched=[name.partition(":")[0] for name in item.fetch],
            in_function=item.in_function,
            runtime=self.runtime,
        )
        return step.run_freely()


def _refused(size: int, error: InvalidGraphError) -> InvalidGraphError:
    return InvalidGraphError(
        f"TensorFlow refuses the step at size {size} (if only multiples of a number are possible, "
        f"ask for them): {error}",
        error.node,
        error.input,
    )
