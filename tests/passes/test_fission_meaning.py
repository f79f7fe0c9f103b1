"""Steps whose operations are split, run for real: the same bits, and less memory than the floor."""

from __future__ import annotations

import numpy as np
import pytest
from support.attention import attention_step
from support.one_pass import run_pass

import memopt
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.optimization.infeasible_budget import find_floor
from memopt.passes.fission import Fission
from memopt.runtime.entry import verify
from memopt.runtime.program import Program

EXACT_CHAIN = """
x = Placeholder() {dtype=float, shape=[12,64]}
m = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } } int_val: 1 int_val: 512 }>}
a = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 1 }>}
y = Tile(x, m) {T=float, Tmultiples=int32}
e = Relu(y) {T=float}
s = Max(e, a) {T=float, Tidx=int32}
n = Neg(s) {T=float}
"""  # noqa: E501 - constants


@pytest.mark.parametrize("most_parts", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_a_chain_of_exact_kernels_needs_a_part_of_its_memory(most_parts: int) -> None:
    item = GrapplerItem(to_graph_def(parse_graph(EXACT_CHAIN)), feed=("x:0",), fetch=("n:0",))
    done = run_pass(item, Fission(most_parts=most_parts))
    assert len(done.edits) == 1
    values = {"x:0": np.random.default_rng(0).standard_normal((12, 64)).astype(np.float32)}
    program = Program.from_item(item, values)
    for mode in ("exact", "as-is"):
        run = verify(program, done.graph_def, steps=2, timing_rounds=0, mode=mode)
        assert run.equal
        assert run.rewritten.step_peak_bytes < 0.4 * run.original.step_peak_bytes


@pytest.mark.slow
def test_attention_keeps_a_budget_far_below_its_floor_with_its_bits() -> None:
    step = attention_step(batch=16, length=128, width=64, heads=4)
    ordered = memopt.optimize(step.function, level="ordered").report.runtime
    assert ordered is not None
    floor_bytes = find_floor(ordered.after, None).size_bytes
    result = memopt.optimize(step.function, budget="35%")
    runtime = result.report.runtime
    assert runtime is not None
    assert runtime.after.peak_bytes < floor_bytes
    program = Program.from_concrete_function(step.function, step.inputs)
    run = verify(program, result.graph_def, steps=2, timing_rounds=0)
    assert run.equal
    assert run.rewritten.peak_bytes == pytest.approx(runtime.after.peak_bytes, rel=0.01)
    leaner = memopt.rewrite(step.function, budget="35%")
    as_is = memopt.verify(step.function, leaner, inputs=step.inputs, mode="as-is", timing_rounds=0)
    assert as_is.equal
    assert as_is.rewritten.step_peak_bytes < 0.4 * as_is.original.step_peak_bytes
