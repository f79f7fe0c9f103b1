"""The parts of memopt inside TensorFlow that can be looked at without it."""

from __future__ import annotations

import ctypes
import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.child import needs_compiler

from memopt.errors import MemoptError, OptionsError, PluginError
from memopt.flags import Flags
from memopt.plugin import bridge, marks, shim
from memopt.plugin.deadline import deadline
from memopt.plugin.policy import Policy
from memopt.plugin.records import GraphRecord, Records, fingerprint
from memopt.plugin.run import summary
from memopt.plugin.scopes import asked_for
from memopt.plugin.screening import why_not
from memopt.plugin.xla import plain_name
from memopt.shapes.function_calls import compiled_functions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from memopt.item import GrapplerItem

RECORD = GraphRecord("0" * 16, "function", "passed over", "small")


def graph_def(*ops: str) -> Any:
    from tensorflow.core.framework import graph_pb2

    made = graph_pb2.GraphDef()
    for number, op in enumerate(ops):
        made.node.add(name=f"n{number}", op=op)
    return made


@pytest.mark.parametrize(
    "options",
    [
        {"level": "most"},
        {"only": "some"},
        {"min_nodes": -1},
        {"deadline_ms": 0},
        {"budget": "all of it"},
        {"budget": "50%", "level": "heuristics"},
        {"pass_options": ("swapping{improved=true}",)},
        {"algorithm": "luck"},
    ],
)
def test_a_policy_is_checked_when_it_is_made(options: dict[str, Any]) -> None:
    with pytest.raises(OptionsError):
        Policy(**options)


def test_a_policy_from_flags() -> None:
    flags = Flags.parse("--budget=60% --min_nodes=5 --only=all --report_dir=x --deadline_ms=9")
    expected = Policy(budget="60%", min_nodes=5, only="all", report_dir="x", deadline_ms=9)
    assert Policy.from_flags(flags) == expected
    assert Policy.from_flags(Flags()) == Policy()


def test_a_flag_without_effect_is_refused() -> None:
    with pytest.raises(OptionsError, match="--dump_dot has no effect"):
        Policy.from_flags(Flags(dump_dot="x"))


def test_an_option_that_there_is_not_is_named() -> None:
    with pytest.raises(OptionsError, match="there is no option 'levle'"):
        Policy().with_options({"levle": "ordered"})


@pytest.mark.parametrize(
    ("ops", "reason"),
    [
        (["NoOp"] * 3, "has 3 nodes, fewer than 4"),
        (["NoOp", "ReluGrad", "MapDataset", "NoOp"], "describes a data set"),
        (["NoOp", "MatMul", "Relu", "NoOp"], "computes no gradients"),
        (["NoOp", "VarHandleOp", "NoOp", "NoOp"], "computes no gradients"),
        (["NoOp", "MatMul", "ReluGrad", "NoOp"], ""),
        (["NoOp", "MatMul", "Conv2DBackpropInput", "NoOp"], ""),
        (["NoOp", "MatMul", "FusedBatchNormGradV3", "NoOp"], ""),
    ],
)
def test_which_graphs_are_passed_over(ops: list[str], reason: str) -> None:
    assert why_not(graph_def(*ops), Policy(min_nodes=4)) == reason


def test_all_graphs_may_be_asked_for() -> None:
    assert why_not(graph_def("NoOp", "Relu"), Policy(min_nodes=0, only="all")) == ""


def test_names_and_ops_of_gradients_do_not_matter_where_the_structure_shows_them(
    tiny_item: Callable[[str], GrapplerItem],
) -> None:
    """A step whose gradient ops go by other names is a step all the same."""
    made = graph_def()
    made.CopyFrom(tiny_item("mlp").graph_def)
    plain = {node.name: f"n{number}" for number, node in enumerate(made.node)}
    for node in made.node:
        node.name = plain[node.name]
        node.input[:] = [_renamed(name, plain) for name in node.input]
    assert why_not(made, Policy()) == ""


def _renamed(name: str, names: dict[str, str]) -> str:
    control, bare = ("^", name[1:]) if name.startswith("^") else ("", name)
    node, colon, port = bare.partition(":")
    return f"{control}{names[node]}{colon}{port}"


