"""Random programs: rewritten in every way, run for real, compared with what they should do."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from fuzzing.recipes import smaller
from fuzzing.steps import build

import memopt
from memopt.accumulation.addition_order import AdditionOrders
from memopt.accumulation.shared_inputs import find_added, find_open_readers
from memopt.errors import BudgetError
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.options import Level
from memopt.runtime.function import build_function
from memopt.runtime.trace import TraceRecorder, step_marker
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fuzzing.recipes import Recipe
    from fuzzing.steps import Built

    from memopt.graph.graph import Graph
    from memopt.result import OptimizationResult
    from memopt.runtime.trace import Trace

STEPS = 2
WAYS: dict[str, dict[str, Any]] = {
    **{level.value: {"level": level.value, "devices": ["CPU:0=CPU:96KiB"]} for level in Level},
    **{f"{percent}%": {"budget": f"{percent}%"} for percent in (70, 50, 30)},
}
"""By name: the options of a rewrite."""

_PLANNING = ("rematerialization{planning_seconds=1}",)
_NEAR = 0.001
_FEW_BYTES = 256
"""What a prediction may be wrong by: handles, numbers and the like."""

_BOUND = frozenset({"branch", "cases", "function", "function twice", "noinline", "recomputed"})
_MOST_ATTEMPTS = 60
_REBUILT = 8


class Finding(NamedTuple):
    """Something that should not be.

    Attributes:
        way: How the step was rewritten.
        kind: "bits", "error", or "prediction".
        what: In words.
    """

    way: str
    kind: str
    what: str


@dataclass
class Outcome:
    """What came of a recipe.

    Attributes:
        recipe: The recipe.
        findings: What should not be.
        repeatable: Whether the step itself computes the same twice.
        rewritten: In how many ways the graph was changed.
        predicted: How many predictions were held against a real step.
    """

    recipe: Recipe
    findings: list[Finding] = field(default_factory=list)
    repeatable: bool = True
    rewritten: int = 0
    predicted: int = 0

    @property
    def failures(self) -> list[Finding]:
        """Findings that are wrong results or errors, not only wrong predictions."""
        return [finding for finding in self.findings if finding.kind != "prediction"]


class _Variant(NamedTuple):
    """A rewritten step."""

    way: str
    function: Any
    result: OptimizationResult


def start() -> None:
    """Prepare this process: two devices on the host, one operation at a time, no Grappler.

    What is read when TensorFlow is imported must be set before: its own allocator, no oneDNN.
    """
    (host,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(host, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def check(recipe: Recipe, ways: Iterable[str] = tuple(WAYS)) -> Outcome:
    """Rewrite a step in these ways and find out what should not be."""
    outcome = Outcome(recipe)
    built = build(recipe)
    expected = _bits(built, built.function)
    if _bits(built, built.function) != expected:
        # Numbers drawn go on from call to call; a function built anew begins again.
        again = build(recipe)
        expected = _bits(again, again.function)
        built = build(recipe)
        outcome.repeatable = _bits(built, built.function) == expected
        built = build(recipe)
    if not outcome.repeatable:
        return outcome
    variants = [found for way in ways if (found := _rewritten(built, way, outcome)) is not None]
    for variant in variants:
        _compare(built, variant, expected, outcome)
    if recipe.devices == 1:
        _hold_against(built, variants, outcome)
    return outcome


def _rewritten(built: Built, way: str, outcome: Outcome) -> _Variant | None:
    options = dict(WAYS[way])
    if "budget" in options or options.get("level") == Level.ORDERED:
        options.pop("devices", None)
    if "budget" in options:
        options["pass_options"] = _PLANNING
    try:
        try:
            result = memopt.optimize(built.function, **options)
        except BudgetError as error:
            result = error.result
        failed = [done.failure for done in result.report.passes if done.failure]
        if failed:
            outcome.findings.append(Finding(way, "error", f"undone: {failed[0]}"))
        outcome.rewritten += result.report.modified
        return _Variant(way, build_function(result.graph_def, built.function), result)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        outcome.findings.append(Finding(way, "error", f"{type(error).__name__}: {error}"))
        return None


def _compare(built: Built, variant: _Variant, expected: Sequence[bytes], outcome: Outcome) -> None:
    try:
        found = _bits(built, variant.function)
    except tf.errors.OpError as error:
        outcome.findings.append(Finding(variant.way, "error", f"it does not run: {error.message}"))
        return
    if found == list(expected):
        return
    if _depends_on_timing(built) or _varies(built, expected):
        outcome.repeatable = False
        return
    pairs = enumerate(zip(expected, found, strict=True))
    differing = [number for number, pair in pairs if len(set(pair)) > 1]
    outcome.findings.append(Finding(variant.way, "bits", f"results {differing} differ"))


def _depends_on_timing(built: Built) -> bool:
    """Whether a sum's order of addition depends on which of two operations runs first.

    One thread decides it in one way, and `pin-sums` holds it to what a model of the executor says.
    That does not follow loops and calls exactly; without any, the bits have to stay.
    """
    graph_def = built.function.graph.as_graph_def()
    graph, properties = from_graph_def(graph_def), Properties.of(GrapplerItem(graph_def))
    if _sends_addends_in_vain(built, graph, properties):
        return True
    if not graph_def.library.function:
        return False
    library = graph.library
    assert library is not None
    bodies = {"": graph, **{name: library.graph(name) for name in library.names()}}
    return any(
        find_open_readers(orders, node, properties.function(name))
        for name, body in bodies.items()
        for orders in [AdditionOrders(body)]
        for node in body
    )


def _sends_addends_in_vain(built: Built, graph: Graph, properties: Properties) -> bool:
    """Whether what a sum may take over goes to another device, for an operation without use there.

    Without Grappler such an operation is left out only when its device's part of the graph has been
    cut out, and what it would read is sent all the same: somebody holds it until it has arrived.
    """
    fetched = [tensor.op.name for tensor in built.function.outputs]
    kept = [operation.name for operation in built.function.graph.control_outputs]
    running = AdditionOrders(graph, fetched, kept).running
    addends = find_added(graph, properties)
    return any(
        reader.device != tensor.node.device and not running.may(reader)
        for tensor in addends
        for reader, _ in tensor.uses
    )


def _varies(built: Built, expected: Sequence[bytes]) -> bool:
    """Whether the step itself computes something else when it is built again.

    Where two operations are ready at once, which of them runs first depends on addresses in memory,
    and with it the last bits of a sum that takes over what the other reads.
    """
    graph_def = built.function.graph.as_graph_def()
    again = (build_function(graph_def, built.function) for _ in range(_REBUILT))
    return any(_bits(built, function) != list(expected) for function in again)


def _bits(built: Built, function: Any) -> list[bytes]:
    """All results of some steps and the variables afterwards, which are then put back."""
    start = [variable.numpy() for variable in built.variables]
    try:
        results = [
            result.numpy().tobytes()
            for _ in range(STEPS)
            for result in tf.nest.flatten(function(*built.inputs))
        ]
        return results + [variable.numpy().tobytes() for variable in built.variables]
    finally:
        for variable, value in zip(built.variables, start, strict=True):
            # In memory of its own: the array's could not be updated where it lies.
            variable.assign(tf.raw_ops.DeepCopy(x=value))


def _hold_against(built: Built, variants: Sequence[_Variant], outcome: Outcome) -> None:
    """Compare the peaks that are predicted with those of the allocator."""
    known = [variant for variant in variants if variant.result.report.runtime is not None]
    with tempfile.TemporaryDirectory(prefix="memopt-fuzz-") as folder:
        recorder = TraceRecorder(Path(folder))
        recorder.start()
        for number, variant in enumerate(known):
            with step_marker(number):
                variant.function(*built.inputs)
                tf.test.experimental.sync_devices()
        trace = recorder.stop()
    for variant, peak_bytes in zip(known, _peaks(trace), strict=True):
        runtime = variant.result.report.runtime
        assert runtime is not None
        predicted = runtime.after.step_peak_bytes
        outcome.predicted += 1
        near_bytes = max(_NEAR * peak_bytes, _FEW_BYTES)
        is_above = predicted - peak_bytes > near_bytes and not _is_bound(outcome.recipe)
        if is_above or peak_bytes - predicted > near_bytes:
            what = f"{predicted} bytes were predicted, {peak_bytes} were in use"
            outcome.findings.append(Finding(variant.way, "prediction", what))


def _is_bound(recipe: Recipe) -> bool:
    """Whether what is predicted is the most that there can be: of branches, and of calls."""
    kinds = {operation.kind for operation in recipe.operations}
    return recipe.wrapping != "plain" or not kinds.isdisjoint(_BOUND)


def _peaks(trace: Trace) -> list[int]:
    """What each step had in use at most on top of what was before it."""
    events = list(trace.events)
    peaks, place = [], 0
    for span in trace.steps:
        in_use_bytes = peak_bytes = 0
        while place < len(events) and events[place].time_ns < span.start_ns:
            place += 1
        while place < len(events) and events[place].time_ns <= span.end_ns:
            event = events[place]
            in_use_bytes += event.size_bytes if event.kind == "allocate" else -event.size_bytes
            peak_bytes = max(peak_bytes, in_use_bytes)
            place += 1
        peaks.append(peak_bytes)
    return peaks


def shrink(outcome: Outcome) -> Recipe:
    """A smaller recipe that fails in the same way."""
    failure = outcome.findings[0]
    recipe, attempts = outcome.recipe, 0
    while True:
        for candidate in smaller(recipe):
            attempts += 1
            if attempts > _MOST_ATTEMPTS:
                return recipe
            if _fails_alike(candidate, failure):
                recipe = candidate
                break
        else:
            return recipe


def _fails_alike(recipe: Recipe, failure: Finding) -> bool:
    try:
        findings = check(recipe, [failure.way]).findings
    except Exception:  # noqa: BLE001 - what cannot be built shows nothing
        return False
    return any((each.way, each.kind) == (failure.way, failure.kind) for each in findings)
