"""The pipeline: iterations and why they end, peaks around each pass, and undoing what fails."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

import pytest
from support.native_simulation import CPU
from support.small_steps import TableCosts, sized

from memopt.cluster import VirtualCluster
from memopt.errors import PassError
from memopt.graph.rewriter import Touches
from memopt.graph.text import format_graph, parse_graph
from memopt.optimization.pipeline import MAX_ITERATIONS, Pipeline
from memopt.passes import Context, Pass
from memopt.shapes.properties import Properties
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.graph.graph import Graph
    from memopt.graph.rewriter import Declined, Edit, Rewriter
    from memopt.result import GraphReport

STEP = """\
x = Placeholder() {dtype=float}
a = Relu(x) {T=float}
b = Relu(a) {T=float}
c = AddV2(b, x) {T=float}
"""
SIZES = {"x": 100, "a": 40, "b": 8, "c": 8}
TIMES = dict.fromkeys(SIZES, 10_000)


@dataclass(frozen=True)
class Grow(Pass):
    """Adds a node to a graph of fewer than so many, and wants to go on when it did."""

    name: ClassVar[str] = "grow"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.NODES})

    until: int = 0

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del context
        if len(rewriter.graph) < self.until:
            with rewriter.edit("one more"):
                rewriter.add_node(f"n{len(rewriter.graph)}", "NoOp")

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        del declined
        return bool(edits)


@dataclass(frozen=True)
class Look(Pass):
    """Looks at the step's memory, changes nothing and wants nothing."""

    name: ClassVar[str] = "look"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.NODES})
    seen: ClassVar[list[object]] = []

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del rewriter
        if context.simulated is not None:
            self.seen.append(context.simulated.memory())


@dataclass(frozen=True)
class Decline(Pass):
    """Leaves a node alone, and wants to try again while so few were."""

    name: ClassVar[str] = "decline"
    touches: ClassVar[frozenset[Touches]] = frozenset()

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del context
        rewriter.decline(rewriter.graph["a"], f"try {len(rewriter.declined) + 1}")

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        assert not edits
        (only,) = declined
        return only.reason != "try 4"


@dataclass(frozen=True)
class Save(Pass):
    """Lets c read b twice, so that x need not be kept; then maybe fails."""

    name: ClassVar[str] = "save"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.DATA_EDGES})

    fails: bool = False

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del context
        graph = rewriter.graph
        with rewriter.edit("x is large"):
            rewriter.set_input(graph["c"], 1, graph["b"].output(0))
        if self.fails:
            raise PassError("no good")

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        del edits, declined
        return True


@dataclass(frozen=True)
class Mark(Pass):
    """Sets an attribute, which no simulation sees."""

    name: ClassVar[str] = "mark"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.ATTRIBUTES})

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del context
        with rewriter.edit("a mark"):
            rewriter.set_attribute(
                rewriter.graph["a"], "_mine", rewriter.graph["a"].attributes["T"]
            )


@dataclass(frozen=True)
class Break(Pass):
    """Changes the graph, then raises what it is told to."""

    name: ClassVar[str] = "break"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.NODES})
    raises: ClassVar[BaseException] = ValueError()

    def run(self, rewriter: Rewriter, context: Context) -> None:
        del context
        with rewriter.edit("half of it"):
            rewriter.add_node("half", "NoOp")
        rewriter.decline(rewriter.graph["a"], "a record that goes too")
        raise self.raises

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        del edits, declined
        return True


def context_of(graph: Graph, *, simulated: bool = True) -> Context:
    properties = sized(SIZES) if simulated else Properties.unknown()
    scheduler = VirtualScheduler(VirtualCluster(["CPU:0=CPU"]), TableCosts(TIMES), properties)
    request = Request(("c",), frozenset({"x"}))
    return Context(
        properties,
        fed=frozenset({"x"}),
        fetched=frozenset({"c"}),
        simulated=SimulatedMemory(graph, scheduler, request) if simulated else None,
    )


