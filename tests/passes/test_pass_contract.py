"""What every pass owes, whatever it does: checked for each pass, with several options, on models.

A new pass has to be given its options here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.attention import attention_step
from support.compiled_calls import step_of_compiled_layers
from support.convolutions import depthwise_gradient
from support.counting import counting_step
from support.nested import nested_step
from support.random_graphs import random_training_graph
from support.random_sums import addn_stages, random_sums_graph

from memopt.cluster import Device, VirtualCluster
from memopt.costs.estimator import GrapplerCosts
from memopt.graph.functiondef import Library
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.graph.rewriter import Rewriter, Touches
from memopt.graph.text import parse_graph
from memopt.graph.verify import verify_graph, verify_references
from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS
from memopt.passes import PASSES, Context, Pass
from memopt.shapes.properties import Properties
from memopt.simulation.simulated_memory import SimulatedMemory
from memopt.simulation.virtual_scheduler import VirtualScheduler
from memopt.simulation.wiring import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.graph import Graph, Node, NodeState
    from memopt.graph.rewriter import Checkpoint, Edit

OPTIONS = {
    "fold-branches": ("fold-branches",),
    "bypass-optionals": ("bypass-optionals",),
    "checkpoint-loops": ("checkpoint-loops", "checkpoint-loops{segment_turns=2}"),
    "relax-allocator": ("relax-allocator",),
    "merge-addends": ("merge-addends",),
    "pin-sums": ("pin-sums",),
    "effects-before-data": ("effects-before-data",),
    "running-sums": ("running-sums",),
    "narrow-broadcasts": ("narrow-broadcasts{least_bytes=0}",),
    "bypass-barriers": ("bypass-barriers", "bypass-barriers{groups=true}"),
    "bypass-calls": ("bypass-calls",),
    "fold-shapes": ("fold-shapes", "fold-shapes{values=false}"),
    "serial-loops": ("serial-loops",),
    "fission": ("fission{try_kernels=false}", "fission{most_parts=3,try_kernels=false}"),
    "ordering": ("ordering", "ordering{sequencer=list,smallest_bytes=1024}"),
    "rematerialization": ("rematerialization{algorithm=sqrt}",),
    "inline-calls": ("inline-calls",),
    "lean-loops": ("lean-loops",),
    "pooling-gradients": ("pooling-gradients",),
    "depthwise-gradients": ("depthwise-gradients{channels=16}",),
    "compiled-rematerialization": (
        "compiled-rematerialization",
        "compiled-rematerialization{step_limit=65536,late_operands=true,algorithm=segments}",
        "compiled-rematerialization{step_limit=65536,triggers=barriers,algorithm=segments}",
    ),
    "addn-scheduling": (
        "addn-scheduling",
        "addn-scheduling{trust_feeds=true,all_types=true,ordered=true}",
        "addn-scheduling{running_sums=true}",
    ),
    "swapping": (
        "swapping",
        "swapping{heuristics=false}",
        "swapping{improved=true,ops=identity}",
        "swapping{improved=true,ops=serialize,device_type=CPU}",
    ),
    "recomputation": (
        "recomputation",
        "recomputation{hints_only=true}",
        "recomputation{target_scope=auto}",
        "recomputation{target_scope=auto,rule=cost,all_ports=true}",
    ),
}
"""The options to try each pass with."""

SPECS = tuple(spec for pass_ in PASSES for spec in OPTIONS[pass_.name])
FIND_WORK = ("relax-allocator", OPTIONS["recomputation"][-1])
"""Options with which there is work in every model."""

NEED_HINTS = ("recomputation", "recomputation{hints_only=true}", "swapping{heuristics=false}")
"""Options that do something only for names or attributes that the models do not have."""

WITH_LARGE_TENSORS = "vgg16"
OPEN_SUM = """
x = Placeholder() {dtype=float, shape=[4]}
y = Placeholder() {dtype=float, shape=[4]}
m = Mul(x, y) {T=float}
n = Neg(m) {T=float}
s = AddN(x, y, m) {N=3, T=float}
"""
"""No model has a sum whose bits depend on timing."""

NORMALIZED = """
x = Placeholder() {dtype=float, shape=[16,64]}
y = Placeholder() {dtype=float, shape=[1,64]}
m = Shape(x) {T=float, out_type=int32}
t = BroadcastTo(y, m) {T=float, Tidx=int32}
n = Neg(t) {T=float}
s = Mul(n, x) {T=float}
"""
BRANCHES = """
x = Placeholder() {dtype=float, shape=[16]}
p = Const() {dtype=bool, value=<tensor { dtype: DT_BOOL tensor_shape { } bool_val: true }>}
c = Switch(x, p) {T=float}
m = Neg(c:1) {T=float}
n = Merge(c, m) {N=2, T=float}
s = Exp(n) {T=float}
"""
OPTIONAL = """
x = Placeholder() {dtype=float, shape=[16]}
m = OptionalFromValue(x) {Toutput_types=<list { type: DT_FLOAT }>}
n = OptionalGetValue(m) {output_shapes=<list { shape { } }>, output_types=<list { type: DT_FLOAT }>}
s = Exp(n) {T=float}
"""
"""No model has branches."""

EQUAL_ADDENDS = """
x = Placeholder() {dtype=float, shape=[4]}
y = Placeholder() {dtype=float, shape=[4]}
m = Mul(x, y) {T=float}
n = Mul(y, x) {T=float}
s = AddN(x, m, n) {N=3, T=float}
"""
"""No model computes an addend twice."""

GPU = Device("GPU:0", "GPU", memory_bytes=1 << 10, num_cores=1, bandwidth_kb_per_s=1000)
CPU = Device("CPU:0", "CPU", memory_bytes=1 << 10, num_cores=1, bandwidth_kb_per_s=1000)
HOST = Device("CPU:1", "CPU", num_cores=1, bandwidth_kb_per_s=1000)
RANDOM_SEEDS = range(20)


class Outcome(NamedTuple):
    """One run of a pass on a fresh graph."""

    graph: Graph
    rewriter: Rewriter
    start: Checkpoint
    states: dict[Node, NodeState]
    output: bytes


def parse(spec: str) -> Pass:
    (kind,) = (pass_ for pass_ in PASSES if pass_.name == spec.partition("{")[0])
    return kind.parse(spec)


def serialized(graph_def: GraphDef) -> bytes:
    return bytes(graph_def.SerializeToString(deterministic=True))


def context_of(spec: str, item: GrapplerItem, graph: Graph, properties: Properties) -> Context:
    """A context with a device that is far too small and very slow, so that everything is tried."""
    device = CPU if "device_type=CPU" in spec else GPU
    scheduler = VirtualScheduler(VirtualCluster([device, HOST]), GrapplerCosts(), properties)
    request = Request.of(item)
    return Context(
        properties,
        fed=request.fed,
        fetched=frozenset(request.fetched),
        kept=frozenset(item.keep),
        simulated=SimulatedMemory(graph, scheduler, request),
    )


def run(spec: str, item: GrapplerItem, properties: Properties | None = None) -> Outcome:
    graph = from_graph_def(item.graph_def)
    states = {node: node.state for node in graph}
    rewriter = Rewriter(graph)
    start = rewriter.checkpoint()
    known = Properties.of(item) if properties is None else properties
    parse(spec).run(rewriter, context_of(spec, item, graph, known))
    return Outcome(graph, rewriter, start, states, serialized(to_graph_def(graph)))


def on_device(item: GrapplerItem, device: str) -> GrapplerItem:
    """The same step with all of the main graph on one device."""
    graph_def = type(item.graph_def)()
    graph_def.CopyFrom(item.graph_def)
    for node in graph_def.node:
        node.device = device
    return replace(item, graph_def=graph_def)


@pytest.fixture(scope="module", params=[*MODELS, *SESSION_MODELS])
def item(request: pytest.FixtureRequest, tiny_item: Callable[[str], GrapplerItem]) -> GrapplerItem:
    """A model's step, in which a few inner nodes must stay as they are called."""
    item = on_device(tiny_item(request.param), GPU.name)
    kept = tuple(node.name for node in item.graph_def.node[5::50])
    return GrapplerItem(item.graph_def, item.feed, item.fetch, kept, item.variables)


