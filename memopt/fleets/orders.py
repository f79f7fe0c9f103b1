"""What a process of a fleet can be asked to do, as plain data that goes to any machine."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from memopt.errors import MemoptError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Order(Protocol):
    """Something to be done with what lies in a file or a folder; a frozen dataclass of plain data.

    Attributes:
        kind: What kind of order it is, for who gets it as plain data.
    """

    kind: ClassVar[str]

    @property
    def source(self) -> str:
        """Where that lies, on the machine where it is done."""

    @property
    def folder(self) -> str:
        """An empty folder of that machine for what comes out beside the answer."""

    @property
    def reads_values(self) -> bool:
        """Whether all files are needed, those with values of variables too."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, of which `from_json` of the same class makes the order again."""

    def perform(self) -> dict[str, Any]:
        """Do it in this process; the answer is plain data.

        Raises:
            TaskError: It failed, and this is known of it.
            MemoptError: What it works on, or an option, is bad.
        """


class TaskError(MemoptError):
    """A task that failed, with its kind and what is known of it.

    Attributes:
        kind: What went wrong.
        figures: Of functions; empty where nothing was planned.
    """

    def __init__(self, kind: str, message: str, figures: Sequence[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.figures = list(figures)


def request_of(order: Order, versions: Mapping[str, str]) -> dict[str, Any]:
    """An order as a process gets it, with the versions that whoever sends it has."""
    return {"kind": order.kind, "order": order.to_json(), "versions": dict(versions)}


def order_in(request: Mapping[str, Any]) -> Order:
    """The order of which `request_of` made a request."""
    # Each kind brings what it works with: a process that plans needs no SavedModels.
    from memopt.fleets.plan_order import PlanOrder
    from memopt.fleets.size_order import SizeOrder
    from memopt.fleets.work import RewriteOrder

    kinds = {one.kind: one for one in (RewriteOrder, PlanOrder, SizeOrder)}
    order: Order = kinds[request["kind"]].from_json(request["order"])
    return order


def plain_fields(order: Any) -> dict[str, Any]:
    """The fields of an order by name."""
    return {each.name: getattr(order, each.name) for each in fields(order)}
