"""Regions: connected operations that run part by part together, and what memory they need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

from memopt.buffers.kernel_call import KernelCall
from memopt.buffers.kernel_rules import memory_by_rule
from memopt.fission.dimensions import Role, least_rows, scaled
from memopt.shapes.constants import constant_numbers
from memopt.shapes.tensor_properties import tensor_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.fission.facts import Facts
    from memopt.graph.graph import Node, Tensor
    from memopt.shapes.tensor_properties import TensorProperties


@dataclass(frozen=True)
class Region:
    """Operations that run part by part.

    Attributes:
        facts: What is known of the graph.
        moved: The operations in whose place the parts come.
        copied: Those of which each part makes its own rows again, while they stay for others.
    """

    facts: Facts
    moved: frozenset[Node]
    copied: frozenset[Node] = field(default=frozenset())

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All of them, producers first."""
        place = self.facts.rank
        return tuple(sorted(self.moved | self.copied, key=place))

    @cached_property
    def members(self) -> frozenset[Node]:
        """The same as a set."""
        return self.moved | self.copied

    @cached_property
    def unit(self) -> int:
        """Into how many parts all of it can be divided at most."""
        return gcd(*(rows for node in self.nodes for rows in self.facts.units(node)))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """What it reads of others, rows of it or all, but for constants; each once."""
        found: dict[Tensor, None] = {}
        for node, slot, role in self._slots():
            tensor = node.inputs[slot]
            if role is not Role.SHAPE and tensor.node not in self.members:
                found[tensor] = None
        return tuple(found)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """What others read of it."""
        return tuple(
            tensor
            for node in self.nodes
            if node in self.moved
            for tensor in node.outputs
            if any(reader not in self.members for reader, _ in tensor.uses)
        )

    def _slots(self) -> Iterator[tuple[Node, int, Role]]:
        for node in self.nodes:
            roles = self.facts.roles(node)
            assert not isinstance(roles, str)
            for slot, role in enumerate(roles):
                yield node, slot, role

    @cached_property
    def why_not(self) -> str:
        """Why it cannot run part by part; "" if it can."""
        for node, slot, role in self._slots():
            source = node.inputs[slot].node
            if role is Role.WHOLE and source in self.members:
                return f"all of {source.name!r} has to be there for any part of {node.name!r}"
        if not self.outputs:
            return "nothing reads it"
        if any(self.facts.is_added(tensor) for tensor in (*self.inputs, *self.outputs)):
            return "the order in which a sum adds could change"
        if any(before in self.members for node in self.nodes for before in node.control_inputs):
            return "one of it waits for another"
        if self._is_left_and_entered():
            return "what others make of it is read by it again"
        return ""

    def _is_left_and_entered(self) -> bool:
        """Whether a path leads from it over others back to it; constants aside."""
        rank = self.facts.rank
        entries: set[Node] = set()
        for node in self.nodes:
            entries.update(tensor.node for tensor in node.inputs if tensor.node.op != "Const")
            entries.update(node.control_inputs)
        entries -= self.members
        last = max(map(rank, entries), default=-1)
        pending = [
            user
            for node in self.moved
            for user in node.users
            if user not in self.members and user.op != "Const" and rank(user) <= last
        ]
        seen = set(pending)
        while pending:
            node = pending.pop()
            if node in entries:
                return True
            for user in node.users:
                if user not in seen and user not in self.members and rank(user) <= last:
                    seen.add(user)
                    pending.append(user)
        return False

    def can_be_in(self, parts: int) -> bool:
        """Whether it can be divided into so many parts, each of enough rows for every kernel."""
        if not 1 < parts <= self.unit:
            return False
        share = self.unit // parts
        return all(
            share * (rows // self.unit) >= least_rows(node)
            for node in self.nodes
            for rows in self.facts.units(node)
        )

    def shares(self, parts: int) -> list[int]:
        """How many of the units each part has."""
        least, more = divmod(self.unit, parts)
        return [least + (number < more) for number in range(parts)]

    @cached_property
    def boundary_bytes(self) -> int:
        """What it reads and makes for others, all of which is there while it runs part by part.

        What is held in any case does not count.
        """
        roots = dict.fromkeys(
            self.facts.root(tensor) for tensor in self.inputs if not self.facts.is_held(tensor)
        )
        return sum(self.facts.known(tensor).least_bytes for tensor in (*roots, *self.outputs))

    def need_bytes(self, parts: int) -> int:
        """What it needs at most, besides what is held, if it runs in parts."""
        largest = max(self.shares(parts))
        return self.boundary_bytes + self._inside_bytes(largest)

    @property
    def added_work(self) -> int:
        """How many operations each part computes that others compute as well."""
        return len(self.copied)

    def _inside_bytes(self, share: int) -> int:
        """The peak of a part's own tensors and scratch memory, its operations in their order."""
        inside = _Inside(self, share)
        return inside.peak_bytes()

    def part_properties(self, known: TensorProperties, share: int) -> TensorProperties:
        """What is known of the rows of a tensor that a part of so many units has."""
        shape = known.shape or ()
        rows = shape[0] // self.unit * share
        return tensor_properties(known.dtype, (rows, *shape[1:]))


class _Inside:
    """The memory of one part, as kernels make and take over buffers."""

    def __init__(self, region: Region, share: int) -> None:
        self._region = region
        self._share = share
        self._facts = region.facts
        self._buffer: dict[Tensor, int] = {}
        self._size: list[int] = []
        self._last = self._last_readers()

    def peak_bytes(self) -> int:
        live, peak = 0, 0
        ends: dict[int, int] = {}
        for place, node in enumerate(self._region.nodes):
            scratch_bytes, made = self._place(place, node, ends)
            live += made
            peak = max(peak, live + scratch_bytes)
            for buffer in [buffer for buffer, end in ends.items() if end <= place]:
                live -= self._size[buffer]
                del ends[buffer]
        return peak

    def _place(self, place: int, node: Node, ends: dict[int, int]) -> tuple[int, int]:
        """Place the outputs of a node; its scratch memory and what it takes."""
        region, facts = self._region, self._facts
        roles = facts.roles(node)
        inputs = [
            region.part_properties(facts.known(tensor), self._share)
            if role is Role.ROWS
            else facts.known(tensor)
            for tensor, role in zip(node.inputs, roles, strict=True)
        ]
        outputs = [region.part_properties(known, self._share) for known in facts.outputs(node)]
        call = KernelCall(node, inputs, outputs, self._numbers(node), facts.runtime)
        memory = memory_by_rule(call)
        made = 0
        scratch_bytes = memory.scratch_bytes + sum(size for size, _ in memory.scratch_buffers)
        for port, placement in enumerate(memory.placements):
            tensor = node.output(port)
            end = self._last.get(tensor, place)
            source = node.inputs[placement.alias] if placement.alias >= 0 else None
            if source is not None:
                buffer = self._buffer.get(source, -1)
                if buffer >= 0:
                    ends[buffer] = max(ends.get(buffer, place), end)
                self._buffer[tensor] = buffer
                continue
            taken = self._taken(node, placement.reuses, place, ends)
            if taken >= 0:
                ends[taken] = end
                self._buffer[tensor] = taken
                continue
            self._buffer[tensor] = len(self._size)
            ends[len(self._size)] = end
            self._size.append(outputs[port].least_bytes)
            made += outputs[port].least_bytes
        return scratch_bytes, made

    def _taken(self, node: Node, slots: Sequence[int], place: int, ends: dict[int, int]) -> int:
        """The buffer that an output takes over; -1 if it is a new one."""
        for slot in slots:
            buffer = self._buffer.get(node.inputs[slot], -1)
            if buffer >= 0 and ends.get(buffer) == place:
                return buffer
        return -1

    def _numbers(self, node: Node) -> _Numbers:
        return _Numbers(self._region, node, self._share)

    def _last_readers(self) -> dict[Tensor, int]:
        found: dict[Tensor, int] = {}
        for place, node in enumerate(self._region.nodes):
            for tensor in node.inputs:
                found[tensor] = place
        return found


@dataclass(frozen=True)
class _Numbers:
    """The small constants that a part of an operation is given, by slot."""

    region: Region
    node: Node
    share: int

    def __call__(self, slot: int) -> tuple[int, ...] | None:
        return part_numbers(self.region, self.node, slot, self.share)


def part_numbers(region: Region, node: Node, slot: int, share: int) -> tuple[int, ...] | None:
    """The integers of a small constant as a part gets them; `None` for what is none."""
    numbers = constant_numbers(node.inputs[slot].node)
    roles = region.facts.roles(node)
    if not numbers or roles[slot] is not Role.SHAPE:
        return numbers
    rows = (region.facts.outputs(node)[0].shape or (1,))[0]
    return scaled(numbers, rows, rows // region.unit * share)


class Extension(NamedTuple):
    """A region with one operation more.

    Attributes:
        crossed_bytes: The size of the tensor that is inside now, at least in part.
        region: The larger region.
    """

    crossed_bytes: int
    region: Region


def extensions(region: Region) -> Iterator[Extension]:
    """The regions that have one operation more: who makes what it reads, who reads what it makes.

    Whoever makes what it reads and is read by others too can be part of it in two ways.
    """
    facts = region.facts
    for node in region.nodes:
        for tensor, role in zip(node.inputs, facts.roles(node), strict=True):
            if role is Role.ROWS and tensor.node not in region.members:
                yield from _with_maker(region, tensor)
    for tensor in region.outputs:
        for reader, slot in tensor.uses:
            if reader in region.members or not facts.is_split(reader) or not facts.can_go(reader):
                continue
            if facts.roles(reader)[slot] is Role.ROWS:
                larger = Region(facts, region.moved | {reader}, region.copied)
                yield Extension(facts.known(tensor).least_bytes, larger)


def _with_maker(region: Region, tensor: Tensor) -> Iterator[Extension]:
    facts, maker = region.facts, tensor.node
    if not facts.is_split(maker) or facts.is_held(tensor):
        return
    size_bytes = facts.known(tensor).least_bytes
    if facts.can_go(maker):
        yield Extension(size_bytes, Region(facts, region.moved | {maker}, region.copied))
    if any(reader not in region.members for reader in maker.users) or not facts.can_go(maker):
        yield Extension(size_bytes, Region(facts, region.moved, region.copied | {maker}))