@pytest.fixture(scope="module")
def properties(item: GrapplerItem) -> Properties:
    """One for all passes on a model: its sizes are inferred once."""
    return Properties.of(item)


@pytest.fixture(scope="module")
def outcomes(item: GrapplerItem, properties: Properties) -> Callable[[str], Outcome]:
    """One run per pass and model, for the tests that only look."""
    return cache(lambda spec: run(spec, item, properties))


def test_every_pass_has_options_to_be_tried_with() -> None:
    assert set(OPTIONS) == {pass_.name for pass_ in PASSES}
    for spec in SPECS:
        assert str(parse(spec)) == spec
        assert str(type(parse(spec)).parse(spec)) == spec


def test_every_pass_says_what_it_does_in_one_line() -> None:
    for pass_ in PASSES:
        assert pass_.__doc__
        assert pass_.__doc__.splitlines()[0].endswith(".")
        assert pass_.touches


@pytest.mark.parametrize("spec", SPECS)
def test_the_output_is_a_valid_graph_in_which_the_caller_finds_everything(
    spec: str, item: GrapplerItem, outcomes: Callable[[str], Outcome]
) -> None:
    graph = from_graph_def(type(item.graph_def).FromString(outcomes(spec).output))
    verify_graph(graph)
    verify_references(graph, item.fetch, "fetch")
    verify_references(graph, item.feed, "feed")
    verify_references(graph, item.keep, "kept node")
    named = {name.partition(":")[0] for name in (*item.fetch, *item.feed, *item.keep)}
    for node in item.graph_def.node:
        if node.name in named:
            assert graph[node.name].op == node.op


