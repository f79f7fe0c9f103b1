"""DepthwiseGradients: gradients of depthwise filters by groups of channels, as XLA needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from memopt.errors import OptionsError
from memopt.graph.attributes import parse_attribute, type_attribute
from memopt.graph.op_types import DT_INT32
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.graph.graph import Node, Tensor
    from memopt.graph.rewriter import Rewriter

_PREFIX = "Depthwise/"
_DEPTHWISE = "DepthwiseConv2dNativeBackpropFilter"
_GROUPED = "Conv2DBackpropFilter"
_LAST = b"NHWC"
_RANK = 4


@dataclass(frozen=True)
class DepthwiseGradients(Pass):
    """Compute gradients of depthwise filters for some channels at a time, where XLA compiles them.

    XLA's CPU compiler has no kernel for such a gradient. It multiplies every channel with every
    other one, and takes what is of one channel alone out of that: for 960 channels and filters of
    3 x 3 two tensors of 32 MiB, where the gradient has 34 KB. For 64 channels at a time it is the
    fifteenth part of the work, and of the memory the 225th.

    1. Considered is a DepthwiseConv2dNativeBackpropFilter, and a Conv2DBackpropFilter of as many
       groups as it has channels.
    2. Its channels are split into parts of `channels`, of which the last one has what is left over,
       too. Each part's gradient is computed alone, and all are joined.

    Each element is a sum over samples and places. XLA's kernels compute it for some 16 channels at
    a time, and for those that are left over at the end in another order. So each part ends where 64
    channels do: with 144 in two parts of 72 last bits would differ. Of some sizes they differ all
    the same, in the last channels; whoever rewrites a step compares what comes out.

    Refused, with a reason in the report: other layouts; several filters for a channel, which XLA
    adds up otherwise; filters of which no more is known; what is fed; what has too few channels.
    """

    name: ClassVar[str] = "depthwise-gradients"
    touches: ClassVar[frozenset[Touches]] = frozenset(
        {Touches.NODES, Touches.DATA_EDGES, Touches.OPS, Touches.ATTRIBUTES}
    )

    channels: int = 64
    """How many channels each part has, the last one at least."""

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise OptionsError(f"{self.name}: channels is less than 1")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Split one gradient after the other, with an edit for each; linear in nodes."""
        for node in [each for each in rewriter.graph if each.op in (_DEPTHWISE, _GROUPED)]:
            filters = _filters_of(node, context)
            if filters is None:
                continue
            parts = filters if isinstance(filters, str) else self._split(filters)
            if isinstance(parts, str):
                rewriter.decline(node, parts)
                continue
            number = len(parts.channels)
            reason = f"the gradients of filters are computed in {number} parts, by channels"
            with rewriter.edit(reason):
                _Gradient(rewriter, context, node, parts).compute()

    def _split(self, filters: _Filters) -> _Parts | str:
        channels = part_sizes(filters.channels, self.channels)
        if len(channels) == 1:
            return (
                f"its {filters.channels} channels are not split into parts of {self.channels} or "
                "more"
            )
        return _Parts(filters, channels)


def part_sizes(channels: int, least: int = DepthwiseGradients.channels) -> tuple[int, ...]:
    """Into parts of how many channels a depthwise gradient is split."""
    whole = max(channels // least, 1) - 1
    return (*[least] * whole, channels - whole * least)


class _Filters(NamedTuple):
    """Filters that each read one channel.

    Attributes:
        shape: Of the filters: rows, columns, and channels in two dimensions.
        axis: Of these two, the one that grows with the channels.
    """

    shape: tuple[int, ...]
    axis: int

    @property
    def channels(self) -> int:
        """How many channels are read."""
        return self.shape[self.axis]


class _Parts(NamedTuple):
    """Filters in parts.

    Attributes:
        filters: All of them.
        channels: By part how many channels it reads.
    """

    filters: _Filters
    channels: tuple[int, ...]

    def shape(self, part: int) -> tuple[int, ...]:
        """The shape of a part's filters."""
        shape = list(self.filters.shape)
        shape[self.filters.axis] = self.channels[part]
        return tuple(shape)


def _filters_of(node: Node, context: Context) -> _Filters | str | None:
    """The filters of a gradient, or why it stays as it is; `None` if they are not depthwise."""
    certain = context.properties.certain
    shape, of_image = certain.shape(node.output(0).name), certain.shape(node.inputs[0].name)
    if shape is None or of_image is None or -1 in shape or len(of_image) != _RANK:
        return "the shapes of the filters and of what they read are not known"
    data_format = node.attributes["data_format"].s if "data_format" in node.attributes else _LAST
    channels = of_image[-1 if data_format == _LAST else 1]
    if node.op == _GROUPED and (shape[2] != 1 or channels != shape[3] or channels == 1):
        return None
    if node.name in context.named:
        return "it is fed, fetched or kept: it stays what it is called"
    if data_format != _LAST:
        return "its channels do not come last"
    axis, other = (2, 3) if node.op == _DEPTHWISE else (3, 2)
    if shape[other] != 1:
        return "it has several filters for a channel"
    return _Filters(shape, axis)


class _Gradient:
    """Makes a gradient of filters the last one of operations that compute the same."""

    def __init__(self, rewriter: Rewriter, context: Context, node: Node, parts: _Parts) -> None:
        self._build = NodeBuilder(rewriter, context, _PREFIX)
        self._rewriter = rewriter
        self._node = node
        self._parts = parts
        self._dtype = node.attributes["T"].type

    def compute(self) -> None:
        """Make the operations; the last one has the node's name, readers and controls."""
        parts = [self._compute_part(number) for number in range(len(self._parts.channels))]
        axis = self._constant(self._parts.filters.axis)
        types = {"T": type_attribute(self._dtype), "Tidx": type_attribute(DT_INT32)}
        attributes = {**types, "N": parse_attribute(str(len(parts)))}
        self._rewriter.set_op(self._node, "ConcatV2", attributes)
        self._rewriter.set_inputs(self._node, [*parts, axis])

    def _compute_part(self, number: int) -> Tensor:
        image, _, gradient = self._node.inputs
        shape = self._parts.shape(number)
        sizes = self._constant(list(shape))
        made = self._rewriter.add_node(
            self._build.free_name(f"{self._node.name}/Part"),
            self._node.op,
            inputs=[self._channels_of(image, number), sizes, self._channels_of(gradient, number)],
            device=self._node.device,
            attributes=dict(self._node.attributes),
        )
        return self._build.note(made.output(0), shape, self._dtype)

    def _channels_of(self, tensor: Tensor, number: int) -> Tensor:
        """A part's channels of an image, or of the gradient of what was made of one."""
        whole = self._build.properties.shape(tensor.name)
        count = self._parts.channels[number]
        start = self._constant([0, 0, 0, sum(self._parts.channels[:number])])
        size = self._constant([-1, -1, -1, count])
        types = {"T": self._dtype, "Index": DT_INT32}
        made = self._build.add(tensor, "Slice", [tensor, start, size], **types)
        return self._build.note(made, (*whole[:3], count) if whole else None, self._dtype)

    def _constant(self, numbers: object) -> Tensor:
        return self._build.constant(self._node.output(0), numbers)
