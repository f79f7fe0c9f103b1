"""The optimizer: what it reports, that it repeats itself, and that what goes wrong is undone."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support.bad_inputs import SHAPES_THAT_DO_NOT_FIT, graph_def_of
from support.native import differences, normalize_native, optimize_native
from support.native_simulation import GPU

from memopt.api import optimize
from memopt.cluster import Device, VirtualCluster
from memopt.errors import InvalidGraphError, OptionsError, PassError
from memopt.graph.rewriter import Touches
from memopt.io import read_graph, save
from memopt.item import GrapplerItem
from memopt.optimization.pipeline import Pipeline
from memopt.optimizer import MemoryOptimizer
from memopt.options import Level, Options
from memopt.passes import (
    AddnScheduling,
    BypassBarriers,
    BypassCalls,
    BypassOptionals,
    Context,
    EffectsBeforeData,
    FoldBranches,
    FoldShapes,
    MergeAddends,
    NarrowBroadcasts,
    Ordering,
    Pass,
    PinSums,
    Recomputation,
    RelaxAllocator,
    SerialLoops,
    Swapping,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.rewriter import Rewriter
    from memopt.result import OptimizationReport, PassReport


def serialized(graph_def: GraphDef) -> bytes:
    return bytes(graph_def.SerializeToString(deterministic=True))


# --- what is reported ----------------------------------------------------------------------------

STEP = """
x = Placeholder() {dtype=float, shape=[8,4]}
w = Placeholder() {dtype=float, shape=[4,16]}
product = MatMul(x, w) {T=float, transpose_a=false, transpose_b=false}
relu = Relu(product) {T=float}
loss = Tanh(relu) {T=float}
gradients/loss = TanhGrad(loss, loss) {T=float}
gradients/relu = ReluGrad(gradients/loss, relu) {T=float}
"""
PRODUCT_BYTES = 8 * 16 * 4


def item_of(text: str, **fields: Any) -> GrapplerItem:
    return GrapplerItem(graph_def_of(text), **fields)


def recomputed(report: OptimizationReport) -> PassReport:
    """What the recomputation did to the main graph."""
    (done,) = (
        done
        for done in report.passes
        if done.name.startswith("recomputation") and not done.function
    )
    return done


def test_a_result_says_what_was_done() -> None:
    item = item_of(STEP, feed=("x:0", "w:0"), fetch=("gradients/relu",))
    result = MemoryOptimizer().optimize(None, item)

    report = result.report
    assert report.level is Level.HEURISTICS
    assert (report.nodes_before, report.nodes_after) == (7, 9)
    assert len(result.graph_def.node) == 9
    assert report.modified
    relaxed, done = report.passes
    assert (relaxed.name, relaxed.function, relaxed.failure) == ("relax-allocator", "", "")
    assert relaxed.edits == ()
    assert (done.name, done.function, done.failure) == ("recomputation", "", "")
    assert done.declined == ()
    assert done.seconds > 0
    assert done.iteration == 0
    (edit,) = done.edits
    assert edit.added == ("RecomputeTrigger/relu", "Recomputed/relu")
    assert edit.changed == ("gradients/relu",)
    assert edit.removed == ()
    assert edit.releases == ("relu:0",)
    assert edit.holds == ("product:0",)
    assert edit.touches == {Touches.NODES, Touches.DATA_EDGES}


def test_an_effect_is_what_is_held_less_what_is_released() -> None:
    """Here the product is held instead of the relu of the same size; below a constant instead."""
    result = optimize(graph_def_of(STEP))
    (edit,) = recomputed(result.report).edits
    assert result.report.effect_bytes(edit) == 0

    cheaper = STEP + (
        "narrow = Cast(x) {SrcT=float, DstT=half}\n"
        "wide = Cast(narrow) {SrcT=half, DstT=double}\n"
        "use = Tanh(wide) {T=double}\n"
        "gradients/early = Tanh(use) {T=double}\n"
        "gradients/wide = Mul(gradients/early, wide) {T=double}\n"
    )
    report = optimize(graph_def_of(cheaper)).report
    effects = {edit.releases: report.effect_bytes(edit) for edit in recomputed(report).edits}
    # Of `wide` and the `narrow` that it is made of nothing is kept, but `x` longer.
    assert effects == {
        ("relu:0",): 0,
        ("wide:0",): 8 * 4 * 4 - 8 * 4 * 8,
    }


def test_an_effect_of_an_unknown_size_is_not_known() -> None:
    result = optimize(graph_def_of(STEP.replace("[8,4]", "[?,4]")))
    (edit,) = recomputed(result.report).edits
    assert result.report.effect_bytes(edit) is None


def test_the_report_is_plain_data() -> None:
    report = optimize(graph_def_of(STEP), devices=["GPU:0=GPU"]).report
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain == report.to_json()
    relaxed, done, added, swapped = plain.pop("passes")
    # On so fast a device all that the seven nodes make is there within the same microsecond, and
    # then the recomputed relu as well.
    before, after = plain.pop("peak_before_bytes"), plain.pop("peak_after_bytes")
    assert before == {GPU: 8 * 4 * 4 + 4 * 16 * 4 + 5 * PRODUCT_BYTES}
    assert after == {GPU: before[GPU] + PRODUCT_BYTES}
    assert plain == {
        "level": "heuristics",
        "nodes_before": 7,
        "nodes_after": 9,
        "unknown_sizes": [],
        "sizes_failure": "",
        "iterations": 1,
        "stopped": "nothing was left to change",
        "unknown_kernels": [],
        "runtime": None,
    }
    assert [one["name"].partition("{")[0] for one in (relaxed, added, swapped)] == [
        *("relax-allocator", "addn-scheduling", "swapping")
    ]
    assert [one["iteration"] for one in (relaxed, done, added, swapped)] == [0, 0, 1, 1]
    assert relaxed["peak_before_bytes"] == {}
    assert added["peak_before_bytes"] == swapped["peak_before_bytes"] == after
    assert done.pop("seconds") > 0
    assert done.pop("peak_before_bytes") == before
    (edit,) = done.pop("edits")
    assert done == {
        "name": "recomputation",
        "function": "",
        "iteration": 0,
        "failure": "",
        "declined": [],
    }
    assert edit.pop("reason")
    assert edit == {
        "effect_bytes": 0,
        "added": ["RecomputeTrigger/relu", "Recomputed/relu"],
        "removed": [],
        "changed": ["gradients/relu"],
        "releases": ["relu:0"],
        "holds": ["product:0"],
        "decisions": [],
        "planned_bytes": 0,
        "planned_overhead": 0.0,
    }


def test_what_was_left_alone_is_in_the_report() -> None:
    text = (
        "n = Placeholder() {dtype=int32, shape=[1]}\n"
        "r = RandomUniform(n) {T=int32, _recompute_hint=0, dtype=float, seed=0, seed2=0}\n"
        "gradients/a = Tanh(r) {T=float}\n"
    )
    report = optimize(graph_def_of(text)).report
    assert not report.modified
    (declined,) = recomputed(report).declined
    assert declined.node == "r"
    plain = next(one for one in report.to_json()["passes"] if one["name"] == "recomputation")
    assert plain["declined"] == [{"node": "r", "reason": declined.reason}]


def test_the_input_is_not_changed_and_shares_nothing_with_the_output() -> None:
    graph_def = graph_def_of(STEP)
    before = serialized(graph_def)
    result = optimize(graph_def)
    result.graph_def.node[0].name = "renamed"
    result.graph_def.node[3].attr["T"].type = 2
    result.graph_def.versions.producer = 1
    assert serialized(graph_def) == before


# --- the same every time -------------------------------------------------------------------------

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"target_scope": "auto"},
    {"target_scope": "auto", "rule": "cost", "all_ports": True},
    # With devices on which tensors are swapped.
    {
        "target_scope": "auto",
        "devices": ["GPU:0=GPU:20KB,frequency=1MHz,cores=1,bandwidth=1MB/s", "CPU:0=CPU:1GiB"],
        "pass_options": ["swapping{improved=true,ops=serialize}"],
    },
)
MODELS_HASHED = ("convnet_v1", "lstm", "mlp")

HASH_SCRIPT = """
import hashlib, json, sys
from memopt.api import optimize
files, options = json.loads(sys.argv[1])
print(json.dumps([
    hashlib.sha256(
        optimize(file, **given).graph_def.SerializeToString(deterministic=True)
    ).hexdigest()
    for file in files for given in options
]))
"""


@pytest.mark.slow
def test_other_runs_and_other_processes_give_the_same_bytes(
    tiny_item: Callable[[str], GrapplerItem], tmp_path: Path
) -> None:
    files = [str(tmp_path / model) for model in MODELS_HASHED]
    for file, model in zip(files, MODELS_HASHED, strict=True):
        save(tiny_item(model), file)

    def hashes_here() -> list[str]:
        return [
            hashlib.sha256(serialized(optimize(file, **given).graph_def)).hexdigest()
            for file in files
            for given in OPTIONS
        ]

    def hashes_there(seed: str) -> list[str]:
        output = subprocess.run(
            [sys.executable, "-c", HASH_SCRIPT, json.dumps([files, OPTIONS])],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        )
        hashes: list[str] = json.loads(output.stdout)
        return hashes

    here = hashes_here()
    assert hashes_here() == here
    assert hashes_there("4242") == here
    # Something was done, and something else with other options.
    plain = [found for number, found in enumerate(here) if (number + 1) % len(OPTIONS)]
    assert len(set(plain)) >= len(files) * (len(OPTIONS) - 2)
    swapped = here[len(OPTIONS) - 1]
    assert swapped not in plain


# --- what cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fetch": ["nowhere"]}, "the fetch 'nowhere' does not exist in the graph"),
        ({"fetch": ["relu:1"]}, "the fetch 'relu:1' does not exist: Relu has 1 outputs"),
        ({"feed": ["nowhere:0"]}, "the feed 'nowhere:0' does not exist in the graph"),
        ({"keep": ["nowhere"]}, "the kept node 'nowhere' does not exist in the graph"),
    ],
)
def test_names_that_are_not_in_the_graph_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidGraphError) as caught:
        optimize(graph_def_of(STEP), **fields)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "most"}, "there is no level 'most'; the levels: default_mem_opt, no_mem_opt, "),
        ({"rule": "guess"}, "rule is one of"),
        ({"pass_options": ("shuffling",)}, "level heuristics does not run the pass 'shuffling'"),
        ({"pass_options": ("swapping{x=1}",)}, "swapping: no option 'x=1'; its options: "),
        (
            {"level": "improved_heuristics", "as_grappler": True},
            "level improved_heuristics is none of Grappler's",
        ),
        (
            {"level": "manual", "pass_options": ("addn-scheduling",)},
            "level manual does not run the pass 'addn-scheduling'; it runs: relax-allocator, ",
        ),
    ],
)
def test_options_that_are_not_valid_are_refused_at_once(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        MemoryOptimizer(**options)
    with pytest.raises(OptionsError, match=message):
        optimize("a file that is not even read", **options)


RELAX, SCHEDULE, SWAP = RelaxAllocator(), AddnScheduling(), Swapping(same_sums=False)
RECOMPUTE = Recomputation(same_sums=False)


@pytest.mark.parametrize(
    ("level", "passes"),
    [
        ("No_Mem_Opt", ()),
        ("manual", (RELAX, replace(RECOMPUTE, hints_only=True), replace(SWAP, heuristics=False))),
        ("heuristics", (RELAX, RECOMPUTE, SCHEDULE, SWAP)),
        ("default_mem_opt", (RELAX, SCHEDULE, SWAP)),
        ("recomputation_heuristics", (RELAX, RECOMPUTE)),
        ("SCHEDULING_HEURISTICS", (RELAX, SCHEDULE)),
        ("swapping_heuristics", (RELAX, SWAP)),
    ],
)
def test_levels_say_which_passes_run(level: str, passes: tuple[Pass, ...]) -> None:
    """As in Grappler; which of them are repeated as well."""
    optimizer = MemoryOptimizer(level, as_grappler=True)
    assert optimizer.passes() == passes
    repeated = tuple(pass_ for pass_ in passes if pass_.name in ("addn-scheduling", "swapping"))
    assert optimizer.pipeline().repeated == repeated


def test_every_level_has_a_line_above() -> None:
    (levels,) = (
        mark.args[1]
        for mark in test_levels_say_which_passes_run.pytestmark  # type: ignore[attr-defined]
    )
    native = {level for level in Level if not level.improves}
    assert {Level.parse(level) for level, _ in levels} == native


def test_a_level_of_our_own_swaps_in_a_better_way() -> None:
    optimizer = MemoryOptimizer("improved_heuristics")
    *others, swapping = MemoryOptimizer().passes()
    assert swapping == replace(SWAP, same_sums=True)
    assert optimizer.passes() == (*others, Swapping(improved=True))


def test_an_order_is_the_last_thing_that_a_level_makes() -> None:
    optimizer = MemoryOptimizer("ordered")
    assert optimizer.passes() == (
        *(FoldBranches(), BypassOptionals()),
        *(RELAX, MergeAddends(), PinSums(), EffectsBeforeData()),
        *(NarrowBroadcasts(), BypassBarriers(), BypassCalls(), FoldShapes(), SerialLoops()),
        Ordering(),
    )
    assert not optimizer.pipeline().repeated


def test_options_reach_the_passes() -> None:
    assert MemoryOptimizer().passes()[1] == Recomputation()
    assert MemoryOptimizer(target_scope="").passes()[1] == Recomputation()
    assert MemoryOptimizer(Level.MANUAL, "auto", "cost", all_ports=True).passes()[1] == (
        Recomputation("auto", hints_only=True, rule="cost", all_ports=True)
    )
    given = MemoryOptimizer(
        pass_options=("swapping{improved=true}", "addn-scheduling{running_sums=false}")
    )
    assert given.passes()[2:] == (AddnScheduling(), Swapping(improved=True))


def test_sums_keep_their_bits_unless_grappler_is_asked_for() -> None:
    assert AddnScheduling(running_sums=True) in MemoryOptimizer().passes()
    assert AddnScheduling() in MemoryOptimizer(as_grappler=True).passes()


def test_options_come_from_a_rewriter_config() -> None:
    config = Options(Level.MANUAL, "mine/", 1234).to_rewriter_config()
    optimizer = MemoryOptimizer.from_options(Options.from_rewriter_config(config))
    assert optimizer == MemoryOptimizer(Level.MANUAL, "mine/", deadline_ms=1234)


# --- with devices --------------------------------------------------------------------------------

# When the sum is made, all six that it reads and itself are there, 4 MiB each.
SUM = """
x = Placeholder() {dtype=float, shape=[1024,1024]}
a = Tanh(x) {T=float}
b = Tanh(a) {T=float}
c = Tanh(b) {T=float}
d = Tanh(c) {T=float}
e = Tanh(d) {T=float}
f = Tanh(e) {T=float}
sum = AddN(a, b, c, d, e, f) {N=6, T=float}
"""
MIB = 1 << 20


def test_the_passes_that_look_at_a_simulation_need_devices() -> None:
    item = item_of(SUM, feed=("x:0",), fetch=("sum:0",))
    report = MemoryOptimizer("scheduling_heuristics").optimize(None, item).report
    assert [done.name for done in report.passes] == ["relax-allocator"]
    assert report.iterations == 0
    assert report.stopped == (
        "no devices are given, or nothing is fetched: addn-scheduling did not run"
    )
    assert (report.peak_before_bytes, report.peak_after_bytes) == ({}, {})


def test_devices_are_a_cluster_or_what_describes_them() -> None:
    item = item_of(SUM, feed=("x:0",), fetch=("sum:0",))
    cluster = VirtualCluster(["GPU:0=GPU:16MiB"])
    by_cluster = optimize(item, devices=cluster)
    by_text = optimize(item, devices=["GPU:0=GPU:16MiB"])
    by_device = optimize(item, devices=[Device.parse("GPU:0=GPU:16MiB")])
    by_optimizer = MemoryOptimizer().optimize(cluster, item)
    expected = serialized(by_cluster.graph_def)
    for result in (by_text, by_device, by_optimizer):
        assert serialized(result.graph_def) == expected
    assert by_cluster.report.modified


def test_without_devices_they_are_this_machines() -> None:
    item = item_of(SUM, feed=("x:0",), fetch=("sum:0",))
    report = optimize(item).report
    assert list(report.peak_before_bytes) == [
        device.name for device in VirtualCluster.of_this_machine()
    ]
    assert report.iterations == 1


@pytest.mark.parametrize(
    ("memory", "iterations", "rewritten"),
    [
        ("GPU:0=GPU:35MiB", 1, False),
        # The peak of 28 MiB is above 80 % of this. The second turn finds nothing to do.
        ("GPU:0=GPU:34MiB", 2, True),
    ],
)
def test_sums_are_accumulated_where_memory_is_short(
    memory: str, iterations: int, *, rewritten: bool
) -> None:
    item = item_of(SUM, feed=("x:0",), fetch=("sum:0",))
    cluster = VirtualCluster([memory])
    report = MemoryOptimizer("scheduling_heuristics").optimize(cluster, item).report
    assert report.modified is rewritten
    assert report.iterations == iterations
    assert report.stopped == "nothing was left to change"
    before, after = report.peak_before_bytes[GPU], report.peak_after_bytes[GPU]
    assert before == 7 * 4 * MIB
    assert (after < before) is rewritten


def test_after_the_deadline_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stood still while the optimizer looked at it."""
    monkeypatch.setattr("memopt.optimizer.time", SimpleNamespace(monotonic=lambda: 0.0))
    item = item_of(STEP, feed=("x:0", "w:0"), fetch=("gradients/relu",))
    result = MemoryOptimizer(deadline_ms=1).optimize(None, item)
    assert result.report.passes == ()
    assert result.report.stopped == "the deadline passed before relax-allocator"
    assert serialized(result.graph_def) == serialized(item.graph_def)
    # 0 is no deadline.
    assert MemoryOptimizer(deadline_ms=0).optimize(None, item).report.modified


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cycle_collector_is_left_as_it_was(*, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    try:
        optimize(graph_def_of(STEP))
        assert gc.isenabled() is enabled
        with pytest.raises(InvalidGraphError):
            optimize(graph_def_of(STEP), fetch=["nowhere"])
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


# --- passes that go wrong ------------------------------------------------------------------------


@dataclass(frozen=True)
class BadPass(Pass):
    """Changes a graph well, then badly."""

    name: ClassVar[str] = "bad"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.NODES, Touches.DATA_EDGES})

    how: str = ""

    def run(self, rewriter: Rewriter, context: Context) -> None:
        graph = rewriter.graph
        assert context.fetched == {"gradients/relu"}
        rewriter.decline(graph["x"], "a record that goes too")
        with rewriter.edit("a good edit", releases=[graph["x"].output(0)]):
            rewriter.add_node("added", "NoOp")
        HARM[self.how](rewriter)


