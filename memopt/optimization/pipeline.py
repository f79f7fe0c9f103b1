"""Runs passes over one graph: verification around each, undo on failure, Grappler's iterations."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.errors import MemoptError, PassError
from memopt.graph.rewriter import Rewriter, Touches
from memopt.graph.verify import verify_graph, verify_references
from memopt.progress import Task, task
from memopt.result import GraphReport, PassReport
from memopt.sequencing.standstill import Collectives

if TYPE_CHECKING:
    from memopt.graph.graph import Graph
    from memopt.passes import Context, Pass

MAX_ITERATIONS = 25
"""Grappler's limit (`MemoryOptimizer::Optimize`)."""

_NOT_ON_THE_TIMELINE = frozenset({Touches.ATTRIBUTES})


@dataclass(frozen=True)
class Pipeline:
    """The passes of one optimization, in order.

    Attributes:
        once: Passes that run once, first.
        repeated: Passes that look at a simulation. They run in turns, at most `MAX_ITERATIONS`
            times, for as long as one of them wants to go on (`Pass.wants_more`).
        first: Passes that run before anything is inferred of the graph that the others get, if
            they are wanted; `run` leaves them out.
        settling: Passes that run before all of these, in turns, for as long as one of them changes
            anything: after each turn all is inferred anew. `run` leaves them out, too.
        decisive: The name of one that has to change something for those behind it to run; "" if
            there is none.
    """

    once: tuple[Pass, ...]
    repeated: tuple[Pass, ...]
    first: tuple[Pass, ...] = ()
    settling: tuple[Pass, ...] = ()
    decisive: str = ""

    def run(self, function: str, graph: Graph, context: Context, deadline_s: float) -> GraphReport:
        """Run the passes over a graph, in place.

        A pass that fails, whatever it raises, or whose result does not verify, is undone and
        reported; the others go on.

        Args:
            function: The function whose body it is, or "" for the main graph.
            graph: The graph; it has been verified.
            context: What the passes may know.
            deadline_s: The `time.monotonic()` after which no further pass starts.
        """
        return _Run(self, function, Rewriter(graph), context, deadline_s).result()


class _Run:
    def __init__(
        self,
        pipeline: Pipeline,
        function: str,
        rewriter: Rewriter,
        context: Context,
        deadline_s: float,
    ) -> None:
        self._pipeline = pipeline
        self._function = function
        self._rewriter = rewriter
        self._context = context
        self._deadline_s = deadline_s
        self._reports: list[PassReport] = []
        self._iterations = 0
        self._collectives = Collectives(rewriter.graph)
        self._task = Task("")

    def result(self) -> GraphReport:
        where = f"function {self._function}" if self._function else "passes"
        rounds = MAX_ITERATIONS if self._pipeline.repeated else 0
        with task(where, len(self._pipeline.once) + rounds, is_even=False) as self._task:
            stopped = self._run_all()
        simulated = self._context.simulated
        return GraphReport(
            function=self._function,
            passes=tuple(self._reports),
            iterations=self._iterations,
            stopped=stopped,
            simulations=0 if simulated is None else simulated.count,
            simulated=simulated,
        )

    def _run_all(self) -> str:
        """Run everything; returns why it ended."""
        for pass_ in self._pipeline.once:
            if time.monotonic() > self._deadline_s:
                return f"the deadline passed before {pass_}"
            self._task.say(pass_.name)
            report = self._run(pass_)
            self._task.advance()
            if pass_.name == self._pipeline.decisive and not report.edits:
                return f"{pass_} changed nothing"
        if not self._pipeline.repeated:
            return ""
        if self._context.simulated is None:
            names = ", ".join(pass_.name for pass_ in self._pipeline.repeated)
            return f"no devices are given, or nothing is fetched: {names} did not run"
        return self._iterate()

    def _iterate(self) -> str:
        simulated = self._context.simulated
        assert simulated is not None
        for self._iterations in range(1, MAX_ITERATIONS + 1):
            goes_on = False
            for pass_ in self._pipeline.repeated:
                if time.monotonic() > self._deadline_s:
                    return f"the deadline passed before {pass_}"
                self._task.say(f"{pass_.name}, iteration {self._iterations}")
                report = self._run(pass_)
                if not report.failure and pass_.wants_more(report.edits, report.declined):
                    simulated.forget()
                    goes_on = True
            if not goes_on:
                return "nothing was left to change"
            self._task.advance()
        return f"the limit of {MAX_ITERATIONS} iterations"

    def _run(self, pass_: Pass) -> PassReport:
        """Run one pass; undo it if it fails or leaves a graph that does not verify."""
        rewriter = self._rewriter
        start = rewriter.checkpoint()
        started = time.perf_counter()
        before: dict[str, int] = {}
        failure = ""
        try:
            before = self._peaks(pass_)
            pass_.run(rewriter, self._context)
            if len(rewriter.edits) > start.edits:
                _verify_edits(pass_, rewriter, self._context, start.edits)
                self._collectives.verify(rewriter.graph)
        except Exception as error:  # noqa: BLE001 - a bug in a pass must not break the user's program
            rewriter.revert(start)
            failure = self._describe(pass_, error)
        report = PassReport(
            name=str(pass_),
            function=self._function,
            edits=rewriter.edits[start.edits :],
            declined=rewriter.declined[start.declined :],
            seconds=time.perf_counter() - started,
            failure=failure,
            iteration=self._iterations,
            peak_before_bytes=before,
        )
        self._reports.append(report)
        return report

    def _peaks(self, pass_: Pass) -> dict[str, int]:
        """The simulated peak of each device now; none for a pass that cannot change it."""
        if self._context.simulated is None or pass_.touches <= _NOT_ON_THE_TIMELINE:
            return {}
        return self._context.simulated.peak_bytes()

    def _describe(self, pass_: Pass, error: Exception) -> str:
        done = ", ".join(report.name for report in self._reports)
        where = f"{pass_} after {done}" if done else str(pass_)
        kind = "" if isinstance(error, MemoptError) else f"{type(error).__name__}: "
        return f"{where}: {kind}{error}"


def _verify_edits(pass_: Pass, rewriter: Rewriter, context: Context, first: int) -> None:
    """Check what a pass changed, and what it promised to leave alone.

    Raises:
        PassError: An edit is of a kind that the pass does not declare.
        InvalidGraphError: The graph breaks a rule.
    """
    graph = rewriter.graph
    touched: dict[str, None] = {}
    for edit in rewriter.edits[first:]:
        undeclared = edit.touches - pass_.touches
        if undeclared:
            kinds = ", ".join(sorted(kind.name.lower() for kind in undeclared))
            raise PassError(f"an edit changed {kinds}, which the pass does not declare")
        touched.update(dict.fromkeys((*edit.added, *edit.changed)))
    present = (graph.find(name) for name in touched)
    verify_graph(graph, [node for node in present if node is not None])
    verify_references(graph, sorted(context.fetched | context.fed | context.kept), "used node")
