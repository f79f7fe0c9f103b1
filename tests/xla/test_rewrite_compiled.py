"""Functions that XLA compiles, within budgets: what the compiler says, and what real runs need."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from support.recurrent import recurrent_step

import memopt
from memopt.context import Context
from memopt.errors import BudgetError, InvalidGraphError, OptionsError
from memopt.files.kept_files import KeptFiles
from memopt.graph.copy_names import COPY_PREFIX
from memopt.graph.graphdef import from_graph_def, to_graph_def
from memopt.item import COMPILED, GrapplerItem
from memopt.models import MODELS, TINY
from memopt.optimization.pipeline import Pipeline
from memopt.options import Budget
from memopt.passes import CompiledRematerialization
from memopt.runtime.function import build_function
from memopt.runtime.program import Program
from memopt.shapes.properties import Properties
from memopt.xla.compiler import compiler_process
from memopt.xla.entry import (
    CompiledOptions,
    compiled_memory,
    find_form,
    find_others,
    rewrite_compiled,
)
from memopt.xla.records import decoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.xla.search import Form, Search

LAYERS, WIDTH, BATCH = 8, 32, 512


def make_step(activation: Callable[[Any], Any], *, known: bool = True) -> ConcreteFunction:
    """A training step of dense layers, compiled by XLA; its variables live as long as it."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 4)
        for _ in range(LAYERS)
    ]

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(samples: Any) -> Any:
        with tf.GradientTape() as tape:
            value = samples
            for weight in weights:
                value = activation(value @ weight)
            loss = tf.reduce_mean(value * value)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    spec = tf.TensorSpec((BATCH if known else None, WIDTH))
    function = step.get_concrete_function(spec)
    function.kept_alive = weights
    return function