def run(
    once: Sequence[Pass] = (),
    repeated: Sequence[Pass] = (),
    *,
    graph: Graph | None = None,
    simulated: bool = True,
    deadline_s: float = math.inf,
) -> GraphReport:
    graph = parse_graph(STEP) if graph is None else graph
    pipeline = Pipeline(tuple(once), tuple(repeated))
    return pipeline.run("f", graph, context_of(graph, simulated=simulated), deadline_s)


def ran(report: GraphReport) -> list[tuple[str, int]]:
    """Which pass ran in which iteration."""
    return [(done.name.partition("{")[0], done.iteration) for done in report.passes]


# --- iterations ----------------------------------------------------------------------------------


def test_passes_that_run_once_run_once_in_order() -> None:
    report = run([Grow(until=9), Mark(), Grow(until=9)])
    assert ran(report) == [("grow", 0), ("mark", 0), ("grow", 0)]
    assert [len(done.edits) for done in report.passes] == [1, 1, 1]
    assert report.iterations == 0
    assert not report.stopped
    assert report.function == "f"
    assert {done.function for done in report.passes} == {"f"}


def test_repeated_passes_run_in_turns_until_none_wants_more() -> None:
    graph = parse_graph(STEP)
    report = run([Mark()], [Grow(until=6), Look()], graph=graph)
    assert ran(report) == [
        ("mark", 0),
        *[("grow", 1), ("look", 1)],
        *[("grow", 2), ("look", 2)],
        # The last turn changes nothing, and so says that it is the last.
        *[("grow", 3), ("look", 3)],
    ]
    assert [done.name for done in report.passes[1:3]] == ["grow{until=6}", "look"]
    assert report.iterations == 3
    assert report.stopped == "nothing was left to change"
    assert len(graph) == 6


def test_one_turn_is_enough_where_nothing_wants_more() -> None:
    report = run((), [Look()])
    assert (report.iterations, report.stopped) == (1, "nothing was left to change")


def test_what_was_left_alone_can_be_a_reason_to_go_on() -> None:
    report = run((), [Decline()])
    assert report.iterations == 4
    # Each report has its own.
    assert [done.declined[0].reason for done in report.passes] == [
        f"try {number}" for number in (1, 2, 3, 4)
    ]


def test_there_are_at_most_25_iterations() -> None:
    graph = parse_graph(STEP)
    report = run((), [Grow(until=1000), Look()], graph=graph)
    assert MAX_ITERATIONS == 25
    assert report.iterations == 25
    assert report.stopped == "the limit of 25 iterations"
    assert ran(report)[::2] == [("grow", number) for number in range(1, 26)]
    assert len(graph) == 4 + 25


def test_without_a_simulation_nothing_is_repeated() -> None:
    report = run([Grow(until=5)], [Grow(until=9), Look()], simulated=False)
    assert ran(report) == [("grow", 0)]
    assert report.iterations == 0
    assert report.simulations == 0
    assert report.stopped == ("no devices are given, or nothing is fetched: grow, look did not run")


def test_a_pass_that_was_undone_is_no_reason_to_go_on() -> None:
    report = run((), [Save(fails=True)])
    assert report.iterations == 1
    assert report.stopped == "nothing was left to change"


def test_passes_share_one_analysis_until_one_of_them_wants_more() -> None:
    Look.seen.clear()
    run((), [Look(), Grow(until=5), Look()])
    first, after_edit, second, last = Look.seen
    # Within a turn the analysis is that of the turn's start, though the graph has changed since.
    assert after_edit is not first
    assert second is after_edit
    assert last is second

    Look.seen.clear()
    run((), [Look(), Mark(), Look()])
    first, second = Look.seen
    assert second is first


# --- peaks ---------------------------------------------------------------------------------------

# x lives until c has read it, at 40 us; at 30 us all four tensors are there. Once c does not read
# x, that goes when a has ended at 20 us, where b begins.
BEFORE_BYTES = 100 + 40 + 8 + 8
AFTER_BYTES = 100 + 40 + 8


def peaks(report: GraphReport) -> list[dict[str, int]]:
    """Before each pass, and after the last."""
    return [dict(done.peak_before_bytes) for done in report.passes] + [
        dict(report.peak_after_bytes)
    ]


