"""Relaxed allocation on small graphs, each case a text before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.text_cases import TextCase, read_cases

from memopt.context import Context
from memopt.graph.rewriter import Rewriter, Touches
from memopt.graph.text import format_graph, parse_graph
from memopt.graph.verify import verify_graph
from memopt.passes.relax_allocator import (
    NEVER_FORWARDING,
    RelaxAllocator,
    never_forwards,
    split_device,
)
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from memopt.graph.graph import Graph

CASES = read_cases(Path(__file__).parent / "cases" / "relax_allocator.txt")
CONTEXT = Context(Properties.unknown())


def run(graph: Graph, spec: str = "relax-allocator") -> Rewriter:
    rewriter = Rewriter(graph)
    RelaxAllocator.parse(spec).run(rewriter, CONTEXT)
    return rewriter


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    graph = parse_graph(case.before)
    verify_graph(graph)
    rewriter = run(graph, case.spec)
    verify_graph(graph)
    assert format_graph(graph) == case.after
    declined = "\n".join(f"{one.node}: {one.reason}" for one in rewriter.declined)
    assert declined == case.declined


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_second_run_changes_nothing(case: TextCase) -> None:
    graph = parse_graph(case.after)
    assert not run(graph).modified
    assert format_graph(graph) == case.after


def test_one_edit_names_all_that_it_marks() -> None:
    case = next(case for case in CASES if "whatever stands between" in case.name)
    (edit,) = run(parse_graph(case.before)).edits
    assert edit.changed == ("first", "between", "last")
    assert edit.touches == {Touches.ATTRIBUTES} == RelaxAllocator.touches
    assert not edit.added
    assert not edit.removed
    assert not edit.releases
    assert not edit.holds


def test_the_list_is_that_of_grappler() -> None:
    assert len(NEVER_FORWARDING) == 104
    for op in ("MatMul", "UnsortedSegmentSum", "QuantizeV2", "QuantizedRelu", "Where"):
        assert never_forwards(op)
    for op in ("Add", "AddV2", "Identity", "Relu", "BatchMatMulV3", "FakeQuantWithMinMaxVars"):
        assert not never_forwards(op)


@pytest.mark.parametrize(
    ("name", "task", "device"),
    [
        ("", "", ""),
        ("/", "", ""),
        ("/device:CPU:0", "", "CPU:0"),
        ("/cpu:1", "", "CPU:1"),
        ("/GPU:2", "", "GPU:2"),
        ("/device:gpu:0", "", "gpu:0"),
        ("/device:XLA_GPU:0", "", "XLA_GPU:0"),
        ("/job:a/replica:0/task:1/device:CPU:0", "/job:a/replica:0/task:1", "CPU:0"),
        ("/job:a/replica:00/task:01/device:CPU:0", "/job:a/replica:0/task:1", "CPU:0"),
        ("/device:CPU:0/task:1/job:a", "/job:a/task:1", "CPU:0"),
        ("/job:a/task:*/device:CPU:0", "/job:a", "CPU:0"),
        ("/job:a/device:CPU:*", "", ""),
        ("/job:a/device:CPU", "", ""),
        ("/job:a/device:*:0", "", ""),
        ("/job:a/task:1", "", ""),
        ("/device:CPU:1/device:GPU", "", ""),
        ("GPU:0", "", ""),
        ("/job:a/gpu:0 ", "", ""),
        ("/job:a//gpu:0", "", ""),
    ],
)
def test_device_strings_are_split(name: str, task: str, device: str) -> None:
    assert split_device(name) == (task, device)


@pytest.mark.slow
@pytest.mark.parametrize("last_device", ["/device:GPU:1", "/device:CPU:0"])
@pytest.mark.parametrize("backward", [False, True])
def test_a_long_chain_of_assignments(last_device: str, backward: bool) -> None:
    """Were every assignment's fan-out walked anew, this would take 200 million steps."""
    count = 20_000
    rest = [f"a{number} = Assign(a{number - 1}, x) {{T=float}}" for number in range(1, count)]
    chain = ["a0 = Assign(v, x) {T=float}", *rest]
    lines = [
        "x = Placeholder() {dtype=float, shape=[]}",
        "v = VariableV2() {dtype=float, shape=[]}",
        *(reversed(chain) if backward else chain),
    ]
    text = "\n".join(f"{line} @/device:GPU:0" for line in lines)
    graph = parse_graph(f"{text}\nend = Exp(a{count - 1}) {{T=float}} @{last_device}\n")
    rewriter = run(graph)
    crosses = "CPU" in last_device
    assert [len(edit.changed) for edit in rewriter.edits] == ([] if crosses else [count])
    assert len(rewriter.declined) == (count if crosses else 0)
