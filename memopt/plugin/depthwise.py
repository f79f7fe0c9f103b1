"""Depthwise convolutions that XLA compiles alone: their gradients are taken by groups of channels.

Keras has a convolution of groups compiled, since TensorFlow has no kernel for it on a CPU, and its
gradient is taken outside, as a function of its own that nobody sees before it runs. So it is made
here as `DepthwiseGradients` would make it: see there for what XLA needs otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memopt.files.kept_files import KeptFiles, machine_facts
from memopt.passes.depthwise_gradients import part_sizes
from memopt.plugin.calls import find_batch_size, frames_above
from memopt.xla.compiler import FLAGS, compiles_for_cpu

if TYPE_CHECKING:
    from collections.abc import Iterator

_AXES = {"Conv2D": 3, "DepthwiseConv2dNative": 2}
"""By op the dimension of the filters that grows with the channels."""
_OTHER_GRADIENT = "_gradient_op_type"
_OPTIONS = ("strides", "padding", "explicit_paddings", "dilations")
_RANK = 4
_FEWEST_TO_HALVE = 2
_KEPT = KeptFiles("depthwise", most_bytes=1 << 16)
"""For each kind of convolution whether its gradient has the same bits in parts."""


def split_gradients(function: Any) -> int:
    """Let gradients of depthwise filters be computed in parts, wherever they will be taken.

    That is done where the bits are the same for inputs of the size that is known, or of the call
    that waits for the function; each kind is compiled once on a machine to compare.

    Args:
        function: A concrete function that XLA compiles, as it was traced just now.

    Returns:
        For how many convolutions.
    """
    if not compiles_for_cpu():
        return 0
    found = [one for one in _convolutions(function) if _has_same_bits(one)]
    for one in found:
        # An attribute of the object alone: no graph that is saved names a gradient of memopt's.
        one.operation._gradient_function = one.gradients  # noqa: SLF001
    return len(found)


@dataclass(frozen=True)
class _Convolution:
    """A depthwise convolution.

    Attributes:
        operation: TensorFlow's.
        parts: By part of the gradient of its filters: how many channels it has.
    """

    operation: Any
    parts: tuple[int, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The attributes that its gradients have as well."""
        options = {name: self.operation.get_attr(name) for name in _OPTIONS}
        return {**options, "padding": options["padding"].decode()}

    def gradients(self, operation: Any, behind: Any) -> list[Any]:
        """Its gradients: as TensorFlow's, but for the order of the work."""
        import tensorflow as tf

        image, filters = operation.inputs
        of_image = getattr(tf.raw_ops, f"{operation.type}BackpropInput")(
            input_sizes=tf.shape(image), filter=filters, out_backprop=behind, **self.options
        )
        return [of_image, self.gradient_of_filters(image, behind, self.parts)]

    def gradient_of_filters(self, image: Any, behind: Any, parts: tuple[int, ...]) -> Any:
        """The gradient of the filters, computed in parts of so many channels each."""
        import tensorflow as tf

        axis = _AXES[self.operation.type]
        shape = self.operation.inputs[1].shape.as_list()
        sizes = [[*shape[:axis], channels, *shape[axis + 1 :]] for channels in parts]
        compute = getattr(tf.raw_ops, f"{self.operation.type}BackpropFilter")
        made = [
            compute(input=read, filter_sizes=size, out_backprop=of_made, **self.options)
            for read, of_made, size in zip(
                tf.split(image, parts, 3), tf.split(behind, parts, 3), sizes, strict=True
            )
        ]
        return tf.concat(made, axis)


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
        if is_depthwise and len(parts := part_sizes(channels)) > 1:
            yield _Convolution(operation, parts)


def _has_own(operation: Any) -> bool:
    """Whether the author has given an operation another gradient than TensorFlow's."""
    is_named = _OTHER_GRADIENT in operation.node_def.attr
    return is_named or operation._gradient_function is not None  # noqa: SLF001


def _has_same_bits(one: _Convolution) -> bool:
    """Whether the gradient of the filters has the same bits in parts; found out once a machine.

    Not where nothing tells how many samples there are.
    """
    image, filters = one.operation.inputs
    samples = _samples(image.shape[0])
    if not samples:
        return False
    shapes = [tensor.shape.as_list()[1:] for tensor in (image, one.operation.outputs[0])]
    facts = [one.operation.type, image.dtype.name, filters.shape.as_list(), *shapes, samples]
    facts += [one.options, one.parts, os.environ.get(FLAGS, "")]
    digest = hashlib.sha256(machine_facts() + json.dumps(facts).encode()).hexdigest()
    known = _KEPT.recall_equal(digest)
    if known is None:
        known = all(_is_equal_for(one, shapes, count) for count in samples)
        _KEPT.keep_equal(digest, is_equal=known)
    return known


def _samples(known: int | None) -> tuple[int, ...]:
    """For how many samples bits are to be the same: also for fewer, as the last batch may have."""
    if known is not None:
        return (known,)
    size = find_batch_size(frames_above())
    if size is None:
        return ()
    return (size, size // 2) if size >= _FEWEST_TO_HALVE else (size,)


def _is_equal_for(one: _Convolution, shapes: list[list[int]], samples: int) -> bool:
    """Whether the gradient of the filters has the same bits in parts, for made-up values."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    dtype = one.operation.inputs[0].dtype
    compute = tf.function(one.gradient_of_filters, jit_compile=True)
    with tf.init_scope():
        given = [tf.constant(random.standard_normal((samples, *shape)), dtype) for shape in shapes]
        channels = sum(one.parts)
        whole, split = (compute(*given, parts).numpy() for parts in ((channels,), one.parts))
    return bool(whole.tobytes() == split.tobytes())