def make_a_cycle(rewriter: Rewriter) -> None:
    graph = rewriter.graph
    with rewriter.edit("relu reads what is computed from it"):
        rewriter.set_input(graph["relu"], 0, graph["loss"].output(0))


def read_another_type(rewriter: Rewriter) -> None:
    graph = rewriter.graph
    with rewriter.edit("a half for a float"):
        half = rewriter.add_node("half", "Placeholder", attributes=attributes_of("dtype=half"))
        rewriter.set_input(graph["relu"], 0, half.output(0))


def read_a_port_that_is_not_there(rewriter: Rewriter) -> None:
    graph = rewriter.graph
    with rewriter.edit("port 3 of one"):
        rewriter.set_input(graph["relu"], 0, graph["product"].output(3))


def set_an_attribute(rewriter: Rewriter) -> None:
    with rewriter.edit("a kind of change that was not declared"):
        rewriter.set_attribute(rewriter.graph["relu"], "_mine", 1)


def take_out_a_fetch(rewriter: Rewriter) -> None:
    with rewriter.edit("nothing uses it, but the caller"):
        rewriter.remove_node(rewriter.graph["gradients/relu"])


def raise_an_error(rewriter: Rewriter) -> None:
    with rewriter.edit("half an edit"):
        rewriter.add_node("half an edit", "NoOp")
        raise PassError("no good")


