"""Runs a step and its rewritten form for real: same results, memory and time of both."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import (
    DisplayedFields,
    Overview,
    Paged,
    Table,
    change_text,
    count_text,
    peak_row,
    time_text,
)
from memopt.errors import ExecutionError, InvalidGraphError, OptionsError
from memopt.graph.final import is_final
from memopt.progress import Task, task
from memopt.runtime.comparison import tolerate
from memopt.runtime.process import step_process
from memopt.runtime.reference import Runs, reference
from memopt.runtime.settings import Settings, is_deterministic_here

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from memopt.runtime.comparison import Difference
    from memopt.runtime.process import StepProcess
    from memopt.runtime.program import Program
    from memopt.runtime.reference import Reference, Results
    from memopt.runtime.replay import Measurement
    from memopt.runtime.settings import Mode

_ROUND_NS = 200_000_000
_MOST_STEPS_PER_ROUND = 50
_STAGES = 3
"""Parts of a verification besides its rounds: two that run, one that compares."""


@dataclass(frozen=True, repr=False)
class Timing(DisplayedFields):
    """Step times of both, measured in turns.

    Attributes:
        original_step_ns: Median over the rounds of the original's mean step time.
        rewritten_step_ns: The same of the rewritten step.
        ratio: Median over the rounds of rewritten divided by original.
        lowest_ratio: The smallest of them.
        highest_ratio: The largest of them.
        rounds: How many rounds there were.
        steps_per_round: How many steps each ran in a round.
    """

    original_step_ns: int
    rewritten_step_ns: int
    ratio: float
    lowest_ratio: float
    highest_ratio: float
    rounds: int
    steps_per_round: int


@dataclass(frozen=True, repr=False)
class Verification(Paged):
    """What running both showed.

    Attributes:
        differences: The outputs of every step and the variables afterwards that are not the same
            to the bit.
        original: Memory of the original's last step.
        rewritten: Memory of the rewritten step's last step.
        timing: Step times of both, or `None` if they were not measured.
        mode: How both were run, see `Settings`.
        steps: How many steps were compared.
        grappler_changes: What Grappler alone changes in the original; empty in exact mode.
        own_changes: How the original differs from itself when it runs again; looked for where the
            two differ.
        deterministic: Whether the differences are those of runs with deterministic kernels; so it
            is where the original differs from itself, or this process has asked for such kernels.
    """

    differences: tuple[Difference, ...]
    original: Measurement
    rewritten: Measurement
    timing: Timing | None
    mode: Mode
    steps: int
    grappler_changes: tuple[Difference, ...] = ()
    own_changes: tuple[Difference, ...] = ()
    deterministic: bool = False

    @property
    def equal(self) -> bool:
        """Whether every output of every step and every variable is the same to the bit."""
        return not self.differences

    @property
    def within_tolerance(self) -> bool:
        """Whether they are equal, or no further apart than what moves the original alone.

        That is Grappler, in as-is mode, or chance, where a step that differs from itself has an
        operation without a deterministic kernel.
        """
        return all(difference.tolerated for difference in self.differences)

    @property
    def time_ratio(self) -> float | None:
        """Rewritten step time divided by the original's."""
        return None if self.timing is None else self.timing.ratio

    def to_json(self, *, timeline: bool = False) -> dict[str, Any]:
        """Plain data, with the timelines on request."""
        return {
            "equal": self.equal,
            "within_tolerance": self.within_tolerance,
            "differences": [difference.to_json() for difference in self.differences],
            "original": self.original.to_json(timeline=timeline),
            "rewritten": self.rewritten.to_json(timeline=timeline),
            "timing": None if self.timing is None else dataclasses.asdict(self.timing),
            "mode": self.mode,
            "steps": self.steps,
            "grappler_changes": [change.to_json() for change in self.grappler_changes],
            "own_changes": [change.to_json() for change in self.own_changes],
            "deterministic": self.deterministic,
        }

    def _overview(self) -> Overview:
        before, after = self.original, self.rewritten
        rows = [
            peak_row("measured peak", before.peak_bytes, after.peak_bytes),
            peak_row("held before the step", before.held_bytes, after.held_bytes),
            peak_row("peak of the step's own", before.step_peak_bytes, after.step_peak_bytes),
        ]
        if self.timing is not None:
            times_ns = (self.timing.original_step_ns, self.timing.rewritten_step_ns)
            rows.append(("step time", *map(time_text, times_ns), f"x{self.timing.ratio:.2f}"))
        steps = f"{count_text(self.steps, 'step')}, {self.mode} mode"
        outcome = f"{self.verdict} over {steps}, peak "
        return Overview(
            "Verification",
            outcome + change_text(before.peak_bytes, after.peak_bytes),
            (Table(("", "original", "rewritten", "ratio"), tuple(rows)),),
            tuple(str(difference) for difference in self.differences),
        )

    @property
    def verdict(self) -> str:
        """Whether they compute the same, in words."""
        if self.equal:
            return "equal, bit for bit,"
        if not self.within_tolerance:
            return "NOT EQUAL"
        return "equal within " + ("chance" if self.own_changes else "Grappler's changes")


