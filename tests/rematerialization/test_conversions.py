"""What stores and restores results, as operations in the graph."""

from __future__ import annotations

import pytest
from support.remat_runs import run_remat

from memopt.cluster import Device
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import format_graph, parse_graph
from memopt.item import GrapplerItem
from memopt.rematerialization.rewriting.summary import describe
from memopt.rematerialization.storage.compression import Compressor, Tile
from memopt.rematerialization.storage.offloading import Offloader

GRAPH = """
x = Placeholder() {{dtype=float, shape=[64,4]}}
y = Placeholder() {{dtype=float, shape=[64,64]}}
kept = {op}(x) {{T=float}} {device}
a = L2Loss(kept) {{T=float}} {device}
wide = MatMul(y, y, ^a) {{T=float}} {device}
one = L2Loss(wide) {{T=float}} {device}
end = Mul(kept, one) {{T=float}} {device}
"""
PERMUTATION = (
    "Const() {dtype=int32, value=<tensor { dtype: DT_INT32 "
    "tensor_shape { dim { size: 2 } } int_val: 1 int_val: 0 }>}"
)
BACK = "Transpose(Compressed/kept, Compressed/permutation_2, ^one) {T=float, Tperm=int32}"


def item(text: str = GRAPH, op: str = "Exp", device: str = "", keep: str = "") -> GrapplerItem:
    graph = parse_graph(text.format(op=op, device=device))
    return GrapplerItem(
        to_graph_def(graph),
        feed=("x:0", "y:0"),
        fetch=("a:0", "end:0"),
        keep=(keep,) if keep else (),
    )


def lines(text: str) -> list[str]:
    """The lines that are not those of the graph before."""
    return [line for line in text.splitlines() if line.strip()]


def test_transposed_and_back() -> None:
    run = run_remat(item(), 0.95, compressor=Compressor(Tile(8, 128)), sequencer="program")
    assert lines(format_graph(run.graph))[-4:] == [
        "end = Mul(Decompressed/kept, one) {T=float}",
        f"Compressed/permutation_2 = {PERMUTATION}",
        "Compressed/kept = Transpose(kept, Compressed/permutation_2, ^a) {T=float, Tperm=int32}",
        f"Decompressed/kept = {BACK}",
    ]
    assert run.planned_bytes == run.peak_bytes < run.ordered_bytes
    assert describe(run.done) == "kept transposed: 1 tensor"


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", "bfloat16"), ("float16", "half")])
def test_cast_and_back(name: str, dtype: str) -> None:
    run = run_remat(item(), 0.99, compressor=Compressor(compress_to=name), sequencer="program")
    assert lines(format_graph(run.graph))[-2:] == [
        f"Compressed/kept = Cast(kept, ^a) {{DstT={dtype}, SrcT=float}}",
        f"Decompressed/kept = Cast(Compressed/kept, ^one) {{DstT=float, SrcT={dtype}}}",
    ]
    assert describe(run.done) == f"kept as {name}: 1 tensor (this changes results)"
    assert run.ordered_bytes - run.peak_bytes == 64 * 4 * 2


def test_to_a_string_and_back() -> None:
    """The string counts, its characters do not; nothing waits for more than it has to."""
    run = run_remat(item(), 0.99, offloader=Offloader(), sequencer="program")
    assert lines(format_graph(run.graph))[-3:] == [
        "end = Mul(swap_in_kept, one) {T=float}",
        "swap_out_kept = SerializeTensor(kept, ^a) {T=float}",
        "swap_in_kept = ParseTensor(swap_out_kept, ^one) {out_type=float}",
    ]
    assert describe(run.done) == "kept on the host: 1 tensor"
    assert run.ordered_bytes - run.peak_bytes == 64 * 4 * 4 - 24


def test_the_swap_of_a_gpu() -> None:
    device = "@/device:GPU:0"
    offloader = Offloader("copy", Device("GPU:0", "GPU"))
    run = run_remat(item(device=device), 0.99, offloader=offloader, sequencer="program")
    assert run.ops("swap_out_") == ["_CopyFromGpuToHost"]
    assert run.ops("swap_in_") == ["_CopyFromHostToGpu"]
    assert "^one" in format_graph(run.graph).splitlines()[-1]
    assert run.graph["swap_in_kept"].device == "/device:GPU:0"


def test_by_way_of_the_host_of_a_gpu() -> None:
    offloader = Offloader("identity", Device("GPU:0", "GPU"))
    run = run_remat(item(device="@/device:GPU:0"), 0.99, offloader=offloader, sequencer="program")
    assert [run.graph[f"swap_{way}_kept"].device for way in ("out", "wait", "in")] == [
        "/device:CPU:0", "/device:CPU:0", "/device:GPU:0"
    ]  # fmt: skip
    assert [node.name for node in run.graph["swap_wait_kept"].control_inputs] == ["one"]


def test_what_cannot_run_twice_can_be_stored() -> None:
    """A random number is not drawn again; it is written down."""
    text = GRAPH.replace(
        "kept = {op}(x) {{T=float}} {device}",
        "shape = Const() {{dtype=int32, value=<tensor {{ dtype: DT_INT32 tensor_shape {{ dim "
        "{{ size: 2 }} }} int_val: 64 int_val: 4 }}>}}\n"
        "kept = RandomUniform(shape) {{T=int32, dtype=float}}",
    )
    again = run_remat(item(text), 0.99, recompute=True, sequencer="program")
    assert describe(again.done) == "nothing"
    stored = run_remat(item(text), 0.99, recompute=True, offloader=Offloader(), sequencer="program")
    assert describe(stored.done) == "kept on the host: 1 tensor"
    assert [node.op for node in stored.graph].count("RandomUniform") == 1


def test_what_must_keep_its_name_is_not_stored() -> None:
    kept = run_remat(item(keep="kept"), 0.99, offloader=Offloader(), sequencer="program")
    assert describe(kept.done) == "nothing"


def test_names_that_are_taken_get_numbers() -> None:
    text = GRAPH + "swap_out_kept = NoOp()\nswap_in_kept/1 = NoOp()\nCompressed/kept = NoOp()\n"
    run = run_remat(item(text), 0.99, offloader=Offloader(), sequencer="program")
    assert run.ops("swap_out_kept/1") == ["SerializeTensor"]
    assert run.ops("swap_in_kept/1/1") == ["ParseTensor"]
    cast = run_remat(item(text), 0.99, compressor=Compressor(compress_to="bfloat16"))
    assert cast.ops("Compressed/kept/1") == ["Cast"]
