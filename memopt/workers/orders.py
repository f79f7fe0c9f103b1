"""What a worker can be asked to do, as plain data that goes to any machine."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from memopt.errors import MemoptError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

REFUSED = "refused"
"""The kind of a failure: what an order works on, or an option, is bad."""


class Order(Protocol):
    """Something to be done with what lies in a file or a folder: a frozen dataclass of plain data.

    It is a class of a module, with a `from_json` that makes of plain data what `to_json` described.
    """

    @property
    def source(self) -> str:
        """Where that lies, on the machine where it is done."""

    @property
    def folder(self) -> str:
        """An empty folder of that machine for files that come out beside the answer, if any do."""

    @property
    def reads(self) -> Collection[str] | None:
        """Of a folder the files that are needed, by path; `None` for all."""

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
    kind = type(order)
    return {
        "module": kind.__module__,
        "kind": kind.__qualname__,
        "order": order.to_json(),
        "versions": dict(versions),
    }


def order_in(request: Mapping[str, Any]) -> Order:
    """The order of which `request_of` made a request."""
    # Each kind brings what it works with: a process that plans needs no SavedModels.
    kind = getattr(import_module(request["module"]), request["kind"])
    order: Order = kind.from_json(request["order"])
    return order


def plain_fields(order: Any) -> dict[str, Any]:
    """The fields of an order by name."""
    return {each.name: getattr(order, each.name) for each in fields(order)}
