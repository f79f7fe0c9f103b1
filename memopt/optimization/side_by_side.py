"""A step's memory with what operations of its functions have in use that run side by side."""

from __future__ import annotations

from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import chain
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.graph.functiondef import Library
from memopt.graph.traversal import Numbering
from memopt.rematerialization.rewriting.function_budgets import find_calls, runs_at_once
from memopt.sequencing.step import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from memopt.buffers.buffer_graph import MemoryTimeline
    from memopt.optimization.prepared import Part


def run_parts(parts: Sequence[Part]) -> MemoryTimeline:
    """The memory of a step as TensorFlow will run it.

    A node that runs functions is simulated with their operations one after the other. Where threads
    run more of them at once, it has in use what that takes, too: of each turn that runs at once
    with others.

    Args:
        parts: The main graph, which is not empty, and the bodies that it calls, callers first.
    """
    main, *bodies = parts
    threads = main.context.inter_op_threads
    more_bytes: dict[str, int] = {}
    for body in _callees_first(bodies) if threads > 1 else ():
        step = Step.in_context(body.graph, body.context)
        one_by_one = simulate(step.buffer_graph, Numbering.of(body.graph).order)
        together = _with_more(step, more_bytes, threads).run(threads)
        over_bytes = together.step_peak_bytes - one_by_one.step_peak_bytes
        more_bytes[body.function] = max(0, over_bytes)
    return _with_more(Step.in_context(main.graph, main.context), more_bytes, threads).run(threads)


def _callees_first(bodies: Iterable[Part]) -> Iterator[Part]:
    """The bodies, each after those that it calls."""
    known = {body.function: body for body in bodies if len(body.graph)}
    calls: dict[str, list[str]] = {}
    for name, body in known.items():
        library = body.graph.library
        found = find_calls(tuple(body.graph), library) if isinstance(library, Library) else {}
        calls[name] = [each for each in chain.from_iterable(found.values()) if each in known]
    return (known[name] for name in TopologicalSorter(calls).static_order())


def _with_more(step: Step, more_bytes: Mapping[str, int], threads: int) -> Step:
    """A step whose calls have in use what their functions do on threads."""
    library = step.graph.library
    if not any(more_bytes.values()) or not isinstance(library, Library):
        return step
    graph = step.buffer_graph
    scratch_bytes = list(graph.scratch_bytes)
    for number, names in find_calls(graph.nodes, library).items():
        most = max(more_bytes.get(name, 0) for name in names)
        scratch_bytes[number] += most * runs_at_once(graph.nodes[number], threads)
    return replace(step, buffer_graph=replace(graph, scratch_bytes=scratch_bytes))