def test_what_xla_compiles_has_a_name() -> None:
    made = graph_def("StatefulPartitionedCall", "PartitionedCall")
    made.node[0].attr["_XlaMustCompile"].b = True
    made.node[0].attr["f"].func.name = "__inference_one_step_on_data_1234"
    (name,) = compiled_functions(made)
    assert plain_name(name) == "one_step_on_data"


@pytest.mark.parametrize(
    ("traced", "name"),
    [
        ("step", "step"),
        ("step_2", "step"),
        ("__inference_step_2_1234", "step_2"),
        ("__forward__conv_xla_13", "conv_xla"),
        ("__inference___backward__conv_xla_13677_13690", "conv_xla"),
        ("__backward_step_12_13", "step"),
        ("__inference_backward_5", "backward"),
        ("__inference_", "__inference_"),
    ],
)
def test_functions_are_named_as_their_authors_do(traced: str, name: str) -> None:
    assert plain_name(traced) == name


def test_marks() -> None:
    made = graph_def("NoOp", "NoOp")
    marks.mark_seen(made, ["n0"], "CPU")
    assert marks.was_seen(made, "CPU")
    assert not marks.was_seen(made, "GPU")
    marks.mark_seen(made, ["n0"], "GPU")
    assert marks.was_seen(made, "CPU")
    assert marks.was_seen(made, "GPU")
    assert not marks.is_done(made)
    marks.mark_done(made, ["n1"])
    assert marks.is_done(made)
    assert marks.mark_added(made, {"n0"}) == 1
    assert made.node[1].attr[marks.ADDED].s == b"n1"
    assert marks.ADDED not in made.node[0].attr


def test_what_a_function_asks_for() -> None:
    made = graph_def("NoOp", "NoOp")
    policy = Policy()
    assert asked_for(made, policy) is policy
    made.node[1].attr[marks.SCOPE].s = json.dumps({"budget": "10%"}).encode()
    assert asked_for(made, policy) == replace(policy, budget="10%")
    made.node[1].attr[marks.SCOPE].s = b'{"enabled": false}'
    assert asked_for(made, policy) is None
    for nonsense in (b"[1]", b"\xff", b'{"levle": 1}'):
        made.node[1].attr[marks.SCOPE].s = nonsense
        with pytest.raises(OptionsError):
            asked_for(made, policy)


def test_a_fingerprint_does_not_depend_on_the_order_of_nodes() -> None:
    one, other = graph_def("A", "B"), graph_def("A", "B")
    other.node.reverse()
    assert fingerprint(one) == fingerprint(other) != fingerprint(graph_def("A", "C"))


def test_a_graph_that_is_passed_over_twice_is_recorded_once() -> None:
    records = Records()
    for record in (RECORD, RECORD, replace(RECORD, reason="no gradients")):
        records.add(record)
    assert [record.reason for record in records.last()] == ["small", "no gradients"]


def test_the_summary_counts() -> None:
    done = replace(RECORD, outcome="rewritten", nodes=7, level="ordered", reason="ordering")
    failed = replace(RECORD, outcome="failed", error="KeyError: 'x'")
    lines = summary([RECORD, replace(done, peak_before_bytes=2 << 20), failed])
    assert (
        lines[0] == "1 graphs rewritten, 0 graphs unchanged, 1 graphs passed over, 1 graphs failed"
    )
    assert "predicted peak 2.0 MiB" in lines[1]
    assert "KeyError" in lines[2]


def test_a_deadline_ends_work_and_nothing_later() -> None:
    with pytest.raises(MemoptError, match="deadline of 50 ms"), deadline(50):
        _wait_for_ever()
    with deadline(50):
        pass
    time.sleep(0.1)


def _wait_for_ever() -> None:
    while True:
        pass


@needs_compiler
def test_the_shim_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    path = shim.compile_shim("CPU")
    assert path.parent == tmp_path / "memopt"
    assert hasattr(ctypes.CDLL(str(path)), "TF_InitGraph")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert shim.compile_shim("CPU") == path
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(PluginError, match="no C compiler"):
        shim.compile_shim("GPU")


@needs_compiler
def test_another_plugin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim itself is such a plugin, where TensorFlow would find it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "tensorflow-plugins"
    folder.mkdir()
    (folder / "broken.so").write_bytes(b"no library")
    shutil.copy(shim.compile_shim("CPU"), folder / "other.so")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match=r"other\.so: this plugin"):
        bridge.register(("NPU",))