def verify_programs(  # noqa: PLR0913 - the arguments are keywords, each with a default
    original: Program,
    rewritten: Program,
    *,
    inputs: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    steps: int = 3,
    mode: Mode | None = None,
    timing_rounds: int = 5,
    memory_limit_bytes: int | None = None,
    seed: int | None = None,
    first_inputs: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Verification:
    """Run two steps in fresh processes from the same state and compare all that they compute.

    Args:
        original: The step before the rewrite, and the values that both run with.
        rewritten: The step after it; of this program only the graph is used.
        inputs: Values that replace the original's, by tensor name.
        variables: Values that replace the original's, by node name.
        steps: How many steps to run, each from where the last one left the variables.
        mode: "exact" compares bits with everything off that may change them; "as-is" runs as
            TensorFlow does by default and accepts what Grappler alone changes. By default "as-is"
            where Grappler has been at the rewritten graph before, or XLA compiles it, which then
            has to be equal.
        timing_rounds: How often to time both in turns; 0 for not at all.
        memory_limit_bytes: A limit that the rewritten step has to keep. The original has none.
        seed: What random operations without seeds draw from; `None` for the original's.
        first_inputs: Inputs, by tensor name, with which one step more is run and compared before
            the others, as a batch of another size.

    Raises:
        OptionsError: `steps` is not positive, or a value does not fit.
        InvalidGraphError: The two do not take and give the same, or a graph cannot be run.
        ExecutionError: A run failed; `OutOfMemoryError` if the limit was too low.
    """
    if steps < 1:
        raise OptionsError(f"at least 1 step must be run, not {steps}")
    original = original.with_values(inputs, variables, seed)
    _check_same_interface(original, rewritten)
    rewritten = original.replace_graph(rewritten.item.graph_def)
    settings = settings_for(original, rewritten, mode)
    runs = Runs(steps, first_inputs, original.inputs)
    with reference(original, settings, runs) as first:
        return verify_against(first, rewritten, timing_rounds, memory_limit_bytes)


def verify_against(
    original: Reference,
    rewritten: Program,
    timing_rounds: int = 0,
    memory_limit_bytes: int | None = None,
) -> Verification:
    """Run a rewritten step in a fresh process and compare all that it computes.

    Args:
        original: The step before the rewrite, in its process.
        rewritten: The step after it, with the same values.
        timing_rounds: How often to time both in turns; 0 for not at all.
        memory_limit_bytes: A limit that the rewritten step has to keep.

    Raises:
        ExecutionError: A run failed; `OutOfMemoryError` if the limit was too low.
    """
    program, settings, runs = original.program, original.settings, original.runs
    limited = dataclasses.replace(settings, memory_limit_bytes=memory_limit_bytes)
    with (
        step_process(rewritten, limited) as process,
        task("running", _STAGES + timing_rounds, is_even=False) as under_way,
    ):
        under_way.say("the original")
        expected = original.results()
        under_way.advance(note="the rewritten step")
        differences = expected.differences(runs.results(process))
        under_way.advance(note="comparing")
        compared = _Compared(settings, runs, expected, differences)
        own = _own_changes(program, compared)
        if own:
            under_way.say("both again, with deterministic kernels")
            compared = _compare_deterministic(program, rewritten, limited, compared)
        is_settled = _is_settled(program, rewritten)
        changes = [] if is_settled else _grappler_changes(program, compared)
        by_chance = [] if compared.settings.deterministic else own
        under_way.advance(note="measuring")
        return Verification(
            differences=tuple(tolerate(compared.differences, [*changes, *by_chance])),
            original=original.process.measure(),
            rewritten=process.measure(),
            timing=time_in_turns(original.process, process, timing_rounds, under_way),
            mode=settings.mode,
            steps=runs.steps,
            grappler_changes=tuple(changes),
            own_changes=tuple(own),
            deterministic=compared.settings.deterministic,
        )


def settings_for(original: Program, rewritten: Program, mode: Mode | None = None) -> Settings:
    """How two steps run that are compared, in a mode or, if none is given, in the one for them."""
    by_default: Mode = "as-is" if _is_settled(original, rewritten) else "exact"
    return Settings(mode=mode or by_default, deterministic=is_deterministic_here())


def _is_settled(original: Program, rewritten: Program) -> bool:
    """Whether Grappler changes neither of them any more."""
    return is_final(rewritten.item.graph_def) or original.item.compiled


class _Compared(NamedTuple):
    """What was compared.

    Attributes:
        settings: How the original ran.
        runs: The steps.
        expected: What it computed.
        differences: What the rewritten step computed differently.
    """

    settings: Settings
    runs: Runs
    expected: Results
    differences: list[Difference]


def _own_changes(original: Program, compared: _Compared) -> list[Difference]:
    """How the original differs from itself, where that may be why the two differ."""
    settings, runs, expected, differences = compared
    if settings.deterministic or not differences:
        return []
    with step_process(original, settings) as process:
        return expected.differences(runs.results(process))


def _compare_deterministic(
    original: Program, rewritten: Program, limited: Settings, compared: _Compared
) -> _Compared:
    """Compare again with deterministic kernels; where an op has none, what was found before."""
    settings = dataclasses.replace(compared.settings, deterministic=True)
    limited = dataclasses.replace(limited, deterministic=True)
    runs = compared.runs
    with step_process(original, settings) as first, step_process(rewritten, limited) as second:
        try:
            expected = runs.results(first)
        except ExecutionError:
            return compared
        return _Compared(settings, runs, expected, expected.differences(runs.results(second)))


def _check_same_interface(original: Program, rewritten: Program) -> None:
    for role in ("feed", "fetch"):
        before, after = getattr(original.item, role), getattr(rewritten.item, role)
        if set(before) != set(after):
            raise InvalidGraphError(
                f"the two steps differ in their {role}: {', '.join(before)} is not"
                f" {', '.join(after)}"
            )


def _grappler_changes(original: Program, compared: _Compared) -> list[Difference]:
    """What the original computes differently when Grappler leaves it alone."""
    settings, runs, expected, _ = compared
    if not settings.uses_grappler:
        return []
    without = dataclasses.replace(settings, grappler=False)
    with step_process(original, without) as process:
        return expected.differences(runs.results(process))


def time_in_turns(
    original: StepProcess, rewritten: StepProcess, rounds: int, under_way: Task | None = None
) -> Timing | None:
    """Step times of both; `None` for no rounds."""
    told = under_way or Task("")
    if rounds < 1:
        return None
    # The first step after the recording warms up and tells how many make a round.
    slowest_ns = max(*original.time(1), *rewritten.time(1))
    steps = min(max(_ROUND_NS // slowest_ns, 1), _MOST_STEPS_PER_ROUND)
    times_ns = []
    for number in range(1, rounds + 1):
        told.say(f"timing, round {number} of {rounds}")
        times_ns.append(
            (statistics.fmean(original.time(steps)), statistics.fmean(rewritten.time(steps)))
        )
        told.advance()
    ratios = [after / before for before, after in times_ns]
    return Timing(
        original_step_ns=int(statistics.median(before for before, _ in times_ns)),
        rewritten_step_ns=int(statistics.median(after for _, after in times_ns)),
        ratio=statistics.median(ratios),
        lowest_ratio=min(ratios),
        highest_ratio=max(ratios),
        rounds=rounds,
        steps_per_round=steps,
    )
