"""What kernels on a GPU do with memory, where that is not what those on the host do.

Which outputs share or take over buffers is the same but for what is named here. Scratch memory is
another: found by running every op alone, and ResNet50's convolutions in a training step, on an H100
(`benchmarks/gpu.py`). What cuDNN takes as its workspace depends on the algorithm that turns out to
be the fastest: `convolution_bytes` says what that was there, and `memopt.profile_kernels` measures
it elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.buffers.einsum_rules import einsum_scratch_bytes
from memopt.buffers.host_scratch import reduction_bytes
from memopt.buffers.rounding import round_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from memopt.buffers.kernel_call import KernelCall

WITH_WORKSPACE = frozenset({"Conv3D", "Conv3DBackpropFilterV2", "Conv3DBackpropInputV2"})
"""What cuDNN computes in a workspace of which nothing is known."""

_LEAST_PIXELS = {"Conv2D": 14 * 14, "Conv2DBackpropInput": 28 * 28, "Conv2DBackpropFilter": 56 * 56}
"""Of a picture, from which on filters of one pixel that skip none need no copies."""
_RANK = 4
_CHANNELS = 4
"""Copies have a multiple of it."""
_PARTIAL_SUMS_BYTES = 8 << 20
_PARTIAL_FILTERS = 1.6
"""What partial sums of a filter's gradient take: so much, or so many filters."""

NO_REUSES = frozenset({"MaxPoolGrad"})
"""Ops whose outputs are put into the buffer of an input on the host, and not on a GPU."""


def convolution_bytes(call: KernelCall) -> int:
    """The filter with its dimensions turned, and cuDNN's workspace.

    Kernels for the gradient of pictures have it twice: they compute it in memory of its own, which
    then becomes the output's. In its workspace cuDNN puts pictures, results and filters with the
    channels last, which is how tensor cores read them.
    """
    op = call.node.op.removeprefix("_Fused")
    pictures = call.outputs[0] if op == "Conv2DBackpropInput" else call.inputs[0]
    filters = call.outputs[0] if op == "Conv2DBackpropFilter" else call.inputs[1]
    gradient = call.outputs[0] if op == "Conv2D" else call.inputs[2]
    filter_shape, shape = filters.shape or (), gradient.shape or ()
    if len(filter_shape) != _RANK or len(shape) != _RANK:
        return 0
    filter_bytes = filters.least_bytes
    needed_bytes = filter_bytes
    if op == "Conv2DBackpropInput":
        needed_bytes += pictures.least_bytes
    if _is_direct(call, op, filter_shape, shape):
        return needed_bytes
    channels = filter_shape[2]
    padded = round_up(channels, _CHANNELS)
    copied_bytes = pictures.least_bytes * padded // max(1, channels) + gradient.least_bytes
    if op == "Conv2DBackpropFilter":
        partial_bytes = max(_PARTIAL_SUMS_BYTES, int(_PARTIAL_FILTERS * filter_bytes))
        return needed_bytes + copied_bytes + partial_bytes
    return needed_bytes + copied_bytes + filter_bytes * padded // max(1, channels)


def _is_direct(
    call: KernelCall, op: str, filters: tuple[int, ...], gradient: tuple[int, ...]
) -> bool:
    """Whether a convolution is a product of matrices as they lie."""
    height, width = gradient[2:4] if call.has_channels_first else gradient[1:3]
    strides = call.node.attributes.get("strides")
    skips_none = strides is not None and set(strides.list.i) == {1}
    return filters[:2] == (1, 1) and skips_none and height * width >= _LEAST_PIXELS[op]


def _copies(count: int) -> Callable[[KernelCall], int]:
    return lambda call: count * (call.inputs[0].size_bytes or 0)


def _transposed(count: int) -> Callable[[KernelCall], int]:
    """Copies with the channels first, as cuDNN wants them."""

    def scratch_bytes(call: KernelCall) -> int:
        return 0 if call.has_channels_first else count * (call.inputs[0].size_bytes or 0)

    return scratch_bytes


SCRATCH: Mapping[str, Callable[[KernelCall], int]] = {
    "Einsum": einsum_scratch_bytes,
    **dict.fromkeys(("_FusedConv2D", *_LEAST_PIXELS), convolution_bytes),
    **dict.fromkeys(("Sum", "Mean", "Prod", "Max", "Min", "All", "Any"), reduction_bytes),
    "Softmax": _copies(2),
    "LogSoftmax": _copies(2),
    "MirrorPadGrad": _copies(1),
    "SoftmaxCrossEntropyWithLogits": _copies(1),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _transposed(2)),
    **dict.fromkeys(
        ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), _transposed(3)
    ),
}
"""Scratch memory by op, as `host_scratch` has it for the host."""
