"""Padded sizes, compact shapes, and the forms that a tensor can be kept in."""

from __future__ import annotations

import pytest

from memopt.buffers.assignment import buffer_graph_of
from memopt.cluster import Device
from memopt.errors import OptionsError
from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.item import GrapplerItem
from memopt.rematerialization.storage.compression import (
    NO_TILE,
    Compressor,
    Tile,
    compact_shape,
    pad_buffers,
    padded_bytes,
)
from memopt.rematerialization.storage.offloading import STRING_BYTES, Offloader
from memopt.shapes.properties import Properties
from memopt.shapes.tensor_properties import tensor_properties

TPU = Tile(8, 128)
FLOAT, INT32, STRING = 1, 3, 7


@pytest.mark.parametrize(
    ("shape", "expected_bytes"),
    [
        ((), 4),
        ((1,), 512),
        ((129,), 1024),
        ((1, 1), 4096),
        ((8, 128), 4096),
        ((9, 128), 8192),
        ((5, 8, 129), 40960),
        ((5, 0), 0),
    ],
)
def test_padded_bytes(shape: tuple[int, ...], expected_bytes: int) -> None:
    assert padded_bytes(shape, 4, TPU) == expected_bytes


def test_without_a_tile_nothing_is_padded() -> None:
    assert padded_bytes((3, 5, 7), 4, NO_TILE) == 3 * 5 * 7 * 4


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((64, 2), (2, 64)),
        ((2, 64), (2, 64)),
        ((7, 1000, 3), (7, 3, 1000)),
        ((128, 128), (128, 128)),
        ((9,), (9,)),
        ((), ()),
    ],
)
def test_compact_shape(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert compact_shape(shape, TPU) == expected
    assert compact_shape(shape, NO_TILE) == shape


def test_a_tile_is_printed_and_parsed() -> None:
    assert Tile.parse("8x128") == TPU
    assert str(TPU) == "8x128"
    for wrong in ("8", "0x8", "8x-1", "x", "8x128x2"):
        with pytest.raises(OptionsError, match="tile"):
            Tile.parse(wrong)


def test_the_forms_of_a_tensor() -> None:
    narrow = tensor_properties(FLOAT, (512, 4))
    (turned,) = Compressor(TPU).forms(narrow)
    assert (turned.method, turned.size_bytes) == ("transpose", 8 * 512 * 4)
    assert not turned.changes_results
    assert not list(Compressor().forms(narrow))
    (cast,) = Compressor(compress_to="bfloat16").forms(narrow)
    assert (cast.method, cast.size_bytes) == ("bfloat16", 512 * 4 * 2)
    assert cast.changes_results
    both = [form.method for form in Compressor(TPU, "float16").forms(narrow)]
    assert both == ["transpose", "float16"]


def test_only_numbers_of_a_known_shape_are_compressed() -> None:
    compressor = Compressor(TPU, "bfloat16")
    assert [form.method for form in compressor.forms(tensor_properties(INT32, (512, 4)))] == [
        "transpose"
    ]
    for dtype, shape in ((FLOAT, (-1, 4)), (FLOAT, None), (STRING, (512, 4))):
        assert not list(compressor.forms(tensor_properties(dtype, shape)))


def test_a_dimension_of_one_is_not_turned() -> None:
    """TensorFlow's Transpose would hand on the very same buffer."""
    assert not list(Compressor(TPU).forms(tensor_properties(FLOAT, (512, 1))))


def test_unknown_types_and_operations_are_refused() -> None:
    with pytest.raises(OptionsError, match="bfloat16, float16"):
        Compressor(compress_to="int8")
    with pytest.raises(OptionsError, match="serialize"):
        Offloader("carrier pigeon")


def test_a_transfer_takes_as_long_as_the_link_needs() -> None:
    device = Device("GPU:0", "GPU", link_bytes_per_s=10**9, link_latency_ns=500)
    assert Offloader(device=device).transfer_ns(4000) == 500 + 4000
    nodes = {node.name: node for node in parse_graph("a = A() @/device:GPU:0\nb = A()\n")}
    tensor = tensor_properties(FLOAT, (1000,))
    (there,) = Offloader("copy", device).forms(nodes["a"], tensor)
    assert (there.size_bytes, there.weight, there.restore_weight) == (0, 9000, 4500)
    assert there.stays
    assert not list(Offloader("copy", device).forms(nodes["b"], tensor))
    (text,) = Offloader(device=device).forms(nodes["b"], tensor)
    assert text.size_bytes == STRING_BYTES


def test_buffers_are_padded() -> None:
    """Each output of a node by its own shape, and memory is taken over only where that fits."""
    graph = parse_graph(
        "x = Placeholder() {dtype=float, shape=[16,4]}\n"
        "e = Exp(x) {T=float}\n"
        "m = MatMul(e, e) {T=float, transpose_a=false, transpose_b=true}\n"
        "one = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 int_val: 1 "
        "tensor_shape {} }>}\n"
        "s = Split(one, m) {T=float, num_split=2}\n"
        "t = Neg(s:1) {T=float}\n"
    )
    fetched = ["s:0", "t:0"]
    properties = Properties.of(GrapplerItem(to_graph_def(graph), fetch=tuple(fetched)))
    plain = buffer_graph_of(graph, properties, fed=["x:0"], fetched=fetched)
    padded = pad_buffers(plain, properties, TPU)
    sizes = {
        node.name: [padded.size_bytes[buffer] for buffer in made]
        for node, made in zip(padded.nodes, padded.made, strict=True)
        if made
    }
    row_bytes = 16 * 128 * 4
    assert sizes == {
        "e": [row_bytes],
        "m": [row_bytes],
        "s": [row_bytes, row_bytes],
        "t": [row_bytes],
    }
    assert padded.held_bytes == plain.held_bytes - 16 * 4 * 4 + row_bytes
    assert padded.reusable == plain.reusable
    assert any(plain.reusable)
    assert pad_buffers(plain, properties, NO_TILE) is plain


def test_memory_is_taken_over_only_by_what_is_padded_alike() -> None:
    """An equal number of elements does not do: [4,16] takes half of what [16,4] does."""
    graph = parse_graph(
        "x = Placeholder() {dtype=float, shape=[16,4]}\n"
        "e = Exp(x) {T=float}\n"
        "shape = Const() {dtype=int32, value=<tensor { dtype: DT_INT32 int_val: 4 int_val: 16 "
        "tensor_shape { dim { size: 2 } } }>}\n"
        "r = Reshape(e, shape) {T=float, Tshape=int32}\n"
        "n = Neg(r) {T=float}\n"
    )
    properties = Properties.of(GrapplerItem(to_graph_def(graph), fetch=("n:0",)))
    plain = buffer_graph_of(graph, properties, fed=["x:0"], fetched=["n:0"])
    last = next(n for n, node in enumerate(plain.nodes) if node.name == "n")
    (negated,) = plain.made[last]
    assert plain.reusable[negated]
    padded = pad_buffers(plain, properties, TPU)
    assert padded.size_bytes[negated] == 8 * 128 * 4
    assert not padded.reusable[negated]
