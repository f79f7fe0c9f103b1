"""What the bodies of functions may use: what a caller's limit leaves where it calls them.

The remaining budget of XLA's `HloRematerialization` for called computations
(tensorflow/compiler/xla/service/hlo_rematerialization.cc), where each is rematerialized once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.functiondef import Library
from memopt.sequencing.step import Step
from memopt.shapes.function_calls import LOOPS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.context import Context
    from memopt.graph.graph import Graph, Node

    Part = tuple[Graph, Context]

MAIN = ""
"""The name of the graph that no function is."""


class Caller(NamedTuple):
    """A graph or body as it runs.

    Attributes:
        timeline: Its memory; a node that calls functions makes what they give, and has the peak of
            what runs inside it as scratch memory. At each node stands what may be in use while that
            runs, be it alone or beside others.
        calls: By node: the functions that it calls, see `find_calls`.
        threads: How many operations can run at once.
    """

    timeline: MemoryTimeline
    calls: Mapping[int, Sequence[str]]
    threads: int = 1


class BodyLimits:
    """What may be in use while each body runs, what its caller gives it included.

    Args:
        parts: The main graph by the name "", as it is going to run, and the bodies that it calls by
            theirs, as they are given.
        limit_bytes: What may be in use while the main graph runs, everything included.
    """

    def __init__(self, parts: Mapping[str, Part], limit_bytes: int) -> None:
        self._callers: dict[str, Caller] = {}
        for name, part in parts.items():
            self._follow(name, part, is_final=name == MAIN)
        self._held_bytes = {name: each.timeline.held_bytes for name, each in self._callers.items()}
        self._peaks_bytes = {
            name: each.timeline.step_peak_bytes for name, each in self._callers.items()
        }
        self._limit_bytes = limit_bytes
        self._budgets = self._all()

    def settle(self, name: str, part: Part) -> None:
        """Take a body as it is going to run: those that it calls are left what it does not use."""
        if part[1].inter_op_threads > 1 and name in self._callers and self._callers[name].calls:
            self._follow(name, part, is_final=True)
            self._budgets = self._all()

    def of(self, name: str) -> int | None:
        """Bytes, at least 1; `None` for a function that is not called."""
        left_bytes = self._budgets.get(name)
        if left_bytes is None:
            return None
        return max(left_bytes + self._held_bytes.get(name, 0), 1)

    def _all(self) -> dict[str, int]:
        if MAIN not in self._callers:
            return {}
        limit_bytes = self._limit_bytes - self._held_bytes[MAIN]
        return all_budgets(self._callers, limit_bytes, self._peaks_bytes)

    def _follow(self, name: str, part: Part, *, is_final: bool) -> None:
        graph, context = part
        if not len(graph) or not isinstance(graph.library, Library):
            return
        step, threads = Step.in_context(graph, context), context.inter_op_threads
        timeline = step.usage_while_running(threads) if is_final else step.run_freely()
        calls = find_calls(timeline.buffer_graph.nodes, graph.library)
        self._callers[name] = Caller(timeline, calls, threads)


def find_calls(nodes: Sequence[Node], library: Library) -> dict[int, tuple[str, ...]]:
    """By node, as a number: the functions of the library that it calls."""
    calls = {}
    for number, node in enumerate(nodes):
        called = dict.fromkeys(op_types.called_functions(node, library))
        known = tuple(name for name in called if library.op_def(name) is not None)
        if known:
            calls[number] = known
    return calls


def runs_at_once(node: Node, threads: int) -> int:
    """How often what a node runs may run at the same moment: so many turns of a loop."""
    return min(threads, op_types.turns_at_once(node)) if node.op in LOOPS else 1


def called_budgets(
    caller: Caller, limit_bytes: int, peaks_bytes: Mapping[str, int]
) -> dict[str, int]:
    """How high the peak of each function may be so that its caller keeps a limit.

    All is told in bytes on top of what is held before: for a caller before its step, for a function
    before it is called, its arguments included. So what else is in use while a function runs is
    what the caller uses at the call less the function's own peak: what is live in the caller, and
    in a loop what earlier turns have left. What may be used beyond that peak is shared by the turns
    of a loop that run at once. Of several functions of one node (a test and a body, the
    sides of an If) only one runs at a time, and the one with the highest peak makes that of the
    node. Where a function is called from several nodes, the smallest budget counts.

    Linear in nodes.

    Args:
        caller: What calls.
        limit_bytes: What it may use.
        peaks_bytes: By function: its peak as it is now, simulated alone; 0 where not given, which
            makes the budget smaller.

    Returns:
        By function that is called: its budget in bytes, at least 0.
    """
    budgets: dict[str, int] = {}
    timeline = caller.timeline
    for position, node in enumerate(timeline.sequence):
        functions = caller.calls.get(node, ())
        own_bytes = max((peaks_bytes.get(name, 0) for name in functions), default=0)
        used_bytes = timeline.usage_bytes[position] - timeline.held_bytes
        spare_bytes = limit_bytes - used_bytes
        if spare_bytes > 0:
            spare_bytes //= runs_at_once(timeline.buffer_graph.nodes[node], caller.threads)
        left_bytes = max(0, own_bytes + spare_bytes)
        for name in functions:
            budgets[name] = min(budgets.get(name, left_bytes), left_bytes)
    return budgets


def all_budgets(
    callers: Mapping[str, Caller], limit_bytes: int, peaks_bytes: Mapping[str, int]
) -> dict[str, int]:
    """The budgets of all functions, those that are called by functions included, each once.

    A function's own budget is the limit for those that it calls; where it needs more while it calls
    nothing, they may need as much, as less would win nothing. A function that is called from
    several graphs comes after all of them and gets the smallest budget. Functions that call
    themselves, which TensorFlow does not run, get none.

    Args:
        callers: By name the functions, and the main graph by the name `MAIN`.
        limit_bytes: What the main graph may use.
        peaks_bytes: As for `called_budgets`.

    Returns:
        By function that the main graph calls, directly or through others: its budget in bytes.
    """
    waiting = _count_callers(callers)
    budgets = {MAIN: limit_bytes}
    ready = [MAIN]
    while ready:
        name = ready.pop()
        if name not in callers:
            continue
        caller = callers[name]
        own_limit_bytes = max(budgets[name], _peak_without_calls(caller))
        left = called_budgets(caller, own_limit_bytes, peaks_bytes)
        for called, left_bytes in left.items():
            budgets[called] = min(budgets.get(called, left_bytes), left_bytes)
        for called in _called(caller):
            waiting[called] -= 1
            if not waiting[called]:
                ready.append(called)
    del budgets[MAIN]
    return {name: left_bytes for name, left_bytes in budgets.items() if not waiting[name]}


def _peak_without_calls(caller: Caller) -> int:
    """What a caller needs at most while it calls nothing, on top of what is held before."""
    timeline = caller.timeline
    used_bytes = (
        timeline.usage_bytes[position]
        for position, node in enumerate(timeline.sequence)
        if node not in caller.calls
    )
    return max(used_bytes, default=timeline.held_bytes) - timeline.held_bytes


def _count_callers(callers: Mapping[str, Caller]) -> dict[str, int]:
    """By function: how many of the graphs that the main graph leads to call it."""
    counts: dict[str, int] = {}
    pending = [MAIN]
    seen = {MAIN}
    while pending:
        name = pending.pop()
        for called in _called(callers[name]) if name in callers else ():
            counts[called] = counts.get(called, 0) + 1
            if called not in seen:
                seen.add(called)
                pending.append(called)
    return counts


def _called(caller: Caller) -> dict[str, None]:
    """The functions that nodes of the sequence call, each once."""
    return dict.fromkeys(
        name for node in caller.timeline.sequence for name in caller.calls.get(node, ())
    )
