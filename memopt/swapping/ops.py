"""Which operations move a tensor's bytes to the host and back."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.attributes import type_attribute
from memopt.shapes.tensor_properties import TensorProperties
from memopt.swapping.history import (
    PREFIXES,
    SWAP_IN_PREFIX,
    SWAP_OUT_PREFIX,
    SWAP_WAIT_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.framework.attr_value_pb2 import AttrValue

    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.properties import Properties

COPY, IDENTITY, SERIALIZE = "copy", "identity", "serialize"
HOST_TYPE = "CPU"
SWAP_OPS = (COPY, IDENTITY, SERIALIZE)

COLOCATION = "_class"

_OPS = frozenset(
    "_CopyFromGpuToHost _CopyFromHostToGpu Identity SerializeTensor ParseTensor".split()
)
_NO_NUMBERS = frozenset({op_types.DT_STRING, op_types.DT_RESOURCE, op_types.DT_VARIANT})
_SERIALIZABLE = frozenset({1, 2, 3, 4, 5, 6, 8, 9, 14, 17, 18, 19, 22, 23})
"""The types that SerializeTensor has kernels for: floats, integers and complex numbers of 8 bits
and more. It has none for booleans, quantized and narrower types."""

_COMPONENT = re.compile(
    r"(?P<job>/job:(?:\*|[A-Za-z][A-Za-z0-9_]*))"
    r"|(?P<replica>/replica:(?:\*|[0-9]+))"
    r"|(?P<task>/task:(?:\*|[0-9]+))"
    r"|/device:(?:\*|(?P<type>[A-Za-z][A-Za-z0-9_]*))(?::(?:\*|(?P<id>[0-9]+)))?"
    r"|/(?P<old_type>cpu|CPU|gpu|GPU):(?:\*|(?P<old_id>[0-9]+))"
)
_HOST = "/device:CPU:0"


class DeviceName(NamedTuple):
    """What a device string says.

    Attributes:
        task: Job, replica and task as they stand there.
        type: The type of the device, as it stands there; "" if it is left open.
        exact: Whether it names one device of that type.
    """

    task: str
    type: str
    exact: bool

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> DeviceName | None:
        """Read a device string as TensorFlow's `DeviceNameUtils::ParseFullName` does."""
        found: dict[str, str] = {}
        end = 0
        while end < len(text):
            match = _COMPONENT.match(text, end)
            if match is None:
                return None
            found.update((key, value) for key, value in match.groupdict().items() if value)
            end = match.end()
        task = "".join(found.get(part, "") for part in ("job", "replica", "task"))
        kind = found.get("type") or found.get("old_type", "").upper()
        return cls(task, kind, "id" in found or "old_id" in found)


def names(device: str, kind: str) -> bool:
    """Whether a device string names one device of a type, as `BuildSwapPair` asks for."""
    name = DeviceName.parse(device)
    return name is not None and name.exact and kind in name.type


def names_host(device: str) -> bool:
    """Whether a device string names a CPU, or nothing."""
    name = DeviceName.parse(device)
    return name is not None and name.type in ("", HOST_TYPE)


def host_of(device: str) -> str:
    """The device string of the host that a device is attached to: the CPU of the same task."""
    name = DeviceName.parse(device)
    return _HOST if name is None else f"{name.task}{_HOST}"


def is_swap(node: Node) -> bool:
    """Whether a node is an operation of a swap, by its name and op."""
    return node.name.startswith(PREFIXES) and node.op in _OPS


def is_host_copy(node: Node) -> bool:
    """Whether a node is an operation of a swap whose output lies on the host."""
    return is_swap(node) and not node.name.startswith(SWAP_IN_PREFIX)


class Swapped(NamedTuple):
    """A tensor that is swapped.

    Attributes:
        tensor: The tensor.
        dtype: Its element type.
        device: The device string of those that read it.
        suffix: What the names of the operations end with.
        colocation: The groups that the operations are colocated with (`_class`), if there are any.
    """

    tensor: Tensor
    dtype: int
    device: str
    suffix: str
    colocation: AttrValue | None = None

    def named(self, suffix: str) -> Swapped:
        """The same tensor, with other names for the operations."""
        return self._replace(suffix=suffix)

    def attributes(self, key: str) -> dict[str, AttrValue]:
        """The attributes of an operation that says the type under that key."""
        attributes = {key: type_attribute(self.dtype)}
        if self.colocation is not None:
            attributes[COLOCATION] = self.colocation
        return attributes


