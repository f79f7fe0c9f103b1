"""Swapping on small graphs, each case a text before and after; options; what is never done."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.native_simulation import gpu
from support.swapping import Case, Swapped, prepare, uneven
from support.text_cases import TextCase, read_cases

from memopt.cluster import Device
from memopt.errors import OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.rewriter import Checkpoint
from memopt.graph.text import format_graph, parse_graph
from memopt.graph.verify import verify_graph
from memopt.passes import Context, Swapping
from memopt.simulation.earliest_times import earliest_ends_ns
from memopt.swapping.history import SwapHistory
from memopt.swapping.ops import host_of

if TYPE_CHECKING:
    from memopt.graph.rewriter import Rewriter

CASES = read_cases(Path(__file__).parent / "cases" / "swapping.txt")


def devices(memory_bytes: int) -> tuple[Device, ...]:
    """The machine of TensorFlow's own tests, so slow that everything lives for seconds."""
    return (
        Device("CPU:0", "CPU", 1 << 40, 1000, 4, 32),
        Device("GPU:0", "GPU", memory_bytes, 1000, 24, 128, "6"),
    )


def prepare_case(case: TextCase, memory_bytes: int | None = None) -> Swapped:
    graph = parse_graph(case.before)
    verify_graph(graph)
    (memory,) = case.settings.get("memory", frozenset({str(1 << 20)}))
    fetched = tuple(sorted(case.settings["fetched"]))
    machine = devices(int(memory) if memory_bytes is None else memory_bytes)
    return prepare(Case(to_graph_def(graph), fetched, machine))


def find(words: str) -> TextCase:
    (case,) = (case for case in CASES if words in case.name)
    return case


def declined(rewriter: Rewriter) -> str:
    return "\n".join(f"{one.node}: {one.reason}" for one in rewriter.declined)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: TextCase) -> None:
    swapped = prepare_case(case)
    Swapping.parse(case.spec).run(swapped.rewriter, swapped.context)
    verify_graph(swapped.graph)
    assert format_graph(swapped.graph) == case.after
    assert declined(swapped.rewriter) == case.declined


def test_without_devices_nothing_happens() -> None:
    swapped = prepare_case(find("one number"))
    context = Context(swapped.context.properties, fetched=swapped.context.fetched)
    Swapping().run(swapped.rewriter, context)
    assert not swapped.rewriter.modified
    assert swapped.rewriter.declined == ()


def test_what_fits_is_left_alone() -> None:
    case = replace(find("what is read after it"), settings={"fetched": frozenset("efghi")})
    for spec in ("swapping", "swapping{improved=true}"):
        for memory_bytes in (1 << 30, 0):
            swapped = prepare_case(case, memory_bytes)
            Swapping.parse(spec).run(swapped.rewriter, swapped.context)
            assert not swapped.rewriter.modified
            assert swapped.rewriter.declined == ()


def test_what_was_tried_is_not_tried_again() -> None:
    """A second run of the same optimization changes nothing, though one of another might."""
    swapped = prepare_case(find("what is read as a reference"))
    Swapping().run(swapped.rewriter, swapped.context)
    swapped.simulated.forget()
    start = swapped.rewriter.checkpoint()
    history = SwapHistory.of(swapped.rewriter)
    assert history.nodes == {"swap_out_d_2", "swap_in_d_2", "e"}
    assert history.inputs == {"d:2"}

    Swapping().run(swapped.rewriter, swapped.context)

    assert swapped.rewriter.checkpoint().edits == start.edits
    again = {one.reason for one in swapped.rewriter.declined[start.declined :]}
    assert "swapping it for 'e' was tried before" in again
    swapped.rewriter.revert(Checkpoint(0, 0, 0))
    assert SwapHistory.of(swapped.rewriter).nodes == set()


def test_an_edit_releases_a_tensor_once_its_last_chosen_reader_is_served() -> None:
    swapped = prepare(Case(uneven(layers=14), ("train",), (gpu(0, 1),)))
    Swapping().run(swapped.rewriter, swapped.context)
    chosen = {edit.reason.split("'")[1] for edit in swapped.rewriter.edits}
    released = [name for edit in swapped.rewriter.edits for name in edit.releases]
    assert len(swapped.rewriter.edits) > len(released) > 3
    assert len(set(released)) == len(released)
    assert len(chosen) > 3


def test_properties_of_new_nodes_are_told() -> None:
    for ops, size_bytes in (("copy", 400), ("identity", 400), ("serialize", 400)):
        swapped = prepare_case(CASES[0])
        Swapping(heuristics=False, ops=ops).run(swapped.rewriter, swapped.context)
        properties = swapped.context.properties
        assert properties.size_bytes("swap_in_e_0:0") == 400
        assert properties.size_bytes("swap_out_e_0:0") == size_bytes
    swapped = prepare_case(find("without a GPU"))
    Swapping.parse(find("without a GPU").spec).run(swapped.rewriter, swapped.context)
    # On the CPU's own device the string is in no memory that the simulation counts.
    assert swapped.context.properties.tensor("swap_out_e_0:0") == (7, (), None)


def test_options_print_and_parse() -> None:
    pass_ = Swapping(heuristics=False, improved=True, ops="serialize", device_type="CPU")
    spec = "swapping{heuristics=false,improved=true,ops=serialize,device_type=CPU}"
    assert str(pass_) == spec
    assert Swapping.parse(spec) == pass_


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("swapping{ops=move}", "ops is one of"),
        ("swapping{device_type=CPU}", "only with ops=serialize"),
        ("swapping{device_type=CPU,ops=identity}", "only with ops=serialize"),
        ("swapping{improved=yes}", "option 'improved' cannot be 'yes'"),
    ],
)
def test_bad_options_are_named(spec: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        Swapping.parse(spec)


@pytest.mark.parametrize(
    ("device", "host"),
    [
        ("", "/device:CPU:0"),
        ("/gpu:1", "/device:CPU:0"),
        ("/job:a/replica:0/task:3/device:GPU:1", "/job:a/replica:0/task:3/device:CPU:0"),
        ("no device", "/device:CPU:0"),
    ],
)
def test_the_host_is_the_cpu_of_the_same_task(device: str, host: str) -> None:
    assert host_of(device) == host


def test_earliest_ends() -> None:
    """Nothing waits for a device; a Merge starts at the input that the queue comes to first."""
    graph = parse_graph("""
        a = Placeholder() {dtype=float, shape=[]}
        slow = Square(a) {T=float}
        b = Square(a) {T=float}
        c = Square(a, ^b) {T=float}
        merge = Merge(b, slow) {N=2, T=float}
        d = AddN(merge, c, a) {N=3, T=float}
        e = NextIteration(d) {T=float}
    """)
    times_ns = {"a": 0, "b": 10, "c": 10, "slow": 100}
    ends = earliest_ends_ns(graph, lambda node: times_ns.get(node.name, 5))
    assert {node.name: ends[node.index] for node in graph} == {
        "a": 1,
        "slow": 101,
        "b": 11,
        "c": 21,
        "merge": 106,
        "d": 111,
        "e": 116,
    }
