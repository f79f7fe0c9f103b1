"""Clones of instructions, told only by who reads from whom; buffers and orders follow from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memopt.buffers.buffer_graph import simulate
from memopt.rematerialization.paths.clone_buffers import CloneBuffers, ClonedInstructions
from memopt.sequencing.depth_first import post_order
from memopt.sequencing.precedence import Precedence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline
    from memopt.rematerialization.instructions import Instructions
    from memopt.rematerialization.paths.facts import Facts


@dataclass(frozen=True, eq=False)
class Settled:
    """Clones in an order, with the memory that they need.

    Attributes:
        clones: The clones.
        sequence: The instructions that run.
        timeline: Their memory; exact.
        cost: The sum of the weights of the copies that run, less those of originals that do not.
    """

    clones: Clones
    sequence: list[int]
    timeline: MemoryTimeline
    cost: int

    @property
    def peak_bytes(self) -> int:
        """The most that is in use at any time, what is held included."""
        return self.timeline.peak_bytes


class Clones:
    """Instructions by number, a node's own or one above all nodes, and who reads from whom.

    Every instruction reads from instructions whose nodes its own node reads from. So there is no
    cycle, and whatever is redirected from one clone of a node to another, the results are the same.

    Args:
        facts: What is cloned.
        origin: By instruction: the node that it is a clone of; the nodes alone if not given.
        inputs: By instruction: the instructions that it reads from; as in the network.

    Attributes:
        facts: What is cloned.
        origin: By instruction: the node that it is a clone of; a node's is itself.
        inputs: By instruction: the instructions that it reads from, one for each input of the node.
        users: By instruction: those that read from it; the keys, in order.
    """

    def __init__(
        self,
        facts: Facts,
        origin: Sequence[int] | None = None,
        inputs: Iterable[Iterable[int]] | None = None,
    ) -> None:
        self.facts = facts
        self.origin = list(range(len(facts.runs)) if origin is None else origin)
        self.inputs = [list(i) for i in (facts.network.inputs if inputs is None else inputs)]
        self.users: list[dict[int, None]] = [{} for _ in self.origin]
        for instruction, runs in enumerate(self.find_running()):
            if runs:
                for source in self.inputs[instruction]:
                    self.users[source][instruction] = None

    def clone(self, instruction: int) -> int:
        """A new instruction that reads what another one does, and that nobody reads yet."""
        number = len(self.origin)
        self.origin.append(self.origin[instruction])
        self.inputs.append(list(self.inputs[instruction]))
        self.users.append({})
        for source in self.inputs[instruction]:
            self.users[source][number] = None
        return number

    def redirect(self, user: int, before: int, now: int) -> None:
        """Let a user of one instruction read from another clone of the same node."""
        inputs = self.inputs[user]
        inputs[inputs.index(before)] = now
        del self.users[before][user]
        self.users[now][user] = None

    def redirected(self, targets: Mapping[int, int]) -> Clones:
        """Only what runs, with all users of some instructions reading from others instead.

        Args:
            targets: From an instruction to another clone of the same node, which may be a key too.
        """
        final: dict[int, int] = {}
        for instruction in targets:
            target = instruction
            while target in targets:
                target = final.get(target, targets[target])
            final[instruction] = target
        redirected = ([final.get(i, i) for i in inputs] for inputs in self.inputs)
        return Clones(self.facts, self.origin, redirected)

    def find_running(self) -> list[bool]:
        """By instruction: whether it runs: what has to, and what those read from.

        A node with clones need not run itself if it can run twice; but a view for which somebody
        waits, since nobody waits for its clones.
        """
        facts, count = self.facts, len(self.facts.runs)
        followers = facts.network.followers
        running = list(facts.runs) + [False] * (len(self.origin) - count)
        for node in set(self.origin[count:]):
            running[node] = facts.is_view[node] and bool(followers[node])
        pending = [instruction for instruction, runs in enumerate(running) if runs]
        while pending:
            for source in self.inputs[pending.pop()]:
                if not running[source]:
                    running[source] = True
                    pending.append(source)
        return running

    def producers(self, running: Sequence[bool]) -> list[list[int]]:
        """By instruction that runs: those that it must come after."""
        facts, count = self.facts, len(self.facts.runs)
        instances: list[list[int]] = [[node] if running[node] else [] for node in range(count)]
        for number in range(count, len(self.origin)):
            node = self.origin[number]
            if running[number] and not facts.is_view[node]:
                instances[node].append(number)
        producers: list[list[int]] = []
        for number, node in enumerate(self.origin):
            if not running[number]:
                producers.append([])
            elif not facts.after[node] and not facts.waits[node]:
                producers.append(self.inputs[number])
            else:
                waits = [before for before in facts.waits[node] if running[before]]
                waits += (i for before in facts.after[node] for i in instances[before])
                producers.append(list(dict.fromkeys((*self.inputs[number], *waits))))
        return producers

    def arrange(self, producers: Sequence[Sequence[int]], base: Iterable[int]) -> list[int]:
        """The order of a sequence, with what is not in it just before the first that needs it."""
        running = self.find_running()
        return post_order(producers, [number for number in base if running[number]])

    def settle(self, sequence: list[int]) -> Settled:
        """What runs in a sequence, simulated."""
        table = CloneBuffers(self.facts, self.origin, self.inputs, sequence)
        timeline = simulate(table.graph(), sequence)
        weights, count = self.facts.network.weights, len(self.facts.runs)
        cost = sum(weights[self.origin[i]] for i in sequence if i >= count)
        lost = set(self.facts.network.sequence).difference(sequence)
        cost -= sum(weights[node] for node in lost)
        return Settled(self, sequence, timeline, cost)

    def buffer_graph(self, sequence: Sequence[int], producers: list[list[int]]) -> BufferGraph:
        """The graph with the clones in numbers: what a sequencer needs."""
        return CloneBuffers(self.facts, self.origin, self.inputs, sequence).graph(producers)

    def to_instructions(self, sequence: Sequence[int]) -> tuple[Instructions, list[int], list[int]]:
        """The clones as rematerialization hands them on.

        Returns:
            The instructions, with the clones numbered in the order in which they run; the
            sequence; and the nodes that do not run any more.
        """
        count = len(self.facts.runs)
        copies = [instruction for instruction in sequence if instruction >= count]
        number = {node: node for node in range(count)}
        number.update((copy, count + rank) for rank, copy in enumerate(copies))
        inputs = [list(sources) for sources in self.facts.network.inputs]
        inputs += [[] for _ in copies]
        for instruction in sequence:
            sources = [number[source] for source in self.inputs[instruction]]
            inputs[number[instruction]] = sources
        origin = [*range(count), *(self.origin[copy] for copy in copies)]
        numbers = [number[instruction] for instruction in sequence]
        runs = frozenset(numbers)
        removed = [node for node in self.facts.network.sequence if node not in runs]
        buffers = CloneBuffers(self.facts, origin, inputs, numbers)
        return ClonedInstructions(buffers, removed), numbers, removed


def precedence_of(running: Sequence[bool], producers: list[list[int]]) -> Precedence:
    """What must come before what, for a sequencer."""
    return Precedence(producers, [number for number, runs in enumerate(running) if runs])
