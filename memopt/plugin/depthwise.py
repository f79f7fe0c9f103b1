"""Depthwise convolutions that XLA compiles alone: their gradients are taken by groups of channels.

Keras has a convolution of groups compiled, since TensorFlow has no kernel for it on a CPU, and its
gradient is taken outside, as a function of its own that nobody sees before it runs. So it is made
here as `DepthwiseGradients` would make it: see there for what XLA needs otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.kept_files import KeptFiles, machine_facts
from memopt.passes.depthwise_gradients import count_parts
from memopt.plugin.calls import find_batch_size, frames_above

if TYPE_CHECKING:
    from collections.abc import Iterator

_AXES = {"Conv2D": 3, "DepthwiseConv2dNative": 2}
"""By op the dimension of the filters that grows with the channels."""
_OTHER_GRADIENT = "_gradient_op_type"
_RANK = 4
_FEWEST_TO_HALVE = 2
_KEPT = KeptFiles("depthwise", most_bytes=1 << 16)
"""For each kind of convolution whether its gradient has the same bits in parts."""
_EQUAL, _OTHER = b"equal", b"other"
_FLAGS = "XLA_FLAGS"


def split_gradients(function: Any) -> int:
    """Let gradients of depthwise filters be computed in parts, wherever they will be taken.

    That is done where the bits are the same for inputs of the size that is known, or of the call
    that waits for the function; each kind is compiled once on a machine to
    compare.

    Args:
        function: A concrete function that XLA compiles, as it was traced just now.

    Returns:
        For how many convolutions.
    """
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return 0
    found = [one for one in _convolutions(function) if _has_same_bits(one)]
    for one in found:
        # An attribute of the object alone: no graph that is saved names a gradient of memopt's.
        one.operation._gradient_function = _gradient  # noqa: SLF001
    return len(found)


class _Convolution(NamedTuple):
    """A depthwise convolution.

    Attributes:
        operation: TensorFlow's.
        samples: How many samples it may read, if it is not for one number of them.
    """

    operation: Any
    samples: tuple[int, ...]


def _convolutions(function: Any) -> Iterator[_Convolution]:
    """The depthwise convolutions of a function whose gradients can be split."""
    for operation in function.graph.get_operations():
        axis = _AXES.get(operation.type)
        if axis is None or operation.get_attr("data_format") != b"NHWC" or _has_own(operation):
            continue
        image, filters = (each.shape for each in operation.inputs)
        if image.rank != _RANK or not filters.is_fully_defined() or None in image[1:].as_list():
            continue
        channels = image[-1]
        is_depthwise = filters[axis] == channels and filters[5 - axis] == 1
        if is_depthwise and count_parts(channels) > 1:
            samples = _samples(image[0])
            if samples:
                yield _Convolution(operation, samples)


def _has_own(operation: Any) -> bool:
    """Whether the author has given an operation another gradient than TensorFlow's."""
    is_named = _OTHER_GRADIENT in operation.node_def.attr
    return is_named or operation._gradient_function is not None  # noqa: SLF001


def _samples(known: int | None) -> tuple[int, ...]:
    """For how many samples bits are to be the same: also for fewer, as the last batch may have."""
    if known is not None:
        return (known,)
    size = find_batch_size(frames_above())
    if size is None:
        return ()
    return (size, size // 2) if size >= _FEWEST_TO_HALVE else (size,)


def _gradient(operation: Any, behind: Any) -> list[Any]:
    """The gradients of a depthwise convolution: as TensorFlow's, but for the order of the work."""
    import tensorflow as tf

    image, filters = operation.inputs
    options = _options(operation)
    of_image = getattr(tf.raw_ops, f"{operation.type}BackpropInput")
    return [
        of_image(input_sizes=tf.shape(image), filter=filters, out_backprop=behind, **options),
        _gradient_of_filters(
            operation, image, behind, options, count_parts(filters.shape[_AXES[operation.type]])
        ),
    ]


def _gradient_of_filters(
    operation: Any, image: Any, behind: Any, options: dict[str, Any], parts: int
) -> Any:
    import tensorflow as tf

    axis = _AXES[operation.type]
    sizes = operation.inputs[1].shape.as_list()
    sizes[axis] //= parts
    of_filters = getattr(tf.raw_ops, f"{operation.type}BackpropFilter")
    pieces = zip(tf.split(image, parts, 3), tf.split(behind, parts, 3), strict=True)
    made = [
        of_filters(input=read, filter_sizes=sizes, out_backprop=of_made, **options)
        for read, of_made in pieces
    ]
    return made[0] if parts == 1 else tf.concat(made, axis)


def _options(operation: Any) -> dict[str, Any]:
    names = ("strides", "padding", "explicit_paddings", "dilations")
    options = {name: operation.get_attr(name) for name in names}
    return {**options, "padding": options["padding"].decode()}


def _has_same_bits(one: _Convolution) -> bool:
    """Whether the gradient of the filters has the same bits in parts; found out once a machine."""
    image, filters = one.operation.inputs
    shapes = [tensor.shape.as_list()[1:] for tensor in (image, one.operation.outputs[0])]
    facts = [one.operation.type, image.dtype.name, filters.shape.as_list(), *shapes, one.samples]
    facts += [_options(one.operation), os.environ.get(_FLAGS, "")]
    digest = hashlib.sha256(machine_facts() + json.dumps(facts).encode()).hexdigest()
    known = _KEPT.find(digest)
    if known in (_EQUAL, _OTHER):
        return known == _EQUAL
    is_equal = all(_is_equal_for(one.operation, shapes, samples) for samples in one.samples)
    _KEPT.keep(digest, _EQUAL if is_equal else _OTHER)
    return is_equal


def _is_equal_for(operation: Any, shapes: list[list[int]], samples: int) -> bool:
    """Whether the gradient of the filters has the same bits in parts, for made-up values."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    options = _options(operation)
    dtype = operation.inputs[0].dtype
    parts = count_parts(operation.inputs[1].shape[_AXES[operation.type]])
    with tf.init_scope():
        image, behind = (
            tf.constant(random.standard_normal((samples, *shape)), dtype) for shape in shapes
        )
        whole, split = (
            tf.function(
                lambda image, behind, number=number: _gradient_of_filters(
                    operation, image, behind, options, number
                ),
                jit_compile=True,
            )(image, behind).numpy()
            for number in (1, parts)
        )
    return bool(whole.tobytes() == split.tobytes())
