"""Compression: keeping a result in fewer bytes until it is read again.

XLA's `RematStrategy::kCompress` (tensorflow/compiler/xla/service/hlo_rematerialization.cc), with
its size function and its compact shape function.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

from memopt.buffers.rounding import round_up
from memopt.cluster import TYPICAL_RATES
from memopt.errors import OptionsError
from memopt.rematerialization.storage.forms import TRANSPOSE, Form
from memopt.shapes.tensor_properties import ELEMENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.shapes.properties import Properties
    from memopt.shapes.tensor_properties import TensorProperties

SMALLER_TYPES = MappingProxyType({"bfloat16": 14, "float16": 19})
"""What can be cast to, by name: TensorFlow's enumeration values."""

_FLOATS = frozenset({1, 2})
"""The types that are cast: float32 and float64."""

_TILE = re.compile(r"(?P<rows>[1-9][0-9]*)x(?P<columns>[1-9][0-9]*)")
_BYTES_PER_S = TYPICAL_RATES["CPU"].bandwidth_kb_per_s * 1000
"""The speed of memory that times are estimated with: the same everywhere, as for nodes."""


class Tile(NamedTuple):
    """What a device pads the two minor-most dimensions of a tensor to multiples of.

    A vector is padded to multiples of `columns`; a scalar is not padded.
    """

    rows: int = 1
    columns: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tile that a text such as "8x128" tells.

        Raises:
            OptionsError: It tells none.
        """
        match = _TILE.fullmatch(text)
        if match is None:
            raise OptionsError(f"{text!r} is no tile, such as 8x128")
        return cls(int(match["rows"]), int(match["columns"]))

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}"


NO_TILE = Tile()
"""What pads nothing, as TensorFlow's allocators do."""


def padded_bytes(shape: Sequence[int], element_bytes: int, tile: Tile) -> int:
    """The bytes that a tensor takes where it is padded (XLA's size function)."""
    if not shape:
        return element_bytes
    *major, minor = shape
    padded = [round_up(minor, tile.columns)]
    if major:
        padded.append(round_up(major.pop(), tile.rows))
    return prod(major) * prod(padded) * element_bytes


def compact_shape(shape: Sequence[int], tile: Tile) -> tuple[int, ...]:
    """The shape with its two minor-most dimensions exchanged, if that takes less.

    XLA's compact shape function; the same shape if nothing takes less.
    """
    if len(shape) < 2:  # noqa: PLR2004 - there are no two dimensions
        return tuple(shape)
    *major, second, minor = shape
    exchanged = (*major, minor, second)
    if padded_bytes(exchanged, 1, tile) < padded_bytes(shape, 1, tile):
        return exchanged
    return tuple(shape)


@dataclass(frozen=True)
class Compressor:
    """The smaller forms that a result can be kept in.

    1. Where a layout is padded: transposed, if that takes less. It comes back bit for bit. On a
       device that does not pad, as TensorFlow's allocators do not, this saves nothing.
    2. If the user asks for it by name: a float32 or float64 cast to a smaller type. It comes back
       rounded, so the step's results change; float16 does not even reach beyond 65504.

    Attributes:
        tile: How the device pads.
        compress_to: "bfloat16" or "float16"; "" not to cast.

    Raises:
        OptionsError: That is no type that can be cast to.
    """

    tile: Tile = NO_TILE
    compress_to: str = ""

    def __post_init__(self) -> None:
        if self.compress_to and self.compress_to not in SMALLER_TYPES:
            names = ", ".join(SMALLER_TYPES)
            raise OptionsError(f"compress_to is one of {names}, not {self.compress_to!r}")

    def forms(self, tensor: TensorProperties) -> Iterator[Form]:
        """The forms of a tensor that take less than the tensor."""
        element_bytes = ELEMENT_BYTES.get(tensor.dtype)
        if element_bytes is None or tensor.shape is None or not tensor.is_known:
            return
        size_bytes = padded_bytes(tensor.shape, element_bytes, self.tile)
        compact_bytes = padded_bytes(
            compact_shape(tensor.shape, self.tile), element_bytes, self.tile
        )
        # TensorFlow's Transpose hands on the buffer as it is where a dimension of 1 moves.
        if compact_bytes < size_bytes and 1 not in tensor.shape[-2:]:
            yield _form(TRANSPOSE, size_bytes, compact_bytes)
        if self.compress_to and tensor.dtype in _FLOATS:
            smaller = ELEMENT_BYTES[SMALLER_TYPES[self.compress_to]]
            cast_bytes = padded_bytes(tensor.shape, smaller, self.tile)
            yield _form(self.compress_to, size_bytes, cast_bytes)._replace(changes_results=True)


def pad_buffers(buffer_graph: BufferGraph, properties: Properties, tile: Tile) -> BufferGraph:
    """The same buffers with the sizes that a device has which pads; linear in outputs.

    What is not the whole of an output of known shape, such as scratch memory, is left as it is, and
    so is what is held before the step, unless an output takes over its memory.
    """
    if tile == NO_TILE:
        return buffer_graph
    size_bytes = list(buffer_graph.size_bytes)
    for node, made in zip(buffer_graph.nodes, buffer_graph.made, strict=True):
        outputs = list(properties.outputs(node.name)) if made else []
        for buffer in made:
            # Outputs are allocated in their order; those that share other buffers are passed over.
            tensor = next((t for t in outputs if t.size_bytes == size_bytes[buffer]), None)
            if tensor is None or tensor.shape is None:
                continue
            del outputs[: outputs.index(tensor) + 1]
            element_bytes = ELEMENT_BYTES.get(tensor.dtype)
            if element_bytes is not None:
                size_bytes[buffer] = padded_bytes(tensor.shape, element_bytes, tile)
    return _with_sizes(buffer_graph, size_bytes)


def _with_sizes(buffer_graph: BufferGraph, size_bytes: list[int]) -> BufferGraph:
    """Buffers of other sizes: memory is taken over only where the sizes still agree."""
    made = frozenset(buffer for buffers in buffer_graph.made for buffer in buffers)
    given_bytes = buffer_graph.size_bytes
    for buffer, sources in enumerate(buffer_graph.reusable):
        for source in sources:
            if source not in made and given_bytes[source] == given_bytes[buffer]:
                size_bytes[source] = size_bytes[buffer]
    reusable = [
        [
            source
            for source in sources
            if size_bytes[source] == size_bytes[buffer]
            or (
                given_bytes[source] > given_bytes[buffer]
                and size_bytes[source] > size_bytes[buffer]
            )
        ]
        for buffer, sources in enumerate(buffer_graph.reusable)
    ]
    return replace(buffer_graph, size_bytes=size_bytes, reusable=reusable)


def _form(method: str, size_bytes: int, form_bytes: int) -> Form:
    one_way = max((size_bytes + form_bytes) * 10**9 // _BYTES_PER_S, 1)
    return Form(method, form_bytes, 2 * one_way, one_way)
