"""Which kernels TensorFlow has: operation, type of device, element type; whether oneDNN's run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
"""The environment variable that TensorFlow reads when it starts: "0" keeps oneDNN from running."""


class TypedOp(NamedTuple):
    """An op and its attribute that says of which element type it is."""

    op: str
    attribute: str


def has_kernels(ops: Iterable[TypedOp], dtype: int, device_type: str) -> bool:
    """Whether a type of device ("CPU", "GPU") has kernels of an element type for all of some ops.

    A kernel that says nothing of its type is one for every type. What counts is what the installed
    TensorFlow has, whatever devices this machine has.
    """
    return all(has_kernel(op.op, {op.attribute: dtype}, device_type) for op in ops)


def has_kernel(op: str, types: Mapping[str, int], device_type: str) -> bool:
    """Whether a type of device has a kernel of an op for these element types, by attribute."""
    return any(
        kernel.device_type == device_type
        and all(
            types[constraint.name] in constraint.allowed_values.list.type
            for constraint in kernel.constraint
            if constraint.name in types
        )
        for kernel in _registered(op)
    )


def runs_onednn() -> bool:
    """Whether TensorFlow runs oneDNN's kernels here."""
    from tensorflow.python.util import _pywrap_util_port

    return bool(_pywrap_util_port.IsMklEnabled())


@cache
def has_avx512() -> bool:
    """Whether the processor has AVX-512; `False` where that is not known."""
    try:
        return " avx512f " in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False


@cache
def _registered(op: str) -> tuple[Any, ...]:
    from tensorflow.python.framework import kernels

    return tuple(kernels.get_registered_kernels_for_op(op).kernel)
