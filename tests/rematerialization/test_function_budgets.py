"""Budgets of functions on small graphs that a person can add up, and in a model's loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.small_buffers import Step, small_graph

from memopt.buffers.buffer_graph import simulate
from memopt.context import Context
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def
from memopt.graph.text import parse_graph
from memopt.passes.ordering import Ordering
from memopt.rematerialization.rewriting.function_budgets import (
    MAIN,
    Caller,
    all_budgets,
    called_budgets,
    find_calls,
)
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from memopt.graph.graph import Graph
    from memopt.item import GrapplerItem

LIMIT_BYTES = 100


def caller_of(steps: Sequence[Step], **functions: Sequence[str]) -> Caller:
    """Operations in their order, some of which call functions."""
    buffers = small_graph(steps).buffers
    calls = {number: functions[s.name] for number, s in enumerate(steps) if s.name in functions}
    return Caller(simulate(buffers, range(len(steps))), calls)


def test_a_call_is_left_what_the_caller_does_not_use() -> None:
    # At the call: 30 that it reads, 20 that is read later, 5 that it gives, and 15 inside.
    steps = [
        Step("x", (), 30),
        Step("later", (), 20),
        Step("call", ("x",), 5, scratch_bytes=15),
        Step("end", ("call", "later"), 1),
    ]
    caller = caller_of(steps, call=("f",))
    assert called_budgets(caller, LIMIT_BYTES, {"f": 20}) == {"f": 50}
    # What is held before the step does not count.
    held = caller_of([Step("w", (), -1), *steps], call=("f",))
    assert called_budgets(held, LIMIT_BYTES, {"f": 20}) == {"f": 50}


def test_a_caller_that_is_over_its_limit_leaves_as_much_less() -> None:
    steps = [Step("x", (), 70), Step("call", ("x",), 10, scratch_bytes=40)]
    caller = caller_of(steps, call=("f",))
    assert caller.timeline.step_peak_bytes == LIMIT_BYTES + 20
    assert called_budgets(caller, LIMIT_BYTES, {"f": 50}) == {"f": 30}
    assert called_budgets(caller, 60, {"f": 50}) == {"f": 0}


def test_what_earlier_turns_left_is_not_there_for_the_body() -> None:
    # A loop that gives 60, and in its last turn has 12 more in use, of which the body has 20 alone.
    steps = [Step("x", (), 4), Step("loop", ("x",), 60, scratch_bytes=12)]
    caller = caller_of(steps, loop=("test", "body"))
    budgets = called_budgets(caller, LIMIT_BYTES, {"test": 1, "body": 20})
    assert budgets == {"test": 44, "body": 44}


def test_a_loop_that_frees_what_it_was_given_leaves_that_to_its_body() -> None:
    steps = [Step("x", (), 40), Step("loop", ("x",), 40, scratch_bytes=-30)]
    caller = caller_of(steps, loop=("test", "body"))
    assert called_budgets(caller, LIMIT_BYTES, {"body": 10})["body"] == 60


def test_both_sides_of_a_branch_get_what_the_larger_one_has() -> None:
    steps = [Step("x", (), 30), Step("if", ("x",), 5, scratch_bytes=35)]
    caller = caller_of(steps, **{"if": ("then", "else")})
    assert called_budgets(caller, LIMIT_BYTES, {"then": 40, "else": 5}) == {"then": 70, "else": 70}


def test_the_call_at_the_worst_time_decides() -> None:
    steps = [
        Step("x", (), 10),
        Step("early", ("x",), 5),
        Step("large", ("early",), 50),
        Step("late", ("large",), 5),
    ]
    caller = caller_of(steps, early=("f",), late=("f",))
    assert called_budgets(caller, LIMIT_BYTES, {"f": 5}) == {"f": 50}
    # A call that does not run has no say.
    caller = caller._replace(timeline=simulate(caller.timeline.buffer_graph, [0, 1]))
    assert called_budgets(caller, LIMIT_BYTES, {"f": 5}) == {"f": 90}


def test_a_function_that_is_called_by_functions_gets_what_they_are_left() -> None:
    main = caller_of([Step("x", (), 10), Step("call", ("x",), 30)], call=("f",))
    inner = caller_of([Step("y", (), 8), Step("g", ("y",), 22)], g=("g",))
    peaks = {"f": 30, "g": 22}
    callers = {MAIN: main, "f": inner}
    assert all_budgets(callers, LIMIT_BYTES, peaks) == {"f": 90, "g": 82}


def test_a_function_comes_after_all_that_call_it() -> None:
    """However deep they are: the smallest of all budgets counts, and is handed on."""
    steps = [Step("a", (), 10), Step("b", (), 10, waits=("a",)), Step("end", (), 1, waits=("b",))]
    main = caller_of(steps, a=("shared",), b=("f",))
    deep = caller_of([Step("y", (), 40), Step("c", ("y",), 10)], c=("shared",))
    last = caller_of([Step("z", (), 10)], z=("leaf",))
    callers = {MAIN: main, "f": deep, "shared": last}
    peaks = {"f": 10, "shared": 10, "leaf": 10}
    budgets = all_budgets(callers, LIMIT_BYTES, peaks)
    assert budgets == {"f": 100, "shared": 60, "leaf": 60}
    assert budgets == all_budgets(dict(reversed(callers.items())), LIMIT_BYTES, peaks)


def test_less_than_the_caller_needs_elsewhere_is_not_asked_for() -> None:
    """At the second call 10 are read and 10 given, and 130 are in use between the two calls."""
    steps = [
        Step("x", (), 10),
        Step("call", ("x",), 10, scratch_bytes=40),
        Step("large", ("call",), 120),
        Step("small", ("large",), 10),
        Step("again", ("small",), 10, scratch_bytes=200),
    ]
    callers = {MAIN: caller_of(steps, call=("f",), again=("g",))}
    peaks_bytes = {"f": 50, "g": 210}
    budgets = all_budgets(callers, LIMIT_BYTES, peaks_bytes)
    assert budgets == called_budgets(callers[MAIN], 130, peaks_bytes)
    assert budgets["g"] == called_budgets(callers[MAIN], LIMIT_BYTES, peaks_bytes)["g"] + 30


def test_functions_that_call_themselves_get_no_budget() -> None:
    main = caller_of([Step("a", (), 10)], a=("f",))
    body = caller_of([Step("b", (), 10)], b=("f",))
    assert all_budgets({MAIN: main, "f": body}, LIMIT_BYTES, {"f": 10}) == {}


def test_calls_are_found_by_attribute() -> None:
    graph = parse_graph(
        'x = Placeholder() {dtype=float}\ny = PartitionedCall(x) {f=<func { name: "f" }>}'
    )
    from tensorflow.core.framework import function_pb2

    library = function_pb2.FunctionDefLibrary()
    assert find_calls(tuple(graph), Library(library)) == {}
    library.function.add().signature.name = "f"
    assert find_calls(tuple(graph), Library(library)) == {1: ("f",)}


def test_loops_of_a_model_get_what_their_step_leaves(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    """At a limit of its own peak a body may have its own; with less they have less."""
    item = tiny_item("lstm")
    graph = from_graph_def(item.graph_def)
    library = graph.library
    assert isinstance(library, Library)
    properties = Properties.of(item)
    fed, fetched = (
        frozenset(name.partition(":")[0] for name in names) for names in (item.feed, item.fetch)
    )
    peaks: dict[str, int] = {}
    callers = {MAIN: ordered(graph, Context(properties, fed=fed, fetched=fetched), library, peaks)}
    for name in {n for names in callers[MAIN].calls.values() for n in names}:
        body = library.graph(name)
        context = Context(
            properties.function(name),
            fed=frozenset(node.name for node in body if node.op == "_Arg"),
            fetched=frozenset(node.name for node in body if node.op == "_Retval"),
        )
        callers[name] = ordered(body, context, library, peaks, name)
    budgets = all_budgets(callers, peaks[MAIN], peaks)
    assert budgets.keys() == callers.keys() - {MAIN}
    assert all(budgets[name] >= peaks[name] for name in budgets)
    less_bytes = peaks[MAIN] // 50
    tighter = all_budgets(callers, peaks[MAIN] - less_bytes, peaks)
    assert tighter == {name: max(0, budget - less_bytes) for name, budget in budgets.items()}
    assert any(tighter[name] < peaks[name] for name in tighter)


def ordered(
    graph: Graph, context: Context, library: Library, peaks: dict[str, int], name: str = MAIN
) -> Caller:
    """A graph in program order; its peak is put among the others."""
    order = Ordering(sequencer="program").order(graph, context)
    assert order is not None
    peaks[name] = order.step_peak_bytes
    calls: Mapping[int, Sequence[str]] = find_calls(order.buffer_graph.nodes, library)
    return Caller(order, calls)