@pytest.mark.parametrize("spec", SPECS)
def test_without_an_edit_the_output_is_the_input(
    spec: str, item: GrapplerItem, outcomes: Callable[[str], Outcome]
) -> None:
    outcome = outcomes(spec)
    assert (outcome.output == serialized(item.graph_def)) is (not outcome.rewriter.modified)
    assert outcome.graph.changed is outcome.rewriter.modified


@pytest.mark.parametrize("spec", FIND_WORK)
def test_work_is_found_in_every_model(spec: str, outcomes: Callable[[str], Outcome]) -> None:
    """The checks here are not of graphs that stay as they are."""
    assert outcomes(spec).rewriter.modified


def of_text(text: str, *fetched: str) -> GrapplerItem:
    return GrapplerItem(to_graph_def(parse_graph(text)), ("x:0", "y:0"), fetched)


WHERE_WORK_IS: dict[str, Callable[[Callable[[str], GrapplerItem]], GrapplerItem]] = {
    "fold-branches": lambda _: of_text(BRANCHES, "s"),
    "bypass-optionals": lambda _: of_text(OPTIONAL, "s"),
    "bypass-calls": lambda _: GrapplerItem.from_concrete_function(step_of_compiled_layers()),
    "serial-loops": lambda tiny_item: tiny_item("lstm"),
    "checkpoint-loops": lambda tiny_item: tiny_item("lstm"),
    "lean-loops": lambda tiny_item: tiny_item("lstm"),
    "running-sums": lambda tiny_item: tiny_item("bert"),
    "narrow-broadcasts": lambda _: of_text(NORMALIZED, "s"),
    "merge-addends": lambda _: of_text(EQUAL_ADDENDS, "s"),
    "pin-sums": lambda _: of_text(OPEN_SUM, "s", "n"),
    "effects-before-data": lambda _: GrapplerItem.from_concrete_function(counting_step()),
    "pooling-gradients": lambda tiny_item: tiny_item("unet"),
    "depthwise-gradients": lambda _: GrapplerItem.from_concrete_function(depthwise_gradient(64)),
    "inline-calls": lambda _: GrapplerItem.from_concrete_function(nested_step()),
    "fission": lambda _: GrapplerItem.from_concrete_function(attention_step().function),
    "addn-scheduling": lambda _: GrapplerItem(addn_stages(3, device=GPU.name), fetch=("train",)),
}
"""By pass: what it changes, where that is not a model with large tensors."""


@pytest.mark.parametrize("spec", [s for s in SPECS if s not in {*FIND_WORK, *NEED_HINTS}])
def test_work_is_found_in_a_model(spec: str, tiny_item: Callable[[str], GrapplerItem]) -> None:
    make = WHERE_WORK_IS.get(spec.partition("{")[0])
    item = on_device(tiny_item(WITH_LARGE_TENSORS), GPU.name) if make is None else make(tiny_item)
    assert run(spec, item).rewriter.modified


@pytest.mark.parametrize("spec", SPECS)
def test_the_edits_are_all_that_happened_and_of_the_declared_kinds(
    spec: str, outcomes: Callable[[str], Outcome]
) -> None:
    outcome = outcomes(spec)
    edits = outcome.rewriter.edits
    added = {name for edit in edits for name in edit.added}
    changed = {name for edit in edits for name in edit.changed}
    removed = {name for edit in edits for name in edit.removed}

    present = {node.name: node for node in outcome.graph}
    before = {node.name: node for node in outcome.states}
    assert present.keys() - before.keys() == added
    assert before.keys() - present.keys() == removed
    different = {
        name
        for name, node in before.items()
        if name in present and same(node.state) != same(outcome.states[node])
    }
    assert different == changed - added
    touched = frozenset[Touches]().union(*(edit.touches for edit in edits))
    assert touched <= parse(spec).touches
    assert kinds_of_change(outcome) <= touched


