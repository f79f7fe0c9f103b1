"""The largest size of a step's open dimension that fits into memory: `memopt.fit`."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.buffers.kernel_call import Runtime
from memopt.costs.choice import AUTO
from memopt.errors import BudgetError, OptionsError, OutOfMemoryError
from memopt.fitting.dimensions import find_dimensions
from memopt.fitting.planner import SizePlanner
from memopt.fitting.result import Fit
from memopt.fitting.search import MOST_GROWTH, find_largest
from memopt.graph.kernels import runs_onednn
from memopt.io import as_item
from memopt.options import parse_bytes
from memopt.progress import Task, found, task
from memopt.runtime.process import step_process
from memopt.runtime.program import Program, captured_values
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.costs.cost_model import CostModel
    from memopt.fitting.dimensions import Dimension
    from memopt.io import GraphSource
    from memopt.runtime.settings import Mode

MAX_OVERHEAD = "20%"
_SHARE = re.compile(r"(?P<percent>[0-9]+(?:\.[0-9]+)?)\s*%")
_FIRST_GUESS = 3
"""How much larger than the unchanged step's the first size is that is planned."""
_MOST_GROWTH = 8.0
"""Between two sizes that are looked at unchanged, where memory is near linear in the size."""
_LITTLE_GROWTH = 1.125
"""How much more the best plans are first tried for than the quick ones came to."""
_COARSE = 16
"""To which part of themselves sizes are told apart by quick plans."""
_STEP_DOWN = 32
_MEBIBYTE = 1 << 20
_MOST_RUNS = 8
_STEPS = 3
"""How often the real step runs: the second finds the holes that the first one left."""
_PROCESSES = 2
"""Small tensors lie elsewhere in each, and with them the holes."""