def make_residual_step() -> ConcreteFunction:
    """A training step of convolutions that are normalized, with sums around every two."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    filters = [
        tf.Variable(random.standard_normal((3, 3, 8 if number else 3, 8), dtype=np.float32) / 8)
        for number in range(9)
    ]

    def normalized(value: Any, weight: Any) -> Any:
        made = tf.nn.conv2d(value, weight, 1, "SAME")
        mean, variance = tf.nn.moments(made, [0, 1, 2])
        inverse = tf.math.rsqrt(variance + 1e-3) * 1.1
        return made * inverse + (0.1 - mean * inverse)

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(images: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.nn.relu(normalized(images, filters[0]))
            for first, second in zip(filters[1::2], filters[2::2], strict=True):
                inner = tf.nn.relu(normalized(value, first))
                value = tf.nn.relu(value + normalized(inner, second))
            loss = tf.reduce_mean(value * value)
        for weight, gradient in zip(filters, tape.gradient(loss, filters), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    function = step.get_concrete_function(tf.TensorSpec((8, 32, 32, 3)))
    function.kept_alive = filters
    return function


@pytest.fixture(scope="module")
def relu_step() -> ConcreteFunction:
    import tensorflow as tf

    return make_step(tf.nn.relu)


@pytest.fixture(scope="module")
def half_step(relu_step: ConcreteFunction) -> ConcreteFunction:
    return memopt.rewrite(relu_step, budget="50%")


@pytest.mark.slow
def test_without_a_budget_results_are_kept_instead_of_fused_again(
    relu_step: ConcreteFunction,
) -> None:
    done = rewrite_compiled(relu_step, CompiledOptions())
    assert done.equal
    edits = [edit for report in done.reports for edit in report.edits]
    assert edits
    assert not any("Recomputed" in name for edit in edits for name in edit.added)
    assert done.memory.step_peak_bytes < 0.65 * done.original.step_peak_bytes
    assert done.memory == memopt.compiled_memory(done.function)


def test_a_budget_is_kept_for_real(
    relu_step: ConcreteFunction, half_step: ConcreteFunction
) -> None:
    _check_for_real(relu_step, half_step, 0.5)


@pytest.mark.slow
def test_a_budget_of_convolutions_around_which_sums_lead_is_kept_for_real() -> None:
    """Results of convolutions are all that is held of them, and are computed again."""
    step = make_residual_step()
    done = rewrite_compiled(step, CompiledOptions(budget=Budget.parse("55%")))
    edits = [edit for report in done.reports for edit in report.edits]
    again = [name for edit in edits for name in edit.added if name.startswith(COPY_PREFIX)]
    assert any(name.startswith(f"{COPY_PREFIX}Conv2D") for name in again)
    _check_for_real(step, done.function, 0.55)


@pytest.mark.exhaustive
def test_a_lower_budget_is_kept_for_real(relu_step: ConcreteFunction) -> None:
    _check_for_real(relu_step, memopt.rewrite(relu_step, budget="35%"), 0.35)


def _check_for_real(step: ConcreteFunction, rewritten: ConcreteFunction, share: float) -> None:
    said = memopt.compiled_memory(rewritten)
    result = memopt.verify(step, rewritten, steps=2, timing_rounds=0)
    assert result.equal
    assert result.mode == "as-is"
    assert result.rewritten.step_peak_bytes <= share * result.original.step_peak_bytes
    # Not a byte but for what TensorFlow itself allocates beside the step.
    assert result.rewritten.step_peak_bytes == pytest.approx(said.step_peak_bytes, abs=2048)
    assert said.live[0].operation


def test_calls_and_variables_stay(relu_step: ConcreteFunction, half_step: ConcreteFunction) -> None:
    before = [weight.numpy() for weight in relu_step.kept_alive]
    half_step(np.ones((BATCH, WIDTH), np.float32))
    changed = [weight.numpy() for weight in relu_step.kept_alive]
    assert any((old != new).any() for old, new in zip(before, changed, strict=True))


@pytest.mark.slow
def test_other_last_bits_are_refused_unless_accepted(
    relu_step: ConcreteFunction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memopt.xla.entry.Equality.holds_for", lambda *_: False)
    with pytest.raises(BudgetError, match="same_bits=False"):
        memopt.rewrite(relu_step, budget="50%")
    assert memopt.rewrite(relu_step, budget="50%", same_bits=False) is not relu_step


@pytest.mark.exhaustive
def test_a_transformer_keeps_its_last_bits_only_in_kernels_like_its_own() -> None:
    """Normalized and multiplied, results are rounded once or twice as kernels are put together."""
    model = MODELS["bert"](**TINY["bert"])
    plain = model.function
    step = build_function(plain.graph.as_graph_def(), plain, None, {COMPILED: True})
    budget = memopt.Budget.parse("80%")
    accepted = rewrite_compiled(step, CompiledOptions(budget, same_bits=False))
    assert accepted.memory.step_peak_bytes <= accepted.limit_bytes
    alike = rewrite_compiled(step, CompiledOptions(budget))
    assert alike.equal
    assert alike.memory.step_peak_bytes <= alike.limit_bytes
    if accepted.equal:
        pytest.skip("this machine's kernels round alike")


@pytest.mark.slow
def test_a_budget_out_of_reach_is_an_error_that_says_what_is_in_use(
    relu_step: ConcreteFunction,
) -> None:
    with pytest.raises(BudgetError, match=r"compiling \d+ forms.*the largest results in use") as e:
        memopt.rewrite(relu_step, budget="1%")
    assert e.value.lowest_bytes > e.value.budget_bytes


@pytest.mark.parametrize(
    ("lowest", "alike", "taken_bytes"),
    [
        ((960, 1.0), (1000, 1.0), 1000),
        ((940, 1.0), (1000, 1.0), 940),
        # One with bits more likely the same, unless it needs more than a twentieth more.
        ((600, 1.2), (630, 1.2), 630),
        ((600, 1.2), (640, 1.2), 600),
        # Not one that takes more than a third longer than another.
        ((600, 1.6), (640, 1.1), 640),
        ((600, 1.6), (640, 1.2), 600),
        ((600, 1.6), (1000, 1.0), 600),
    ],
)
def test_what_comes_nearest_has_to_be_worth_its_time(
    lowest: tuple[int, float], alike: tuple[int, float], taken_bytes: int
) -> None:
    """On a step whose lowest form saves little, which no real search can be held to."""
    forms = [
        SimpleNamespace(
            step_bytes=step_bytes,
            time=time,
            alike=(step_bytes, time) != lowest,
            compiled=SimpleNamespace(memory=SimpleNamespace(argument_bytes=10, live=())),
        )
        for step_bytes, time in ((1000, 1.0), lowest, alike)
    ]
    search = cast(
        "Search",
        SimpleNamespace(original=forms[0], lowest=forms[1], within=lambda _: None, forms=forms),
    )
    budget = memopt.Budget.parse("10%")
    _, form = find_form(search, CompiledOptions(budget, nearest=True))
    assert form.step_bytes == taken_bytes
    with pytest.raises(BudgetError):
        find_form(search, CompiledOptions(budget))


def test_where_bits_differ_what_keeps_nothing_is_compared_last() -> None:
    known = {"time": 1.0, "keeps": False, "alike": True}
    original = SimpleNamespace(**known | {"step_bytes": 1000})
    apart = SimpleNamespace(**known | {"step_bytes": 400, "alike": False})
    kept = SimpleNamespace(**known | {"step_bytes": 450, "keeps": True})
    plain = SimpleNamespace(**known | {"step_bytes": 600})
    forms = cast("list[Form]", [original, plain, kept, apart])
    assert find_others(forms, forms[3], 0) == [kept, plain]
    assert find_others(forms, forms[2], 0) == [plain]
    assert find_others(forms, forms[1], 0) == [kept]
    assert find_others(forms, forms[3], 700) == [plain]
    assert find_others(forms, forms[3], 500) == [kept, plain]
    assert find_others(forms[:1], forms[3], 0) == []


def test_what_does_not_act_on_it_is_an_error(relu_step: ConcreteFunction) -> None:
    with pytest.raises(OptionsError, match=r"memopt\.rewrite\(function, budget"):
        memopt.optimize(relu_step, budget="50%")
    with pytest.raises(OptionsError, match="compiled_memory"):
        memopt.analyze(relu_step)
    with pytest.raises(OptionsError, match="level heuristics has no effect"):
        memopt.rewrite(relu_step, level="heuristics")
    with pytest.raises(OptionsError, match="rule: no effect"):
        memopt.rewrite(relu_step, rule="cost")
    with pytest.raises(OptionsError, match="no graph can be given"):
        memopt.rewrite(relu_step, graph_def=relu_step.graph.as_graph_def())
    assert memopt.rewrite(relu_step, level="no_mem_opt") is relu_step


def test_shapes_have_to_be_known() -> None:
    import tensorflow as tf

    with pytest.raises(InvalidGraphError, match="shape of samples:0 is"):
        memopt.rewrite(make_step(tf.nn.relu, known=False), budget="50%")


@pytest.mark.slow
def test_shapes_that_are_open_are_those_of_arguments_that_are_given(
    relu_step: ConcreteFunction,
) -> None:
    import tensorflow as tf

    step = make_step(tf.nn.relu, known=False)
    samples = np.random.default_rng(1).standard_normal((BATCH, WIDTH), dtype=np.float32)
    assert compiled_memory(step, inputs=[samples]) == compiled_memory(relu_step)
    done = rewrite_compiled(step, CompiledOptions(budget=Budget.parse("50%")), [samples])
    assert done.equal
    assert done.memory.step_peak_bytes <= done.limit_bytes < done.original.step_peak_bytes
    for count in (BATCH, 7):
        batch = tf.constant(samples[:count])
        restored = [weight.numpy() for weight in step.kept_alive]
        expected = step(batch).numpy()
        for weight, value in zip(step.kept_alive, restored, strict=True):
            weight.assign(value)
        assert done.function(batch).numpy() == expected


@pytest.mark.slow
def test_what_was_compiled_and_compared_before_is_not_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    def rewrite() -> bytes:
        options = CompiledOptions(budget=Budget.parse("50%"), remembers=True)
        done = rewrite_compiled(make_step(tf.nn.relu), options)
        assert done.equal
        graph_def = done.function.graph.as_graph_def()
        return bytes(graph_def.SerializeToString(deterministic=True))

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("it was asked again")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = rewrite()
    with monkeypatch.context() as patch:
        patch.setattr("memopt.xla.records.compiler_process", fail)
        patch.setattr("memopt.xla.equality.verify_against", fail)
        assert rewrite() == first
        # With other flags XLA says other things.
        patch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX")
        with pytest.raises(AssertionError, match="asked again"):
            rewrite()


def test_what_is_damaged_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorflow.core.framework.graph_pb2 import GraphDef

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = KeptFiles("xla", most_bytes=200)
    memory = (
        b'{"memory": {"temporary_bytes": 3, "output_bytes": 2, "argument_bytes": 1, "live": [], '
        b'"stored": [], "library_sums": []}'
    )
    for data, is_known in ((memory + b', "seconds": 1}', True), (memory, False), (b"[]", False)):
        kept.keep("form", data)
        assert (decoded(kept.find("form"), GraphDef()) is not None) == is_known
    kept.keep("form", b"?" * 201)
    assert kept.find("form") is None


@pytest.mark.slow
def test_barriers_are_gone_before_equal_operations_are_merged(relu_step: ConcreteFunction) -> None:
    """So on a CPU copies have to wait for data. JAX's own way is for other compilers."""
    program = Program.from_concrete_function(relu_step)
    limit = memopt.compiled_memory(relu_step).step_peak_bytes // 3
    with compiler_process(program) as compiler:
        needed = {}
        for triggers in ("data", "barriers"):
            options = CompiledRematerialization(triggers=triggers, keep="none", step_limit=limit)
            graph = from_graph_def(program.item.graph_def)
            context = Context.of_item(program.item, Properties.of(program.item))
            (report,) = Pipeline((options,), ()).run("", graph, context, math.inf).passes
            assert report.edits
            assert not report.failure
            needed[triggers] = compiler.compile(to_graph_def(graph)).memory.step_peak_bytes
        unchanged = compiler.compile(program.item.graph_def).memory.step_peak_bytes
    assert needed["data"] < 0.8 * unchanged
    assert needed["barriers"] > 0.95 * unchanged