class Swapper:
    """Adds the operations of swaps.

    1. "copy": `_CopyFromGpuToHost` and `_CopyFromHostToGpu`, on the GPU, as Grappler does.
    2. "identity": Identity on the host takes the tensor there; a second one, on the host too,
       waits for the trigger; a third brings it back to the device.
    3. "serialize": SerializeTensor and ParseTensor, on the host too. The copy is a string, which
       TensorFlow does not keep in its allocator's memory, so the bytes leave the allocator even
       where the device is a CPU; there SerializeTensor and ParseTensor are all.

    Args:
        kind: Which of these.
        device_type: The type of the devices whose tensors are swapped.
        rewriter: With an edit open whenever something is added.
        properties: Learns the shapes and types of what is added.
    """

    def __init__(
        self, kind: str, device_type: str, rewriter: Rewriter, properties: Properties
    ) -> None:
        self._kind = kind
        self._on_host = device_type == HOST_TYPE
        self._rewriter = rewriter
        self._properties = properties

    def why_not(self, dtype: int) -> str | None:
        """Why a tensor of that type cannot be swapped, or `None`."""
        if dtype >= op_types.REF_TYPE_OFFSET:
            return "it is read as a reference"
        if dtype in _NO_NUMBERS:
            return "it holds no plain numbers"
        if self._kind == SERIALIZE and dtype not in _SERIALIZABLE:
            return "SerializeTensor cannot take its type"
        return None

    def copy_out(self, swapped: Swapped) -> Node:
        """Add the operation that takes a tensor to the host."""
        output = self._output(swapped)
        op, device = "_CopyFromGpuToHost", swapped.device
        if self._kind == IDENTITY:
            op, device = "Identity", host_of(device)
        elif self._kind == SERIALIZE:
            op = "SerializeTensor"
            # On a CPU the string lies outside of the memory that the simulation counts.
            held_bytes = None if self._on_host else output.size_bytes
            output = TensorProperties(op_types.DT_STRING, (), held_bytes)
            device = device if self._on_host else host_of(device)
        name = SWAP_OUT_PREFIX + swapped.suffix
        node = self._rewriter.add_node(
            name,
            op,
            inputs=(swapped.tensor,),
            device=device,
            attributes=swapped.attributes("T"),
        )
        self._properties.add(name, (output,))
        return node

    def copy_in(self, swapped: Swapped, copy: Node, trigger: Node) -> Node:
        """Add the operations that bring a copy back once a trigger has run; returns the last."""
        if self._kind == COPY:
            return self._add_in("_CopyFromHostToGpu", swapped, copy, (trigger,))
        if self._kind == SERIALIZE and self._on_host:
            return self._add_in("ParseTensor", swapped, copy, (trigger,))
        op, key = ("Identity", "T") if self._kind == IDENTITY else ("ParseTensor", "out_type")
        name = SWAP_WAIT_PREFIX + swapped.suffix
        wait = self._rewriter.add_node(
            name,
            op,
            inputs=(copy.output(),),
            control_inputs=(trigger,),
            device=copy.device,
            attributes=swapped.attributes(key),
        )
        self._properties.add(name, (self._output(swapped),))
        return self._add_in("Identity", swapped, wait, ())

    def _add_in(self, op: str, swapped: Swapped, source: Node, controls: tuple[Node, ...]) -> Node:
        name = SWAP_IN_PREFIX + swapped.suffix
        key = "out_type" if op == "ParseTensor" else "T"
        node = self._rewriter.add_node(
            name,
            op,
            inputs=(source.output(),),
            control_inputs=controls,
            device=swapped.device,
            attributes=swapped.attributes(key),
        )
        self._properties.add(name, (self._output(swapped),))
        return node

    def _output(self, swapped: Swapped) -> TensorProperties:
        tensor = swapped.tensor
        outputs = self._properties.outputs(tensor.node.name)
        if tensor.port < len(outputs):
            return outputs[tensor.port]
        return TensorProperties(swapped.dtype, None, None)


def colocate(group: str, attributes: Mapping[str, AttrValue] | None = None) -> AttrValue:
    """The attribute that adds a group to those that a node is colocated with already."""
    from tensorflow.core.framework import attr_value_pb2

    value: AttrValue = attr_value_pb2.AttrValue()
    if attributes is not None and COLOCATION in attributes:
        value.CopyFrom(attributes[COLOCATION])
    value.list.s.append(f"loc@{group}".encode())
    return value
