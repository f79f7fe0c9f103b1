"""Sizes of a step that are planned by other processes, on this machine or a cluster."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError, MemoptError, OptionsError
from memopt.fitting.size_order import SizeOrder, probe_of
from memopt.runtime.item_files import save_item
from memopt.workers.executor import Job, give_out
from memopt.workers.inputs import input_at
from memopt.workers.orders import REFUSED
from memopt.workers.places import open_executor
from memopt.workers.surroundings import process_variables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.fitting.planner import Probe, SizePlanner
    from memopt.workers.executor import Executor
    from memopt.workers.inputs import Input
    from memopt.workers.places import Places

_COSTS_FILE = "costs"


@dataclass(frozen=True)
class ProbesOn:
    """Plans of a step at several sizes at once; see `ProbesElsewhere`.

    Attributes:
        executor: Where they are made.
        source: The step as a folder.
        costs: How long operations take: a name, or a file of the step's folder.
    """

    executor: Executor
    source: Input
    costs: str

    @property
    def width(self) -> int:
        """How many sizes are planned at once."""
        return self.executor.width

    def probe_each(
        self, planner: SizePlanner, sizes: Sequence[int], *, is_quick: bool
    ) -> Iterator[Probe]:
        """What the planner would find for sizes, in their order, without the graphs.

        Raises:
            InvalidGraphError: TensorFlow refuses the step at one of the sizes.
            MemoptError: A process has failed; the message names the size.
        """
        jobs = (Job(self.source, self._order(planner, size, is_quick)) for size in sizes)
        found = {}
        for finished in give_out(self.executor, jobs):
            order = finished.job.order
            assert isinstance(order, SizeOrder)
            failure = finished.answer.get("failed")
            if failure is None:
                found[order.size] = probe_of(finished.answer["done"])
            elif failure["kind"] == REFUSED:
                raise InvalidGraphError(failure["reason"])
            else:
                raise MemoptError(f"size {order.size} could not be planned: {failure['reason']}")
        yield from (found[size] for size in sizes)

    def _order(self, planner: SizePlanner, size: int, is_quick: bool) -> SizeOrder:
        runtime = planner.runtime
        return SizeOrder(
            str(self.source.path),
            size,
            is_quick,
            tuple((one.node, one.axis, one.size) for one in planner.dimensions),
            planner.limit_bytes,
            planner.spare_bytes,
            planner.max_overhead,
            self.costs,
            runtime is not None and runtime.onednn,
            planner.keep_open,
        )


@contextmanager
def probes_on(places: Places, planner: SizePlanner) -> Iterator[ProbesOn]:
    """Processes that plan what a planner would, at several sizes at once.

    Args:
        places: Where.
        planner: What is planned, and how.

    Raises:
        OptionsError: Ray is needed and not installed, or costs are a model of this process alone.
        MemoptError: No Ray cluster is at the address.
        FileError: The file of costs cannot be read.
    """
    with (
        TemporaryDirectory(prefix="memopt-fit-") as place,
        open_executor(places, process_variables()) as executor,
    ):
        step = Path(place)
        save_item(planner.item, step)
        costs = _put_costs(planner, step)
        yield ProbesOn(executor, input_at(step), costs)


def _put_costs(planner: SizePlanner, step: Path) -> str:
    """Copy a file of costs beside the step; what it is called there, or the name of a model."""
    costs = planner.costs
    if not isinstance(costs, str):
        raise OptionsError("costs that other processes plan with are a name or a file, no model")
    if not Path(costs).is_file():
        return costs
    name = _COSTS_FILE + Path(costs).suffix
    shutil.copyfile(costs, step / name)
    return name
