"""OpInfo: what a formula reads of a node; Work: what it says that one execution does."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.shapes.tensor_properties import ELEMENT_BYTES, TensorProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NOTHING_KNOWN = TensorProperties(0, None, None)
"""A tensor of which nothing is known, not even the type."""


class Attribute(NamedTuple):
    """An attribute that a formula reads.

    Attributes:
        name: The name in the NodeDef.
        read: Its value as something hashable.
        default: What it is where the node does not say; TensorFlow's own default.
    """

    name: str
    read: Callable[[Any], Any]
    default: Any


def text_of(value: Any) -> str:
    """A string attribute."""
    text: bytes = value.s
    return text.decode(errors="replace")


def flag_of(value: Any) -> bool:
    """A boolean attribute."""
    flag: bool = value.b
    return flag


def integers_of(value: Any) -> tuple[int, ...]:
    """An attribute that is a list of integers."""
    return tuple(value.list.i)


class Work(NamedTuple):
    """What one execution of an operation does, whatever the device (`NodeCosts`).

    Attributes:
        operations: Arithmetic operations.
        read_bytes: Bytes read from memory.
        written_bytes: Bytes written to memory.
        inaccurate: Whether a shape was not known, or the op.
    """

    operations: int
    read_bytes: int
    written_bytes: int
    inaccurate: bool


class OpInfo:
    """Types and shapes around one node, and the attributes that its formula declares.

    What is not known counts as the least that it can be, and is remembered in `inaccurate`.
    """

    __slots__ = ("attributes", "inaccurate", "inputs", "outputs")

    def __init__(
        self,
        inputs: tuple[TensorProperties, ...],
        outputs: tuple[TensorProperties, ...],
        attributes: dict[str, Any],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.attributes = attributes
        self.inaccurate = False

    def input(self, slot: int) -> TensorProperties:
        """The tensor at an input slot; nothing is known of one that a broken node lacks."""
        return self.inputs[slot] if slot < len(self.inputs) else NOTHING_KNOWN

    def output(self) -> TensorProperties:
        """The first output; nothing is known of that of a node which was not inferred."""
        return self.outputs[0] if self.outputs else NOTHING_KNOWN

    def sizes(self, shape: Sequence[int] | None, rank: int) -> list[int]:
        """A shape as this many sizes (`MaybeGetMinimumShape`).

        What is not known, or not there, is 1; what is too much is left out. A scalar fits any rank.
        """
        if shape is None:
            self.inaccurate = True
            return [1] * rank
        if not shape:
            return [1] * rank
        if len(shape) != rank or min(shape) < 0:
            self.inaccurate = True
        sizes = [1 if size < 0 else size for size in shape[:rank]]
        return sizes + [1] * (rank - len(sizes))

    def elements(self, tensor: TensorProperties) -> int:
        """How many elements a tensor has (`CalculateTensorElementCount`)."""
        return prod(self.sizes(tensor.shape, len(tensor.shape or ())))

    def tensor_bytes(self, tensor: TensorProperties) -> int:
        """How many bytes a tensor has (`CalculateTensorSize`)."""
        return self.elements(tensor) * element_bytes(tensor)

    def total_bytes(self, tensors: Iterable[TensorProperties]) -> int:
        """How many bytes tensors have together."""
        return sum(map(self.tensor_bytes, tensors))

    def work(self, operations: int, read_bytes: int, written_bytes: int) -> Work:
        """The work, inaccurate if anything that was looked at was not known."""
        return Work(operations, read_bytes, written_bytes, self.inaccurate)

    def work_on_all(self, operations: int) -> Work:
        """Work that reads every input and writes every output (`PredictDefaultNodeCosts`)."""
        read_bytes = self.total_bytes(self.inputs)
        return self.work(operations, read_bytes, self.total_bytes(self.outputs))


def element_bytes(tensor: TensorProperties) -> int:
    """Bytes of one element of a tensor; a string, resource or variant has none."""
    return ELEMENT_BYTES.get(tensor.dtype, 0)


class Formula(NamedTuple):
    """How the work of an op is counted.

    Attributes:
        work: The work; `None` where the node cannot be what its op says, which costs nothing.
        attributes: What `work` reads besides types and shapes.
    """

    work: Callable[[OpInfo], Work | None]
    attributes: tuple[Attribute, ...] = ()
