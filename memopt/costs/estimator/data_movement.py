"""Operations that move part of a tensor: gathers, slices, scatters, assignments."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from memopt.costs.estimator.op_info import Formula, element_bytes

if TYPE_CHECKING:
    from memopt.costs.estimator.op_info import OpInfo, Work


def partial_read(index_inputs: int) -> Formula:
    """As much is read of input 0 as is written (`PredictGatherOrSlice`).

    Of the inputs after it that say where, each element counts as a byte.
    """

    def work(info: OpInfo) -> Work | None:
        if not info.outputs:
            return None
        written_bytes = info.total_bytes(info.outputs)
        indices = sum(info.elements(info.input(slot)) for slot in range(1, index_inputs + 1))
        return info.work(info.elements(info.output()), written_bytes + indices, written_bytes)

    return Formula(work)


GATHER = partial_read(1)
SLICE = partial_read(2)
STRIDED_SLICE = partial_read(3)


def _scatter(info: OpInfo) -> Work | None:
    """A reference variable, indices, updates; only rows named are touched (`PredictScatter`)."""
    variable, indices, updates = info.input(0), info.input(1), info.input(2)
    sizes = info.sizes(variable.shape, len(variable.shape or ()))
    touched = info.elements(indices) * prod(sizes[1:])
    touched_bytes = touched * element_bytes(variable)
    read_bytes = touched_bytes + info.tensor_bytes(indices) + info.tensor_bytes(updates)
    return info.work(touched, read_bytes, touched_bytes)


SCATTER = Formula(_scatter)


def _assignment(info: OpInfo) -> Work | None:
    """Only what is read counts (`PredictAssignVariableOps`)."""
    return info.work(0, info.total_bytes(info.inputs), 0)


def _update(info: OpInfo) -> Work | None:
    """The same, with an operation per element."""
    return info.work(info.elements(info.input(1)), info.total_bytes(info.inputs), 0)


ASSIGNMENT = Formula(_assignment)
UPDATE = Formula(_update)