def same(state: NodeState) -> NodeState:
    """The state without the mark that it was changed."""
    return state._replace(changed=False)


def kinds_of_change(outcome: Outcome) -> set[Touches]:
    """What differs, found without the rewriter's records."""
    fields = {
        "op": Touches.OPS,
        "device": Touches.DEVICES,
        "attributes": Touches.ATTRIBUTES,
        "inputs": Touches.DATA_EDGES,
        "controls": Touches.CONTROL_EDGES,
    }
    found = set()
    nodes = set(outcome.graph)
    if nodes != set(outcome.states):
        found.add(Touches.NODES)
    for node, state in outcome.states.items():
        if node in nodes:
            now = node.state
            found |= {
                kind for name, kind in fields.items() if getattr(now, name) != getattr(state, name)
            }
    return found


@pytest.mark.parametrize("spec", SPECS)
def test_edits_and_declined_candidates_speak_of_nodes_and_say_why(
    spec: str, outcomes: Callable[[str], Outcome]
) -> None:
    outcome = outcomes(spec)
    for edit in outcome.rewriter.edits:
        assert edit.reason
        assert edit.added or edit.changed or edit.removed
        for name in tensors_of(edit):
            node, _, port = name.rpartition(":")
            assert port.isdecimal()
            assert node in outcome.graph
    for declined in outcome.rewriter.declined:
        assert declined.reason
        assert declined.node in outcome.graph


def tensors_of(edit: Edit) -> Iterator[str]:
    yield from edit.releases
    yield from edit.holds


@pytest.mark.parametrize("spec", SPECS)
def test_a_second_run_does_the_same_and_a_revert_gives_back_every_byte(
    spec: str, item: GrapplerItem, properties: Properties, outcomes: Callable[[str], Outcome]
) -> None:
    first, second = outcomes(spec), run(spec, item, properties)
    assert second.output == first.output
    assert second.rewriter.edits == first.rewriter.edits
    assert second.rewriter.declined == first.rewriter.declined

    second.rewriter.revert(second.start)

    assert serialized(to_graph_def(second.graph)) == serialized(item.graph_def)
    assert not second.rewriter.edits
    assert not second.rewriter.declined
    assert {node: node.state for node in second.graph} == second.states


@pytest.mark.parametrize("spec", SPECS)
def test_the_output_can_be_given_to_the_pass_again(
    spec: str, item: GrapplerItem, outcomes: Callable[[str], Outcome]
) -> None:
    """It may find copies to copy, but what comes out is valid and has all that there was."""
    first = outcomes(spec)
    graph_def = type(item.graph_def).FromString(first.output)
    again = GrapplerItem(graph_def, item.feed, item.fetch, item.keep, item.variables)
    second = run(spec, again)
    verify_graph(second.graph)
    verify_references(second.graph, (*item.fetch, *item.feed, *item.keep), "reference")
    if not first.rewriter.modified:
        assert second.output == first.output


def test_bodies_of_functions_keep_the_contract_too(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    graph_def = tiny_item("lstm").graph_def
    for spec in SPECS:
        library = Library(graph_def.library)
        for name in library.names():
            body = library.graph(name)
            rewriter = Rewriter(body)
            results = [node.name for node in body if node.op == "_Retval"]
            start = rewriter.checkpoint()
            used = GrapplerItem(graph_def, fetch=tuple(results))
            parse(spec).run(rewriter, context_of(spec, used, body, Properties.unknown()))
            verify_graph(body)
            rewriter.revert(start)
        assert library.to_proto() == graph_def.library


@pytest.mark.parametrize("spec", SPECS)
def test_random_graphs_keep_the_contract(spec: str) -> None:
    has_sums = spec.startswith("addn-scheduling")
    random_graph = random_sums if has_sums else random_training_graph
    edits = 0
    for seed in RANDOM_SEEDS:
        graph_def = random_graph(seed)
        item = GrapplerItem(graph_def, fetch=("train",))
        first, second = run(spec, item), run(spec, item)
        verify_graph(first.graph)
        assert first.output == second.output
        assert (first.output == serialized(graph_def)) is (not first.rewriter.edits)
        edits += len(first.rewriter.edits)
        second.rewriter.revert(second.start)
        assert serialized(to_graph_def(second.graph)) == serialized(graph_def)
    assert edits or not spec.startswith(("addn-scheduling", "recomputation"))


def random_sums(seed: int) -> GraphDef:
    return random_sums_graph(seed, [GPU.name])
