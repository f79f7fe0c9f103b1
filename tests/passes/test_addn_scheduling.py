"""AddN scheduling on small graphs, each case a text before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.native import optimize_native
from support.native_simulation import CPU, cpu
from support.scheduling import context_of, item_of, schedule
from support.text_cases import TextCase, read_cases

from memopt.cluster import Device
from memopt.errors import OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.rewriter import Rewriter
from memopt.graph.text import format_graph, parse_graph
from memopt.item import GrapplerItem
from memopt.passes import AddnScheduling, Context
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from support.scheduling import Scheduled

CASES = read_cases(Path(__file__).parent / "cases" / "addn_scheduling.txt")
DEVICES = frozenset({"CPU:0=CPU:1KiB"})


def run(case: TextCase) -> Scheduled:
    item = GrapplerItem(
        to_graph_def(parse_graph(case.before)),
        feed=tuple(sorted(case.settings.get("fed", ()))),
        fetch=tuple(sorted(case.settings["fetched"])),
        keep=tuple(sorted(case.settings.get("kept", ()))),
    )
    devices = [Device.parse(text) for text in sorted(case.settings.get("devices", DEVICES))]
    return schedule(AddnScheduling.parse(case.spec), item, devices, iterations=1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    done = run(case)
    assert format_graph(done.graph) == case.after
    assert "\n".join(f"{one.node}: {one.reason}" for one in done.declined) == case.declined


def case_named(start: str) -> TextCase:
    (case,) = (case for case in CASES if case.name.startswith(start))
    return case


def test_without_a_described_machine_nothing_is_done() -> None:
    graph = parse_graph(case_named("a sum of three inputs").before)
    rewriter = Rewriter(graph)
    AddnScheduling().run(rewriter, Context(Properties.unknown(), fetched=frozenset({"e"})))
    assert not rewriter.edits
    assert not rewriter.declined


@pytest.mark.parametrize(("memory_bytes", "is_full"), [(81920, False), (81919, True)])
def test_a_device_is_full_above_80_percent_not_at_80_percent(
    memory_bytes: int, is_full: bool
) -> None:
    graph = parse_graph(case_named("where the memory is large").before)
    graph_def = to_graph_def(graph)
    devices = [cpu(memory_bytes=memory_bytes)]
    item = item_of(graph_def, "d")
    context = context_of(graph, item, devices)
    assert context.simulated is not None
    assert context.simulated.memory().peak(CPU).used_bytes == 65536

    ours = schedule(AddnScheduling(), item, devices)
    native = optimize_native(graph_def, "SCHEDULING_HEURISTICS", ["d"], devices=devices)

    assert bool(ours.edits) is is_full
    assert ("d/tmp_var" in {node.name for node in native.node}) is is_full


@pytest.mark.parametrize("spec", ["", "{ordered=true}", "{running_sums=true}"])
def test_an_edit_releases_the_inputs_that_wait_for_the_sum_alone(spec: str) -> None:
    """All but the last one, which is added at once, and what is read after the sum as well."""
    text = """
    v = VarHandleOp() {dtype=float, shape=[64,64]}
    x = ReadVariableOp(v) {dtype=float}
    a = Square(x) {T=float}
    b = Neg(a) {T=float}
    c = Square(b) {T=float}
    d = Neg(c) {T=float}
    sum = AddN(a, b, c, d) {N=4, T=float}
    later = Mul(c, sum) {T=float}
    """
    item = item_of(to_graph_def(parse_graph(text)), "later")
    done = schedule(AddnScheduling.parse(f"addn-scheduling{spec}"), item, [cpu(memory_bytes=1)])
    (edit,) = done.edits
    assert edit.releases == ("a:0", "b:0")
    assert edit.holds == ("sum:0",)
    assert edit.changed == ("sum",)
    assert edit.touches <= AddnScheduling.touches


@pytest.mark.parametrize("spec", ["", "{ordered=true}", "{running_sums=true}"])
def test_the_pass_tells_the_sizes_of_the_nodes_that_it_adds(spec: str) -> None:
    item = item_of(to_graph_def(parse_graph(case_named("where the memory is large").before)), "d")
    done = schedule(AddnScheduling.parse(f"addn-scheduling{spec}"), item, [cpu(memory_bytes=1)])
    added = [name for edit in done.edits for name in edit.added]
    assert added
    for name in added:
        assert done.context.properties.size_bytes(f"{name}:0") == 64 * 64 * 4


def test_the_loop_goes_on_after_edits_and_ends_where_grapplers_does() -> None:
    rewritten = run(case_named("a sum of three inputs"))
    stopped = run(case_named("a variable of the name"))
    nothing = run(case_named("there is nothing to gain"))
    assert stopped.edits
    for done, goes_on in ((rewritten, True), (stopped, False), (nothing, False)):
        assert AddnScheduling().wants_more(done.edits, done.declined) is goes_on


def test_options_print_and_parse() -> None:
    pass_ = AddnScheduling(trust_feeds=True, all_types=True, ordered=True)
    assert str(pass_) == "addn-scheduling{trust_feeds=true,all_types=true,ordered=true}"
    assert AddnScheduling.parse(str(pass_)) == pass_
    assert str(AddnScheduling()) == "addn-scheduling"
    with pytest.raises(OptionsError, match="choose one"):
        AddnScheduling.parse("addn-scheduling{ordered=true,running_sums=true}")