def remove_what_is_used(rewriter: Rewriter) -> None:
    with rewriter.edit("the rewriter refuses"):
        rewriter.remove_node(rewriter.graph["relu"])


HARM: dict[str, Callable[[Rewriter], None]] = {
    "a cycle": make_a_cycle,
    "another type": read_another_type,
    "a missing port": read_a_port_that_is_not_there,
    "an undeclared kind of change": set_an_attribute,
    "a fetch taken out": take_out_a_fetch,
    "an error": raise_an_error,
    "a refused edit": remove_what_is_used,
}
WHY = {
    "a cycle": "2 nodes form a cycle: ",
    "another type": "input 'half:0' is half, Relu takes float",
    "a missing port": "input 'product:3' does not exist: MatMul has 1 outputs",
    "an undeclared kind of change": "an edit changed attributes, which the pass does not declare",
    "a fetch taken out": "'gradients/relu' does not exist in the graph",
    "an error": "no good",
    "a refused edit": "cannot remove 'relu': 'loss' still uses it",
}


def attributes_of(text: str) -> dict[str, Any]:
    (node,) = graph_def_of(f"n = Placeholder() {{{text}}}").node
    return dict(node.attr)


@pytest.mark.parametrize("how", HARM)
def test_a_pass_that_goes_wrong_is_undone_and_said(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = item_of(STEP, fetch=("gradients/relu",))
    monkeypatch.setattr(MemoryOptimizer, "pipeline", lambda _: Pipeline((BadPass(how=how),), ()))

    result = MemoryOptimizer().optimize(None, item)

    assert serialized(result.graph_def) == serialized(item.graph_def)
    assert not result.report.modified
    assert result.report.nodes_after == result.report.nodes_before
    (done,) = result.report.passes
    assert done.edits == ()
    assert done.declined == ()
    assert done.failure.startswith(f"bad{{how={how}}}: ")
    assert WHY[how] in done.failure
    assert "\n" not in done.failure
    assert result.report.to_json()["passes"][0]["failure"] == done.failure


def test_the_passes_before_and_after_one_that_goes_wrong_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = item_of(STEP, fetch=("gradients/relu",))
    alone = MemoryOptimizer().optimize(None, item)
    twice = Recomputation("gradient_tape/")
    passes = (twice, BadPass(how="a cycle"), Recomputation())
    monkeypatch.setattr(MemoryOptimizer, "pipeline", lambda _: Pipeline(passes, ()))

    result = MemoryOptimizer().optimize(None, item)

    assert serialized(result.graph_def) == serialized(alone.graph_def)
    first, bad, last = result.report.passes
    assert (first.failure, last.failure) == ("", "")
    assert last.edits == recomputed(alone.report).edits
    # Which passes ran before may be why it went wrong.
    assert bad.failure.startswith(f"bad{{how=a cycle}} after {twice}: 2 nodes form a cycle")


UNFIT = SHAPES_THAT_DO_NOT_FIT + ("\nr = Relu(x) {T=float}\ngradients/r = ReluGrad(r, r) {T=float}")


def test_sizes_that_cannot_be_had_undo_the_pass_that_asks_for_them() -> None:
    item = item_of(UNFIT, feed=("x:0",), fetch=("y", "gradients/r"))
    report = MemoryOptimizer(rule="cost").optimize(None, item).report
    assert not report.modified
    assert "Dimensions must be equal" in recomputed(report).failure


def test_a_graph_whose_shapes_do_not_fit_is_not_simulated() -> None:
    item = item_of(UNFIT, feed=("x:0",), fetch=("y", "gradients/r"))
    with pytest.raises(InvalidGraphError, match="Dimensions must be equal"):
        optimize(item, devices=["GPU:0=GPU"])


def test_a_pass_that_needs_no_sizes_does_without() -> None:
    item = item_of(UNFIT, feed=("x:0",), fetch=("y", "gradients/r"))
    report = MemoryOptimizer().optimize(None, item).report
    (edit,) = recomputed(report).edits
    assert recomputed(report).failure == ""
    assert report.effect_bytes(edit) is None
    plain = json.loads(json.dumps(report.to_json()))
    assert "Dimensions must be equal" in plain["sizes_failure"]
    assert plain["unknown_sizes"] == []
    assert plain["passes"][1]["edits"][0]["effect_bytes"] is None


# --- bodies of functions -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_function() -> GrapplerItem:
    """A step whose forward part and gradients are in the body of a function that it calls."""
    import tensorflow as tf

    def inner(x: Any, w: Any) -> Any:
        hidden = tf.nn.relu(tf.matmul(x, w, name="first"), name="relu")
        loss = tf.reduce_sum(tf.nn.sigmoid(tf.matmul(hidden, w, name="second"), name="sigmoid"))
        (gradient,) = tf.gradients(loss, [w])
        return loss, gradient

    called = tf.function(inner, experimental_attributes={"_noinline": True})

    def outer(x: Any, w: Any) -> Any:
        loss, gradient = called(tf.nn.relu(x), w)
        return loss, w - 0.1 * gradient

    spec = tf.TensorSpec([4, 4])
    return GrapplerItem.from_concrete_function(tf.function(outer).get_concrete_function(spec, spec))


def body_of(graph_def: GraphDef) -> dict[str, Any]:
    (function,) = (f for f in graph_def.library.function if "inner" in f.signature.name)
    return {node.name: node for node in function.node_def}


def test_bodies_of_called_functions_are_rewritten(with_function: GrapplerItem) -> None:
    result = MemoryOptimizer().optimize(None, with_function)

    main, body = result.report.graphs
    assert main.function == ""
    assert [done.edits for done in main.passes] == [(), ()]
    relaxed, inside = body.passes
    assert (relaxed.name, relaxed.edits) == ("relax-allocator", ())
    assert body.function == relaxed.function == inside.function
    assert inside.function.startswith("__inference_inner")
    assert [edit.changed for edit in inside.edits]
    before, after = body_of(with_function.graph_def), body_of(result.graph_def)
    added = {name for edit in inside.edits for name in edit.added}
    assert after.keys() - before.keys() == added
    assert "Recomputed/relu" in added
    grad = next(node for node in after.values() if node.op == "ReluGrad")
    assert "Recomputed/relu:activations:0" in grad.input
    assert list(result.graph_def.node) == list(with_function.graph_def.node)


def test_effects_in_a_body_are_known(with_function: GrapplerItem) -> None:
    report = MemoryOptimizer().optimize(None, with_function).report
    inside = report.passes[3]
    plain = report.to_json()["passes"][3]
    assert plain["function"] == inside.function != ""
    for edit, told in zip(inside.edits, plain["edits"], strict=True):
        expected = 4 * 4 * 4 * (len(edit.holds) - len(edit.releases))
        assert told["effect_bytes"] == report.effect_bytes(edit, inside.function) == expected


def test_bodies_equal_native(with_function: GrapplerItem) -> None:
    fetch = tuple(name.removesuffix(":0") for name in with_function.fetch)
    received = normalize_native(with_function.graph_def, fetch)
    native = optimize_native(with_function.graph_def, "RECOMPUTATION_HEURISTICS", fetch)

    ours = MemoryOptimizer().optimize(None, GrapplerItem(received, fetch=fetch))

    assert ours.report.modified
    assert differences(ours.graph_def, native) == []


def test_a_function_that_nobody_calls_is_left_alone(with_function: GrapplerItem) -> None:
    graph_def = type(with_function.graph_def)()
    graph_def.library.CopyFrom(with_function.graph_def.library)
    graph_def.node.add(name="alone", op="NoOp")
    result = optimize(graph_def)
    assert [report.function for report in result.report.graphs] == [""]
    assert {report.function for report in result.report.passes} == {""}
    assert serialized(result.graph_def) == serialized(graph_def)


def test_a_broken_body_is_refused_by_its_name(with_function: GrapplerItem) -> None:
    graph_def = type(with_function.graph_def)()
    graph_def.CopyFrom(with_function.graph_def)
    (function,) = (f for f in graph_def.library.function if "inner" in f.signature.name)
    next(node for node in function.node_def if node.op == "Relu").input[0] = "nowhere:x:0"
    with pytest.raises(InvalidGraphError, match=r"in function '.*inner.*': node .*'nowhere:x:0'"):
        optimize(graph_def)


def test_a_file_gives_what_its_message_gives(tmp_path: Path) -> None:
    path = tmp_path / "graph.pb"
    save(graph_def_of(STEP), str(path))
    message = read_graph(str(path)).message
    assert serialized(optimize(str(path)).graph_def) == serialized(optimize(message).graph_def)
    assert serialized(optimize(path).graph_def) == serialized(optimize(message).graph_def)