def test_peaks_are_those_before_each_pass_and_at_the_end() -> None:
    report = run([Grow(until=5), Save(), Look()])
    before, after = {CPU: BEFORE_BYTES}, {CPU: AFTER_BYTES}
    assert peaks(report) == [before, before, after, after]
    # At the start and after each of the two edits; what did not change is not simulated again.
    assert report.simulations == 3


def test_the_peak_at_the_end_is_not_simulated_until_somebody_asks() -> None:
    report = run([Save()])
    assert report.simulations == 1
    assert report.simulated is not None
    assert report.simulated.count == 1
    assert peaks(report) == [{CPU: BEFORE_BYTES}, {CPU: AFTER_BYTES}]
    assert report.simulated.count == 2


def test_peaks_are_not_asked_for_where_a_pass_cannot_change_them() -> None:
    report = run([Mark()])
    assert peaks(report) == [{}, {}]
    assert report.simulations == 0


def test_there_are_no_peaks_without_devices() -> None:
    assert peaks(run([Save()], simulated=False)) == [{}, {}]


def test_the_peak_after_a_pass_that_was_undone_is_that_before() -> None:
    report = run([Save(fails=True), Look()])
    assert report.passes[0].failure
    assert peaks(report) == [{CPU: BEFORE_BYTES}] * 3


# --- deadline ------------------------------------------------------------------------------------


def use_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]) -> None:
    monkeypatch.setattr(
        "memopt.optimization.pipeline.time", SimpleNamespace(monotonic=clock, perf_counter=clock)
    )


def test_after_the_deadline_no_pass_starts() -> None:
    report = run([Grow(until=9)], [Look()], deadline_s=0)
    assert report.passes == ()
    assert report.stopped == "the deadline passed before grow{until=9}"


def test_a_deadline_ends_the_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every pass takes a second."""
    now_s = 0.0

    def tick() -> float:
        # Asked once before a pass, then at its start and its end.
        nonlocal now_s
        now_s += 1 / 3
        return now_s

    use_clock(monkeypatch, tick)
    report = run([Mark()], [Grow(until=100), Look()], deadline_s=4.5)
    assert ran(report) == [("mark", 0), ("grow", 1), ("look", 1), ("grow", 2), ("look", 2)]
    assert report.stopped == "the deadline passed before grow{until=100}"
    assert all(done.seconds == pytest.approx(1 / 3) for done in report.passes)


def test_a_pass_that_has_started_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 0.0, 100.0, 100.0])
    use_clock(monkeypatch, lambda: next(times))
    report = run([Grow(until=9), Look()], deadline_s=50)
    assert ran(report) == [("grow", 0)]
    assert report.passes[0].edits
    assert report.stopped == "the deadline passed before look"


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PassError("no good"), "break: no good"),
        (ValueError("out of range"), "break: ValueError: out of range"),
        (KeyError("name"), "break: KeyError: 'name'"),
        (ZeroDivisionError("division by zero"), "break: ZeroDivisionError: division by zero"),
        (RecursionError("too deep"), "break: RecursionError: too deep"),
        (MemoryError("no memory"), "break: MemoryError: no memory"),
        (AssertionError("never"), "break: AssertionError: never"),
        (StopIteration(), "break: StopIteration: "),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("is_repeated", [False, True])
def test_whatever_a_pass_raises_it_is_undone_and_said(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, *, is_repeated: bool
) -> None:
    monkeypatch.setattr(Break, "raises", error)
    graph = parse_graph(STEP)
    passes = ((), [Break()]) if is_repeated else ([Break()], ())
    report = run(*passes, graph=graph)
    assert format_graph(graph) == STEP
    (done,) = report.passes
    assert done.failure == said
    assert (done.edits, done.declined) == ((), ())


def test_the_passes_after_one_that_fails_go_on() -> None:
    graph = parse_graph(STEP)
    report = run([Grow(until=5), Break()], [Break(), Grow(until=6)], graph=graph)
    assert [bool(done.failure) for done in report.passes] == [
        *(False, True),
        *(True, False),
        *(True, False),
    ]
    assert report.passes[1].failure.startswith("break after grow{until=5}: ValueError")
    assert len(graph) == 6


def test_a_person_can_still_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Break, "raises", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run([Break()])
