"""What is planned, as numbers: operations, their costs, what their outputs hold, who reads them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from memopt.display import Displayed, DisplayedFields, Overview, bytes_text, count_text
from memopt.errors import FileError, InvalidGraphError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from memopt.planning.arrays import IntArray

    BoolArray = npt.NDArray[np.bool_]

MAX_OPERATIONS = 1_000_000
_MAX_NUMBER = 2**53
"""Sums of sizes and costs stay within 64 bits."""


@dataclass(frozen=True, repr=False)
class Operation(DisplayedFields):
    """One operation, as it is described to `CostGraph.build`.

    Attributes:
        cost: What computing it once takes; nanoseconds, or any unit that all of them share.
        output_bytes: What each output holds while it is in use.
        inputs: The outputs it reads, as (operation, output) by index.
        writes_over: Those of its inputs, by place, that its result may take the memory of, when it
            is the last to read them.
        scratch_bytes: In use only while it runs.
        is_recomputable: Whether it may be computed more than once.
        kept: Its outputs, by number, that must be there at the end.
        after: Operations, by index, that must have been computed before, without being read.
        until: Operations, by index, after which it must not be computed any more, such as the
            write of a variable that it reads.
        swap_cost: What taking its outputs to the host and back takes; 0 if that is not possible.
    """

    cost: int
    output_bytes: tuple[int, ...] = (0,)
    inputs: tuple[tuple[int, int], ...] = ()
    writes_over: tuple[int, ...] = ()
    scratch_bytes: int = 0
    is_recomputable: bool = True
    kept: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    until: tuple[int, ...] = ()
    swap_cost: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class CostGraph(Displayed):
    """A step as numbers. Made by `build`, `from_json` or `load`.

    Attributes:
        name: For people.
        ids: What each operation is called in files.
        order: All operations, by index, in an order that runs; what the step needs now.
        costs: Of each operation.
        swap_costs: Of taking each operation's outputs to the host and back, 0 where not possible.
        scratch_bytes: Of each operation.
        recomputable: Whether each operation may be computed more than once.
        output_start: Where each operation's outputs start; one more at the end. Outputs are
            numbered through.
        output_bytes: Of each output.
        kept: Whether each output must be there at the end.
        read_ops: For each read, the operation that reads.
        read_values: For each read, the output that is read.
        read_takes: For each read, whether the operation may write its result over the output.
        after: Pairs: the first operation must have been computed before the second.
        until: Pairs: the first operation must not be computed after the second.
        held_bytes: In use throughout, on top of all outputs.
    """

    name: str
    ids: tuple[int, ...]
    order: IntArray
    costs: IntArray
    swap_costs: IntArray
    scratch_bytes: IntArray
    recomputable: BoolArray
    output_start: IntArray
    output_bytes: IntArray
    kept: BoolArray
    read_ops: IntArray
    read_values: IntArray
    read_takes: BoolArray
    after: IntArray
    until: IntArray
    held_bytes: int = 0
    operations: tuple[Operation, ...] = field(default=(), repr=False)

    @property
    def operation_count(self) -> int:
        """How many operations there are."""
        return len(self.costs)

    @property
    def base_cost(self) -> int:
        """What computing everything once costs."""
        return int(self.costs.sum())

    @property
    def producers(self) -> IntArray:
        """The operation that each output is of."""
        return np.repeat(np.arange(self.operation_count), np.diff(self.output_start))

    @classmethod
    def build(
        cls,
        operations: Sequence[Operation],
        order: Sequence[int] | None = None,
        *,
        name: str = "",
        ids: Sequence[int] | None = None,
        held_bytes: int = 0,
    ) -> CostGraph:
        """A cost graph from its operations.

        Args:
            operations: All of them.
            order: All their indices, in an order that runs; as they are listed if `None`.
            name: For people.
            ids: What they are called in files; their indices if `None`.
            held_bytes: In use throughout, on top of all outputs.

        Raises:
            InvalidGraphError: A number is negative or too large, something named does not exist,
                or the order does not run.
        """
        labels = tuple(ids if ids is not None else range(len(operations)))
        if len(operations) > MAX_OPERATIONS:
            raise InvalidGraphError(f"more than {MAX_OPERATIONS} operations")
        for label, operation in zip(labels, operations, strict=True):
            _check_operation(label, operation, operations)
        starts = np.zeros(len(operations) + 1, np.int64)
        np.cumsum([len(each.output_bytes) for each in operations], out=starts[1:])
        reads = [
            (op, int(starts[source]) + output, place in each.writes_over)
            for op, each in enumerate(operations)
            for place, (source, output) in enumerate(each.inputs)
        ]
        kept = np.zeros(int(starts[-1]), np.bool_)
        for op, each in enumerate(operations):
            kept[[int(starts[op]) + output for output in each.kept]] = True
        graph = cls(
            name=name,
            ids=labels,
            order=_integers(range(len(operations)) if order is None else order),
            costs=_integers(each.cost for each in operations),
            swap_costs=_integers(each.swap_cost for each in operations),
            scratch_bytes=_integers(each.scratch_bytes for each in operations),
            recomputable=np.array([each.is_recomputable for each in operations], np.bool_),
            output_start=starts,
            output_bytes=_integers(size for each in operations for size in each.output_bytes),
            kept=kept,
            read_ops=_integers(read[0] for read in reads),
            read_values=_integers(read[1] for read in reads),
            read_takes=np.array([read[2] for read in reads], np.bool_),
            after=_pairs((first, op) for op, each in enumerate(operations) for first in each.after),
            until=_pairs((op, then) for op, each in enumerate(operations) for then in each.until),
            held_bytes=held_bytes,
            operations=tuple(operations),
        )
        graph._check_order()
        return graph

    @classmethod
    def from_json(cls, plain: Any) -> CostGraph:
        """A cost graph from plain data.

        Args:
            plain: {"name", "nodes": [{"id", "cost", "size"}], "edges": [[producer, consumer]],
                "order": [ids]}, where a node may also have "outputs" (sizes, instead of "size"),
                "scratch", "recompute" (false: only once), "keep" (true, or numbers of outputs),
                "swap_cost", "after" and "until" (ids); an edge may name the output as third member
                and, as fourth, true where the consumer may write over it; "held_bytes" counts on
                top of everything.

        Raises:
            InvalidGraphError: It is something else. The message names the node.
        """
        if not isinstance(plain, dict) or not isinstance(plain.get("nodes"), list):
            raise InvalidGraphError('a cost graph is an object with "nodes", "edges" and "order"')
        try:
            return _graph_from(plain)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidGraphError(f"not a cost graph: {type(error).__name__}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        """Plain data, of the form that `from_json` describes."""
        order = [self.ids[op] for op in self.order.tolist()]
        edges = [
            [self.ids[source], self.ids[op], output, place in each.writes_over]
            for op, each in enumerate(self.operations)
            for place, (source, output) in enumerate(each.inputs)
        ]
        nodes = [
            _plain_operation(self.ids, label, each)
            for label, each in zip(self.ids, self.operations, strict=True)
        ]
        return {
            "name": self.name,
            "nodes": nodes,
            "edges": edges,
            "order": order,
            "held_bytes": self.held_bytes,
        }

    @classmethod
    def load(cls, path: Path) -> CostGraph:
        """Read a file of the form that `from_json` describes.

        Raises:
            FileError: It cannot be read or is not JSON.
            InvalidGraphError: It is JSON, but no cost graph.
        """
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise FileError(f"{path}: {error}") from error
        return cls.from_json(plain)

    def _overview(self) -> Overview:
        outcome = (
            f"{count_text(self.operation_count, 'operation')}, "
            f"{count_text(len(self.output_bytes), 'output')} of "
            f"{bytes_text(int(self.output_bytes.sum()))} in total, "
            f"{bytes_text(self.held_bytes)} held throughout, cost {self.base_cost:,}"
        )
        return Overview("CostGraph", f"{self.name}: {outcome}" if self.name else outcome)

    def _check_order(self) -> None:
        position = np.full(self.operation_count, -1, np.int64)
        if len(self.order) != self.operation_count:
            raise InvalidGraphError("the order does not name every operation once")
        for at, op in enumerate(self.order):
            if not 0 <= op < self.operation_count or position[op] >= 0:
                raise InvalidGraphError("the order does not name every operation once")
            position[op] = at
        reads = np.stack([self.producers[self.read_values], self.read_ops], axis=1)
        for first, then in np.concatenate([reads, self.after, self.until]):
            if position[first] >= position[then]:
                raise InvalidGraphError(
                    f"in the order, node {self.ids[then]} comes before node {self.ids[first]}, "
                    "which it has to follow"
                )


def _check_operation(label: int, operation: Operation, operations: Sequence[Operation]) -> None:
    numbers = (
        operation.cost,
        operation.scratch_bytes,
        operation.swap_cost,
        *operation.output_bytes,
    )
    if any(not 0 <= number <= _MAX_NUMBER for number in numbers):
        raise InvalidGraphError(f"node {label}: a cost or size is negative or too large")
    for source, output in operation.inputs:
        if not 0 <= source < len(operations):
            raise InvalidGraphError(f"node {label} reads a node that does not exist")
        if not 0 <= output < len(operations[source].output_bytes):
            raise InvalidGraphError(f"node {label} reads an output that does not exist")
    others = (*operation.after, *operation.until)
    if any(not 0 <= other < len(operations) for other in others):
        raise InvalidGraphError(f"node {label} refers to a node that does not exist")
    if any(not 0 <= output < len(operation.output_bytes) for output in operation.kept):
        raise InvalidGraphError(f"node {label} keeps an output that does not exist")


def _integers(numbers: Iterable[int]) -> IntArray:
    return np.fromiter(numbers, np.int64)


def _pairs(pairs: Iterable[tuple[int, int]]) -> IntArray:
    return np.array(list(pairs), np.int64).reshape(-1, 2)


def _graph_from(plain: Mapping[str, Any]) -> CostGraph:
    nodes = plain["nodes"]
    ids = [_integer(node["id"]) for node in nodes]
    index = {label: place for place, label in enumerate(ids)}
    if len(index) != len(ids):
        twice = next(a for a, b in pairwise(sorted(ids)) if a == b)
        raise InvalidGraphError(f"there are two nodes {twice}")
    inputs: list[list[tuple[int, int]]] = [[] for _ in nodes]
    writes_over: list[list[int]] = [[] for _ in nodes]
    for edge in plain["edges"]:
        source, target = index[edge[0]], index[edge[1]]
        if len(edge) > 3 and edge[3]:  # noqa: PLR2004 - the fourth member
            writes_over[target].append(len(inputs[target]))
        inputs[target].append((source, _integer(edge[2]) if len(edge) > 2 else 0))  # noqa: PLR2004
    operations = [
        _operation_from(node, index, tuple(inputs[place]), tuple(writes_over[place]))
        for place, node in enumerate(nodes)
    ]
    order = plain.get("order")
    return CostGraph.build(
        operations,
        None if order is None else [index[label] for label in order],
        name=str(plain.get("name", "")),
        ids=ids,
        held_bytes=_integer(plain.get("held_bytes", 0)),
    )


def _operation_from(
    node: Mapping[str, Any],
    index: Mapping[int, int],
    inputs: tuple[tuple[int, int], ...],
    writes_over: tuple[int, ...],
) -> Operation:
    outputs = node["outputs"] if "outputs" in node else [node["size"]]
    keep = node.get("keep", False)
    if keep is True:
        keep = range(len(outputs))
    return Operation(
        cost=_integer(node["cost"]),
        output_bytes=tuple(_integer(size) for size in outputs),
        inputs=inputs,
        writes_over=writes_over,
        scratch_bytes=_integer(node.get("scratch", 0)),
        is_recomputable=bool(node.get("recompute", True)),
        kept=tuple(_integer(output) for output in keep or ()),
        after=tuple(index[label] for label in node.get("after", ())),
        until=tuple(index[label] for label in node.get("until", ())),
        swap_cost=_integer(node.get("swap_cost", 0)),
    )


def _plain_operation(ids: Sequence[int], label: int, operation: Operation) -> dict[str, Any]:
    return {
        "id": label,
        "cost": operation.cost,
        "outputs": list(operation.output_bytes),
        "scratch": operation.scratch_bytes,
        "recompute": operation.is_recomputable,
        "keep": list(operation.kept),
        "swap_cost": operation.swap_cost,
        "after": [ids[other] for other in operation.after],
        "until": [ids[other] for other in operation.until],
    }


def _integer(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{number!r} is no integer")
    return number