def fit(  # noqa: PLR0913 - keywords, each with a default
    graph: GraphSource,
    memory: int | str,
    *,
    max_overhead: float | str = MAX_OVERHEAD,
    dimensions: Sequence[Dimension | str] | None = None,
    multiple_of: int = 1,
    costs: CostModel | str = AUTO,
    run: bool = True,
    mode: Mode = "exact",
    keep_open: bool = False,
    seed: int = 0,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
    jobs: int | None = None,
    on: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Find the largest batch (or other open dimension) at which a rewritten step fits into memory.

    No step is run for the search: at each size that is tried the step is planned within the memory,
    and TensorFlow's allocator is simulated on the plan. Then real steps, in fresh processes with
    the memory for a limit and values that are made up, prove the size. If one runs out of memory
    all the same, smaller sizes are tried.

    Args:
        graph: A ConcreteFunction, GraphDef, MetaGraphDef, path of a graph file, or GrapplerItem;
            what is fed has open dimensions (`None` in the step's input signature).
        memory: What may be in use at any moment, everything included: bytes or "4GiB".
        max_overhead: The share of its estimated time that the step may take longer: 0.2 or "20%".
        dimensions: What has the size that is looked for ("images:0"), and what has a known one
            ("tokens:1=64"). Without, the first open dimension of everything that is fed.
        multiple_of: Sizes are multiples of this.
        costs: How long operations take; see `choose_costs`.
        run: Whether to run the real step.
        mode: What it is planned for and runs with: "exact" without oneDNN and one operation at a
            time; "as-is" with the kernels and threads that TensorFlow takes by default. Grappler is
            off in both.
        keep_open: Whether dimensions stay open in the rewritten step, where a rewriting can do
            without their sizes.
        seed: What values and random operations without seeds draw from.
        fetch: What the caller asks for, instead of what the graph says.
        feed: What the caller gives, instead of what the graph says.
        jobs: Plan so many sizes at once, in processes of their own; one after another in this
            process if not given.
        on: Plan on a Ray cluster at this address, see `ray.init`; real steps run here all the same.
        progress: Is called with a line of text for every size that was tried.

    Raises:
        FileError: The path holds no graph.
        InvalidGraphError: TensorFlow refuses the graph at a size.
        OptionsError: No dimension is open, or an option is not valid.
        BudgetError: Not even the smallest size fits. It tells the lowest peak that was found.
        ExecutionError: The real step failed; `OutOfMemoryError` if memory was short at every size.
        MemoptError: There is no Ray cluster at the address, or a process has failed.
    """
    if multiple_of < 1:
        raise OptionsError(f"sizes cannot be multiples of {multiple_of}")
    memory_bytes = parse_memory(memory)
    settings = Settings(mode=mode, memory_limit_bytes=memory_bytes, grappler=False)
    allowed = parse_overhead(max_overhead)
    say = progress or (lambda _: None)
    item = as_item(graph, fetch, feed)
    chosen = find_dimensions(item, dimensions or ())
    limit_bytes = (settings.limit_mebibytes or 0) << 20
    runtime = Runtime(onednn=mode == "as-is" and runs_onednn())
    planner = SizePlanner(item, chosen, limit_bytes, allowed, costs, say, runtime, keep_open)
    started_s = time.monotonic()
    with task("looking for the largest size") as under_way, _elsewhere(planner, jobs, on):
        planner.say = _both(say, under_way)
        free_size, size = _find_sizes(planner, multiple_of)
    planner.say = say
    found(f"size {size} fits as planned; no real step has run with it")
    seconds = time.monotonic() - started_s
    proof = None
    if run:
        values = captured_values(graph, item) if hasattr(graph, "captured_inputs") else ({}, {})
        proof = _Prover(planner, settings, seed, *values).run_down(size, multiple_of)
        size = proof.size
    result, probe = planner.result(size), planner.probe(size)
    assert result is not None
    return Fit(
        dimensions=chosen,
        memory_bytes=memory_bytes,
        limit_bytes=limit_bytes,
        max_overhead=allowed,
        size=size,
        peak_bytes=probe.peak_bytes,
        overhead=probe.overhead,
        free_size=free_size,
        measured_peak_bytes=None if proof is None else proof.peak_bytes,
        failed_sizes=() if proof is None else proof.failed_sizes,
        probes=tuple(planner.probes),
        seconds=seconds,
        result=result,
        item=planner.sized(size),
    )


def _find_sizes(planner: SizePlanner, multiple: int) -> tuple[int, int]:
    """The largest sizes that are found to fit, unchanged (0 if none does) and rewritten.

    Quick plans say about where the latter is, if there are any, and the best ones go on. If they
    get no further, they may still be cheaper.

    Raises:
        BudgetError: Not even the smallest size fits.
    """
    free_size = find_largest(
        planner.free_excess, multiple, multiple=multiple, most_growth=_MOST_GROWTH
    )
    guess = max(_FIRST_GUESS * free_size, multiple)
    growth = MOST_GROWTH
    at_once = planner.at_once
    if planner.has_quick_plans:
        size = find_largest(
            planner.quick_excess, guess, multiple=multiple, fineness=_COARSE, at_once=at_once
        )
        guess = size or multiple
        growth = _LITTLE_GROWTH if size else MOST_GROWTH
    size = find_largest(
        planner.excess, guess, multiple=multiple, most_growth=growth, at_once=at_once
    )
    if not size:
        raise _too_small(planner, multiple)
    planner.settle(size)
    return free_size, size


@contextmanager
def _elsewhere(planner: SizePlanner, jobs: int | None, on: str | None) -> Iterator[None]:
    """Let other processes plan, where that is asked for."""
    if jobs is None and on is None:
        yield
        return
    from memopt.fitting.elsewhere import probes_on
    from memopt.workers.places import Places

    with probes_on(Places(jobs, on), planner) as workers:
        planner.elsewhere = workers
        try:
            yield
        finally:
            planner.elsewhere = None


def _both(say: Callable[[str], None], under_way: Task) -> Callable[[str], None]:
    """Tell the caller of a trial, and whoever listens."""

    def tell(line: str) -> None:
        under_way.advance(note=line)
        say(line)

    return tell


def parse_memory(text: int | str) -> int:
    """The bytes that a step may use: 1500000000 or "4GiB".

    Raises:
        OptionsError: It is no number of bytes, or less than the MiB in which allocators count.
    """
    memory_bytes = parse_bytes(str(text))
    if memory_bytes < _MEBIBYTE:
        raise OptionsError(f"{text!r} is less than 1MiB, and TensorFlow's limits are whole MiB")
    return memory_bytes


def parse_overhead(text: float | str) -> float:
    """A share of time as people write it: 0.2, "20%"; may be more than the whole.

    Raises:
        OptionsError: It is none.
    """
    match = _SHARE.fullmatch(str(text).strip())
    try:
        share = float(match["percent"]) / 100 if match else float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise OptionsError(f"{text!r} is no share of time, such as 20% or 0.2")
    return share


def _too_small(planner: SizePlanner, multiple: int) -> BudgetError:
    """That not even the smallest size fits, and what it takes."""
    outcome = planner.probe(multiple).outcome
    lowest_bytes, nearest = planner.lowest(multiple)
    return BudgetError(
        f"not even size {multiple} fits into {planner.limit_bytes} bytes: {outcome}; "
        f"the smallest budget that was found for it is {lowest_bytes} bytes",
        planner.limit_bytes,
        lowest_bytes,
        nearest,
    )


class _Proof(NamedTuple):
    """A real step under the allocator's limit.

    Attributes:
        size: The size that ran.
        peak_bytes: The most that was in use.
        failed_sizes: Larger ones that ran out of memory.
    """

    size: int
    peak_bytes: int
    failed_sizes: tuple[int, ...]


@dataclass(frozen=True)
class _Prover:
    """Runs real steps."""

    planner: SizePlanner
    settings: Settings
    seed: int
    inputs: Mapping[str, Any]
    variables: Mapping[str, Any]

    def run_down(self, size: int, multiple: int) -> _Proof:
        """Run the step, and smaller ones until one does not run out of memory.

        A plan that is there for a size hardly smaller is run as it is, before more is left.

        Raises:
            OutOfMemoryError: None of the sizes ran.
        """
        failed: list[int] = []
        last = ""
        while size >= multiple and len(failed) < _MOST_RUNS:
            lower = (size - max(multiple, size // _STEP_DOWN)) // multiple * multiple
            self.planner.probe_all(size)
            result = self.planner.result(size)
            if result is None:
                size = lower
                continue
            try:
                peak_bytes = self._peak_bytes(size, result.graph_def)
                return _Proof(size, peak_bytes, tuple(failed))
            except OutOfMemoryError as error:
                last = str(error)
            failed.append(size)
            self.planner.say(f"size {size}: the real step ran out of memory")
            planned = self.planner.planned_below(size)
            if planned >= max(lower, multiple):
                size = planned
            else:
                self.planner.leave_more()
                size = lower
        sizes = ", ".join(map(str, failed))
        raise OutOfMemoryError(f"the real step ran out of memory at the sizes {sizes}: {last}")

    def _peak_bytes(self, size: int, graph_def: GraphDef) -> int:
        item = self.planner.sized(size)
        program = Program.from_item(item, self.inputs, self.variables, self.seed)
        peaks_bytes = []
        with task(f"running size {size}", _PROCESSES) as under_way:
            for _ in range(_PROCESSES):
                with step_process(program.replace_graph(graph_def), self.settings) as process:
                    process.run(_STEPS)
                    peaks_bytes.append(process.measure().peak_bytes)
                under_way.advance()
        return max(peaks_bytes)
