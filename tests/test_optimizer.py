"""The optimizer: what it reports, that it repeats itself, and that what goes wrong is undone."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from support.bad_inputs import SHAPES_THAT_DO_NOT_FIT, graph_def_of
from support.native import differences, normalize_native, optimize_native

from memopt.errors import InvalidGraphError, OptionsError, PassError
from memopt.graph.rewriter import Touches
from memopt.io import read_graph, save
from memopt.item import GrapplerItem
from memopt.optimizer import MemoryOptimizer, optimize
from memopt.options import Level
from memopt.passes import Context, Pass, Recomputation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.graph.rewriter import Rewriter


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


def test_a_result_says_what_was_done() -> None:
    item = item_of(STEP, feed=("x:0", "w:0"), fetch=("gradients/relu",))
    result = MemoryOptimizer().optimize(None, item)

    report = result.report
    assert report.level is Level.RECOMPUTATION_HEURISTICS
    assert (report.nodes_before, report.nodes_after) == (7, 9)
    assert len(result.graph_def.node) == 9
    assert report.modified
    (done,) = report.passes
    assert (done.name, done.function, done.failure) == ("recomputation", "", "")
    assert done.declined == ()
    assert done.seconds > 0
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
    (edit,) = result.report.passes[0].edits
    assert result.report.effect_bytes(edit) == 0

    cheaper = STEP + (
        "narrow = Cast(x) {SrcT=float, DstT=half}\n"
        "wide = Cast(narrow) {SrcT=half, DstT=double}\n"
        "use = Tanh(wide) {T=double}\n"
        "gradients/early = Tanh(use) {T=double}\n"
        "gradients/wide = Mul(gradients/early, wide) {T=double}\n"
    )
    report = optimize(graph_def_of(cheaper)).report
    effects = {edit.releases: report.effect_bytes(edit) for edit in report.passes[0].edits}
    # Of `wide` and the `narrow` that it is made of nothing is kept, but `x` longer.
    assert effects == {
        ("relu:0",): 0,
        ("wide:0",): 8 * 4 * 4 - 8 * 4 * 8,
    }


def test_an_effect_of_an_unknown_size_is_not_known() -> None:
    result = optimize(graph_def_of(STEP.replace("[8,4]", "[?,4]")))
    (edit,) = result.report.passes[0].edits
    assert result.report.effect_bytes(edit) is None


def test_the_report_is_plain_data() -> None:
    report = optimize(graph_def_of(STEP)).report
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain == report.to_json()
    (done,) = plain.pop("passes")
    assert plain == {
        "level": "recomputation_heuristics",
        "nodes_before": 7,
        "nodes_after": 9,
        "unknown_sizes": [],
    }
    assert done.pop("seconds") > 0
    (edit,) = done.pop("edits")
    assert done == {"name": "recomputation", "function": "", "failure": "", "declined": []}
    assert edit.pop("reason")
    assert edit == {
        "effect_bytes": 0,
        "added": ["RecomputeTrigger/relu", "Recomputed/relu"],
        "removed": [],
        "changed": ["gradients/relu"],
        "releases": ["relu:0"],
        "holds": ["product:0"],
    }


def test_what_was_left_alone_is_in_the_report() -> None:
    text = (
        "n = Placeholder() {dtype=int32, shape=[1]}\n"
        "r = RandomUniform(n) {T=int32, _recompute_hint=0, dtype=float, seed=0, seed2=0}\n"
        "gradients/a = Tanh(r) {T=float}\n"
    )
    report = optimize(graph_def_of(text)).report
    assert not report.modified
    (declined,) = report.passes[0].declined
    assert declined.node == "r"
    assert report.to_json()["passes"][0]["declined"] == [{"node": "r", "reason": declined.reason}]


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
)
MODELS_HASHED = ("convnet_v1", "lstm", "mlp")

HASH_SCRIPT = """
import hashlib, json, sys
from memopt.optimizer import optimize
files, options = json.loads(sys.argv[1])
print(json.dumps([
    hashlib.sha256(
        optimize(file, **given).graph_def.SerializeToString(deterministic=True)
    ).hexdigest()
    for file in files for given in options
]))
"""


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
    assert hashes_there("1") == here
    assert hashes_there("4242") == here
    # Something was done, and something else with other options.
    assert len(set(here)) >= len(files) * (len(OPTIONS) - 1)


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
        ({"level": "heuristics"}, "there is no level 'heuristics'; the levels: no_mem_opt, "),
        ({"rule": "guess"}, "rule is one of"),
    ],
)
def test_options_that_are_not_valid_are_refused_at_once(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionsError, match=message):
        MemoryOptimizer(**options)  # type: ignore[arg-type] # none of these is a flag
    with pytest.raises(OptionsError, match=message):
        optimize("a file that is not even read", **options)  # type: ignore[arg-type]


def test_levels_say_which_passes_run() -> None:
    assert MemoryOptimizer("No_Mem_Opt").passes() == ()
    assert MemoryOptimizer("manual").passes() == (Recomputation(hints_only=True),)
    assert MemoryOptimizer().passes() == (Recomputation(),)
    assert MemoryOptimizer(target_scope="").passes() == (Recomputation(),)
    assert MemoryOptimizer(Level.MANUAL, "auto", "cost", all_ports=True).passes() == (
        Recomputation("auto", hints_only=True, rule="cost", all_ports=True),
    )


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
    monkeypatch.setattr(MemoryOptimizer, "passes", lambda _: (BadPass(how=how),))

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
    monkeypatch.setattr(MemoryOptimizer, "passes", lambda _: passes)

    result = MemoryOptimizer().optimize(None, item)

    assert serialized(result.graph_def) == serialized(alone.graph_def)
    first, bad, last = result.report.passes
    assert (first.failure, last.failure) == ("", "")
    assert last.edits == alone.report.passes[0].edits
    # Which passes ran before may be why it went wrong.
    assert bad.failure.startswith(f"bad{{how=a cycle}} after {twice}: 2 nodes form a cycle")


def test_sizes_that_cannot_be_had_undo_the_pass_that_asks_for_them() -> None:
    cheap = "\nr = Relu(x) {T=float}\ngradients/r = ReluGrad(r, r) {T=float}"
    graph_def = graph_def_of(SHAPES_THAT_DO_NOT_FIT + cheap)
    result = optimize(graph_def, rule="cost")
    assert serialized(result.graph_def) == serialized(graph_def)
    assert "Dimensions must be equal" in result.report.passes[0].failure


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

    main, inside = result.report.passes
    assert main.edits == ()
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
    inside = report.passes[1]
    plain = report.to_json()["passes"][1]
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
    assert [report.function for report in result.report.passes] == [""]
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
