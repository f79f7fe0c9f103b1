"""Operations that only move memory, and those of which nothing else is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.costs.estimator.op_info import Formula

if TYPE_CHECKING:
    from memopt.costs.estimator.op_info import OpInfo, Work


def copy_work(info: OpInfo) -> Work:
    """Every input is read and every output written, without arithmetic (`PredictPureMemoryOp`)."""
    return info.work_on_all(0)


def unknown_work(info: OpInfo) -> Work:
    """The same as a guess (`PredictCostOfAnUnknownOp`)."""
    info.inaccurate = True
    return info.work_on_all(0)


COPY = Formula(copy_work)
UNKNOWN_OP = Formula(unknown_work)
