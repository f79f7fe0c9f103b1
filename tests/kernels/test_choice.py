"""Predictions with measured kernels, as users ask for them: exact where rules know nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf
from support.commands import assert_one_line, run

import memopt
from memopt.errors import FileError, OptionsError
from memopt.kernels.table import KernelTable, MeasuredKernel

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

ROWS = tf.TensorSpec((8, 16, 32), tf.float32)


@tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
def _compiled(rows: tf.Tensor) -> tf.Tensor:
    return tf.nn.convolution(tf.exp(rows), tf.ones((3, 2, 32)), padding="SAME")


@pytest.fixture(scope="module")
def step() -> ConcreteFunction:
    def compute(rows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(rows)
            loss = tf.reduce_sum(_compiled(tf.tanh(rows)) ** 2)
        return tape.gradient(loss, rows)

    return tf.function(compute, autograph=False).get_concrete_function(ROWS)


@pytest.fixture(scope="module")
def table(step: ConcreteFunction, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("kernels") / "kernels.json"
    profile = memopt.profile_kernels(step, path=path)
    assert 0 < profile.new == profile.kernels
    assert not profile.failed
    assert profile.path == str(path)
    compiled = [each for each in profile.differences if each.kernel.startswith("Part")]
    assert len(compiled) == 2
    assert max(each.measured_scratch_bytes for each in compiled) > 10_000
    return str(path)


def test_what_is_measured_is_not_measured_again(step: ConcreteFunction, table: str) -> None:
    assert memopt.profile_kernels(step, path=table).new == 0


def test_predictions_are_those_of_real_steps(step: ConcreteFunction, table: str) -> None:
    real = memopt.verify(step, step, timing_rounds=0).original
    ruled = memopt.optimize(step, level="ordered").report
    measured = memopt.optimize(step, level="ordered", kernels=table).report
    assert ruled.runtime is not None
    assert measured.runtime is not None
    assert measured.runtime.before.peak_bytes == real.peak_bytes
    assert ruled.runtime.before.peak_bytes != real.peak_bytes
    assert [each.op for each in ruled.unknown_kernels] == ["PartitionedCall"]
    assert not measured.unknown_kernels
    assert json.loads(json.dumps(ruled.to_json()))["unknown_kernels"][0]["nodes"] == 2


def test_a_table_that_does_not_fit_is_not_believed(
    step: ConcreteFunction, table: str, tmp_path: Path
) -> None:
    """Placements of outputs and inputs that a kernel does not have."""
    loaded = KernelTable.load(table)
    ((environment, kernels),) = loaded.kernels.items()
    strange = {
        key: MeasuredKernel.from_json({**kernel.to_json(), "outputs": [[9, []]] * 3})
        for key, kernel in kernels.items()
    }
    path = tmp_path / "strange.json"
    KernelTable({environment: strange}).save(str(path))
    ruled = memopt.optimize(step, level="ordered").report
    found = memopt.optimize(step, level="ordered", kernels=path).report
    assert found.runtime is not None
    assert ruled.runtime is not None
    assert found.runtime.before.peak_bytes == ruled.runtime.before.peak_bytes


def test_measured_times_are_costs(step: ConcreteFunction, table: str) -> None:
    from memopt.cluster import ANY_CPU
    from memopt.costs.choice import choose_costs
    from memopt.graph.graphdef import from_graph_def
    from memopt.item import GrapplerItem
    from memopt.kernels.choice import choose_kernels, choose_times
    from memopt.kernels.measured import MeasuredCosts
    from memopt.shapes.properties import Properties

    item = GrapplerItem.from_concrete_function(step)
    measured = choose_kernels(table, item, memopt_runtime())
    costs = choose_times("grappler", measured, item)
    assert isinstance(costs, MeasuredCosts)
    graph, properties = from_graph_def(item.graph_def), Properties.of(item)
    times = {kernel.kernel: kernel.time_ns for kernel in table_kernels(table)}
    (tanh,) = [node for node in graph if node.op == "Tanh"]
    found = costs.cost(tanh, ANY_CPU, properties)
    assert found.execution_ns == times["Tanh(float[8,16,32]) T=float on CPU"] > 0
    (const, *_) = [node for node in graph if node.op == "Const"]
    assert costs.cost(const, ANY_CPU, properties) == choose_costs("grappler", item).cost(
        const, ANY_CPU, properties
    )
    # Who has a profile of the whole step has better times.
    assert choose_times("profile.pb", measured, item) == "profile.pb"
    assert choose_times("grappler", None, item) == "grappler"


def memopt_runtime() -> Any:
    from memopt.buffers.kernel_call import Runtime

    return Runtime()


def table_kernels(path: str) -> list[MeasuredKernel]:
    ((_, kernels),) = KernelTable.load(path).kernels.items()
    return list(kernels.values())


def test_measured_means_the_cache_folder(
    step: ConcreteFunction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = memopt.optimize(step, level="ordered", kernels="measured").report
    assert not found.unknown_kernels
    assert KernelTable.load(str(tmp_path / "memopt" / "kernels.json")).kernels


@pytest.mark.parametrize("choice", ["mesured", "nowhere/kernels.json", 3])
def test_a_choice_that_is_none_is_one_clear_error(choice: Any, step: ConcreteFunction) -> None:
    with pytest.raises(OptionsError, match="kernels is 'rules', 'measured' or a file"):
        memopt.optimize(step, level="ordered", kernels=choice)
    with pytest.raises(OptionsError, match="kernels is 'rules', 'measured' or a file"):
        memopt.Policy(kernels=choice)


def test_a_file_of_something_else_is_one_clear_error(
    step: ConcreteFunction, tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(FileError, match="is no table of measured kernels"):
        memopt.optimize(step, level="ordered", kernels=path)


def test_the_command_line_measures_uses_and_compares(
    step: ConcreteFunction, table: str, tmp_path: Path
) -> None:
    graph, out = tmp_path / "step.pb", tmp_path / "out.pb"
    memopt.save(step, graph)
    ended = run("profile-kernels", graph, "-o", table)
    assert (ended.status, ended.errors) == (0, "")
    assert "0 measured now (TensorFlow " in ended.output
    assert "not as the rules say: PartitionedCall(" in ended.output
    plain = json.loads(run("profile-kernels", graph, "-o", table, "--json").output)
    assert plain["new"] == 0
    assert plain["differences"][0]["measured_scratch_bytes"] > 10_000
    ended = run("optimize", graph, "-o", out, "--level", "ordered")
    assert "may need memory that no rule knows" in ended.output
    ended = run("optimize", graph, "-o", out, "--level", "ordered", "--kernels", table)
    assert (ended.status, ended.errors) == (0, "")
    assert "no rule knows" not in ended.output
    ended = run("verify", graph, out, "--kernels", table, "--rounds", "0", "--steps", "1")
    assert ended.status == 0
    assert "equal: every output" in ended.output
    assert "not as the rules say: PartitionedCall(" in ended.output
    ended = run("optimize", graph, "-o", out, "--level", "ordered", "--kernels", graph)
    assert_one_line(ended, "step.pb: is no table of measured kernels")
