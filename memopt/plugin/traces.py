"""The call for which TensorFlow traces a function: the shapes of arguments that it leaves open.

Keras traces its step for batches of any size, and functions with open signatures are traced for
arguments of any. What XLA is to compile has sizes: those of the call that waits for the trace,
whose Python frames stand above.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from memopt.plugin.calls import find_batch_size, frames_above, with_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from memopt.shapes.tensor_properties import Shape

_MOST_CALLS = 100


def find_argument_shapes(function: Any) -> dict[str, tuple[Shape, ...]]:
    """By node: the shape that an argument has in the call, where the trace leaves it open.

    Arguments of which nothing is found are left out.

    Args:
        function: A concrete function that was traced just now.
    """
    found: dict[str, tuple[Shape, ...]] = {}
    # What the frames of others hold may be anything.
    with suppress(Exception):
        frames = frames_above()
        for tensor in open_arguments(function):
            shape = _in_call(tensor, frames)
            if shape is not None and -1 not in shape:
                found[tensor.op.name] = (shape,)
    return found


def open_arguments(function: Any) -> list[Any]:
    """The arguments of a function, without what it captures, of which the trace knows no shape."""
    arguments = function.inputs[: len(function.inputs) - len(function.captured_inputs)]
    return [tensor for tensor in arguments if not tensor.shape.is_fully_defined()]


def _in_call(tensor: Any, frames: Sequence[FrameType]) -> Shape:
    """The shape of a tensor in the call, as far as it is known.

    An argument of a function that is traced inside of another one may be an argument of that.
    """
    for _ in range(_MOST_CALLS):
        given = _given_for(tensor, frames)
        if given is None or given is tensor:
            break
        tensor = given
    known = tensor.shape
    if known.rank is None:
        return None
    shape = tuple(-1 if size is None else int(size) for size in known)
    size = find_batch_size(frames) if -1 in shape[:1] else None
    return shape if size is None else with_batch(shape, size)


def _given_for(tensor: Any, frames: Sequence[FrameType]) -> Any:
    """What the call gives for an argument of a function that is being traced; `None`: unknown."""
    for frame in frames:
        if frame.f_code.co_name != "_maybe_define_function":
            continue
        local = frame.f_locals
        if local.get("func_graph") is getattr(tensor, "graph", None) is not None:
            positions = [number for number, one in enumerate(tensor.graph.inputs) if one is tensor]
            given = local["target_func_type"].unpack_inputs(local["bound_args"])
            return given[positions[0]] if positions else None
    return None
