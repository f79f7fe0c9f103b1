"""Rematerialization's walk with each of its counts taken anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.rematerialization.xla.candidates import Block, Candidates
from memopt.rematerialization.xla.memory_tracker import NOBODY, MemoryUsageTracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.rematerialization.instructions import Instructions
    from memopt.rematerialization.rematerialized import Rematerialized
    from memopt.rematerialization.xla.insertions import Stored


class CheckedTracker(MemoryUsageTracker):
    """Counts everything again after every step (XLA's `Check`)."""

    def begin(self, instruction: int) -> None:
        assert self.in_progress == NOBODY
        super().begin(instruction)
        self.check()

    def end(self) -> None:
        super().end()
        self.check()

    def add_stored(self, original: int, stored: Stored) -> list[int]:
        before_bytes = self.usage_bytes
        revived = super().add_stored(original, stored)
        assert self.usage_bytes < before_bytes
        assert self.placed[stored.store]
        assert not any(self.placed[copy] for copy in stored.copied.copies)
        self.check()
        return revived

    def add_copies(
        self, original: int, copies: Sequence[int], moved: Iterable[tuple[int, int]]
    ) -> list[int]:
        before_bytes = self.usage_bytes
        revived = super().add_copies(original, copies, moved)
        assert self.usage_bytes < before_bytes
        assert not any(self.placed[copy] for copy in copies)
        self.check()
        return revived

    def check(self) -> None:
        table = self._instructions
        users: list[list[int]] = [[] for _ in table.size_bytes]
        for instruction in table.line:
            reads = table.reads[instruction]
            assert len(set(reads)) == len(reads)
            for buffer in reads:
                users[buffer].append(instruction)
        in_use_bytes = 0
        for buffer, size_bytes in enumerate(table.size_bytes):
            assert sorted(users[buffer]) == sorted(table.readers[buffer])
            unfinished = [user for user in users[buffer] if not self.is_finished(user)]
            assert len(unfinished) == self.unfinished[buffer]
            maker = table.maker[buffer]
            is_there = maker < 0 or self.placed[maker]
            is_new = maker >= 0 and maker == self.in_progress
            unread = maker < 0 and not users[buffer]
            if is_there and (unfinished or table.lasting[buffer] or is_new or unread):
                in_use_bytes += size_bytes
            if self.is_taken_over(buffer):
                assert unfinished == [self.in_progress]
                in_use_bytes -= size_bytes
        assert self.usage_bytes == in_use_bytes


class CheckedCandidates(Candidates):
    """Looks at every instruction too, as XLA does, and must find nothing cheaper."""

    def pick(self) -> Block | None:
        self._allow_more()
        table = self._instructions
        blocks = [self.evaluate(instruction) for instruction in table.line]
        costs = [block.cost for block in blocks if block is not None]
        block = super().pick()
        assert (block.cost if block else None) == min(costs, default=None)
        return block


def assert_computes_the_same(table: Instructions, done: Rematerialized) -> None:
    """Every instruction reads copies of what its origin reads, and everybody waits who must."""
    network = table.network
    maker, graph = table.maker, network.buffer_graph
    made_at = {b: (node, n) for node, made in enumerate(graph.made) for n, b in enumerate(made)}

    def original(buffer: int) -> object:
        if maker[buffer] < 0:
            return buffer
        assert maker[buffer] not in table.conversions or restores(maker[buffer])
        return table.origin[maker[buffer]], table.makes[maker[buffer]].index(buffer)

    def restores(instruction: int) -> bool:
        return table.conversions[instruction].restores

    runs = {table.origin[instruction] for instruction in done.sequence}
    assert runs == set(network.sequence)
    position = {instruction: n for n, instruction in enumerate(done.sequence)}
    first = {table.origin[i]: position[i] for i in reversed(done.sequence)}
    for instruction in done.sequence:
        if instruction in table.conversions:
            assert_converts(table, instruction)
            continue
        origin = table.origin[instruction]
        inputs = [table.origin[source] for source in table.inputs[instruction]]
        assert sorted(inputs) == sorted(network.inputs[origin])
        expected = [made_at.get(buffer, buffer) for buffer in graph.read[origin]]
        assert [original(buffer) for buffer in table.reads[instruction]] == expected
        if table.is_view(instruction):
            continue
        for follower in network.followers[origin]:
            assert position[instruction] < first[follower]


def assert_converts(table: Instructions, instruction: int) -> None:
    """A form is made of the result that it stands for, and the result of that form."""
    conversion = table.conversions[instruction]
    (source,) = table.inputs[instruction]
    (made,), (read,) = table.makes[instruction], table.reads[instruction]
    assert table.maker[read] == source
    assert table.origin[source] == table.origin[instruction]
    stores = source in table.conversions and not table.conversions[source].restores
    assert stores is conversion.restores
    form, result = (read, made) if conversion.restores else (made, read)
    assert table.size_bytes[form] == conversion.form.size_bytes
    (original,) = table.makes[table.origin[instruction]]
    assert table.size_bytes[result] == table.size_bytes[original]
