"""`memopt profile` and `memopt.profile`: measured in a fresh process, merged, written, read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run
from support.steps import tiny_step

import memopt
from memopt.cluster import Device
from memopt.costs.choice import choose_costs
from memopt.costs.kernel_costs import KernelCosts
from memopt.errors import OptionsError
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.report.profiles import profile_table
from memopt.runtime.profile import merge_profiles
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from pathlib import Path

    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.runtime.profile import Profile

CPU = Device.parse("CPU:0=CPU")


@pytest.fixture(scope="module")
def item() -> GrapplerItem:
    return GrapplerItem.from_concrete_function(tiny_step("mlp").function)


@pytest.fixture(scope="module")
def found(item: GrapplerItem) -> Profile:
    return memopt.profile(item, steps=3)


def message(*entries: tuple[str, int]) -> RunMetadata:
    from tensorflow.core.protobuf import config_pb2

    made: RunMetadata = config_pb2.RunMetadata()
    device = made.step_stats.dev_stats.add(device="/job:localhost/replica:0/task:0/device:CPU:0")
    for name, time_ns in entries:
        entry = device.node_stats.add(node_name=name, timeline_label=f"{name} = Op()")
        entry.op_start_rel_nanos, entry.op_end_rel_nanos = 5, 5 + time_ns
    return made


def test_every_entry_has_the_median_of_its_times() -> None:
    """Turn by turn in a loop; what is only in other steps than the first is not known."""
    steps = [
        message(("a", 10), ("loop", 100), ("loop", 900)),
        message(("loop", 300), ("loop", 800), ("a", 1000)),
        message(("a", 20), ("loop", 200), ("loop", 850), ("late", 7)),
    ]
    (device,) = merge_profiles(steps).step_stats.dev_stats
    times = [(entry.node_name, entry.op_end_rel_nanos) for entry in device.node_stats]
    assert times == [("a", 20), ("loop", 200), ("loop", 850)]


def test_nodes_that_run_are_timed(item: GrapplerItem, found: Profile) -> None:
    graph = from_graph_def(item.graph_def)
    dense = [node.name for node in graph if node.op == "MatMul"]
    assert dense
    assert all(found.times_ns[name] > 0 for name in dense)
    assert found.step_ns == sum(each.time_ns for each in found.ops)
    assert [each.time_ns for each in found.ops] == sorted(
        (each.time_ns for each in found.ops), reverse=True
    )
    assert {each.op: each.operations for each in found.ops}["MatMul"] == len(dense)


@pytest.mark.parametrize("name", ["profile.pb", "profile.json"])
def test_what_is_written_is_read_by_costs(
    name: str, tmp_path: Path, item: GrapplerItem, found: Profile
) -> None:
    path = tmp_path / name
    found.save(path)
    costs = choose_costs(str(path), item)
    graph, properties = from_graph_def(item.graph_def), Properties.of(item)
    for node, time_ns in found.times_ns.items():
        assert costs.cost(graph[node], CPU, properties).execution_ns == time_ns


def test_what_did_not_run_is_estimated(tmp_path: Path, item: GrapplerItem, found: Profile) -> None:
    """By another op's name here, of which the profile knows nothing."""
    found.save(tmp_path / "profile.pb")
    costs = choose_costs(str(tmp_path / "profile.pb"), item)
    other = GrapplerItem.from_concrete_function(tiny_step("unet").function)
    graph, properties = from_graph_def(other.graph_def), Properties.of(other)
    convolution = next(node for node in graph if node.op == "Conv2D")
    expected = KernelCosts().cost(convolution, CPU, properties)
    assert costs.cost(convolution, CPU, properties) == expected


def test_the_command_writes_a_profile_that_optimize_takes(
    tmp_path: Path, item: GrapplerItem
) -> None:
    step, profile = tmp_path / "step.pb", tmp_path / "profile.pb"
    memopt.save(item, str(step))
    ended = run("profile", step, "-o", profile, "--steps", "2", "--json")
    assert (ended.status, ended.errors) == (0, "")
    plain = json.loads(ended.output)
    assert plain["steps"] == 2
    assert plain["step_ns"] == sum(each["time_ns"] for each in plain["ops"])
    ended = run(
        *("optimize", step, "-o", tmp_path / "out.pb", "--budget", "70%", "--costs", profile)
    )
    assert (ended.status, ended.errors) == (0, "")
    assert (tmp_path / "out.pb").exists()


def test_the_table_has_the_dearest_ops(found: Profile) -> None:
    rows = list(profile_table(found, 3).columns[0].cells)
    assert rows == [each.op for each in found.ops[:3]]


def test_no_steps_and_no_file_are_errors(tmp_path: Path, item: GrapplerItem) -> None:
    with pytest.raises(OptionsError, match="0 steps give no profile"):
        memopt.profile(item, steps=0)
    output = tmp_path / "p.pb"
    assert_one_line(run("profile", tmp_path / "none.pb", "-o", output), "there is no such file")
    assert not output.exists()
    assert run("profile", tmp_path / "none.pb").status == 2