def test_what_a_graph_has_compiled_stays_as_it_is(relu_step: ConcreteFunction) -> None:
    """Passes do not act inside of it; what is around it is rewritten."""
    import tensorflow as tf

    outer = tf.function(lambda samples: relu_step(samples) * 2.0)
    function = outer.get_concrete_function(tf.TensorSpec((BATCH, WIDTH)))
    before = GrapplerItem.from_concrete_function(function).graph_def
    result = memopt.optimize(function, level="ordered")
    assert [graph.function for graph in result.report.graphs] == [""]
    bodies = {each.signature.name: each for each in result.graph_def.library.function}
    assert bodies == {each.signature.name: each for each in before.library.function}


@pytest.mark.slow
def test_functions_inside_are_seen_through() -> None:
    """A model that is a function of its own, differentiated: two calls, until they are inlined."""
    import tensorflow as tf

    random = np.random.default_rng(0)
    weights = [
        tf.Variable(random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / 4)
        for _ in range(LAYERS)
    ]

    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def model(value: Any) -> Any:
        for weight in weights:
            value = tf.nn.relu(value @ weight)
        return value

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator] # TensorFlow has no types
    def step(samples: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(samples) ** 2)
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * gradient)
        return loss

    function = step.get_concrete_function(tf.TensorSpec((BATCH, WIDTH)))
    assert any(node.op.endswith("PartitionedCall") for node in function.graph.as_graph_def().node)
    done = rewrite_compiled(function, CompiledOptions())
    assert done.equal
    assert done.memory.step_peak_bytes < 0.65 * done.original.step_peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize("budget", [None, "25%"])
def test_loops_keep_no_copies_and_run_turns_again(budget: str | None) -> None:
    """XLA's lists hold copies of all that turns read; without, and in segments, bits stay."""
    step = recurrent_step(48, is_compiled=True, width=64)
    done = rewrite_compiled(
        step.function, CompiledOptions(Budget.parse(budget) if budget else None)
    )
    assert done.equal
    assert done.memory.step_peak_bytes < (0.25 if budget else 0.4) * done.original.step_peak_bytes
    edited = [report.name for report in done.reports if report.edits]
    assert "lean-loops" in edited
    assert any(name.startswith("checkpoint-loops") for name in edited) == bool(budget)
