"""Lists in loops of Switch and Merge: what they hold once all turns have run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.graph import op_types
from memopt.shapes.loop_counters import count_turns, known_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.buffers.placed_tensors import PlacedTensors
    from memopt.graph.graph import Graph, Node, Tensor

_NO_NAME = b""
_LIST = "TensorList"
_FOLLOWED = frozenset(
    "TensorListReserve TensorListFromTensor TensorListPushBack TensorListSetItem TensorListPopBack "
    "TensorListGetItem TensorListStack TensorListLength TensorListElementShape".split()
)
"""Of the ops on lists those that loops may have."""
_HANDED_ON = op_types.SWITCHES | {"Identity"}
_FEW_NUMBERS = frozenset({"BroadcastGradientArgs"})
"""Ops that give a few numbers, nobody knows how many: no more than there are dimensions."""
_ELSEWHERE = frozenset({op_types.DT_RESOURCE, op_types.DT_VARIANT})


class FrameLists:
    """Loops of Switch and Merge that fill lists, as recurrent layers do in TensorFlow's executor.

    A turn is placed once, for all turns. Between beginning and end of a loop what is in use grows
    or shrinks by the same from turn to turn, so that the most is in use at either of them:

    1. Of a loop that only fills lists it is the last turn that is placed. What a turn puts into a
       list, and makes itself, counts as often as there are turns, from then on until nobody needs
       the list any more.
    2. Of a loop that takes lists apart, as that of a gradient does, it is the first turn: what is
       in these lists is there until it ends. What it puts into others counts once in it, and as
       often as there are turns when the loop is left.

    Lists of which nothing is taken out are there until the loop is left.

    Followed are loops whose number of turns their counters tell, without loops inside.

    Args:
        tensors: The buffers of the graph.

    Attributes:
        order: The places, producers first, and what leaves a loop after all that is in it.
        is_told: Whether all loops with lists are followed, and all sizes in them known.
    """

    def __init__(self, tensors: PlacedTensors) -> None:
        numbering = tensors.numbering
        self.order: Sequence[int] = numbering.order
        self.is_told = True
        self._tensors = tensors
        self._frames: dict[bytes, _Frame] = {}
        self._frame_of: list[_Frame | None] = [None] * len(numbering.nodes)
        self._scaled: set[int] = set()
        self._got: dict[int, tuple[int, ...]] = {}
        """By buffer: all that was in the list that it was got from, in a loop."""
        if tensors.graph.derived(_has_frames):
            self._find_frames()

    def leaves(self, place: int) -> bool:
        """Whether a node is the end of a loop that is followed."""
        frame, node = self._frame_of[place], self._tensors.numbering.nodes[place]
        if frame is None or not frame.is_followed or node.op not in op_types.EXITS:
            return False
        return _merge_behind(node.inputs[0]) in frame.next_of

    def result(self, place: int) -> int:
        """The buffer that leaves a loop: what its last turn made."""
        frame = self._frame_of[place]
        assert frame is not None
        if not frame.is_ended:
            self._end(frame)
        tensors = self._tensors
        merge = _merge_behind(tensors.numbering.nodes[place].inputs[0])
        buffer = tensors.buffer(frame.next_value(merge))
        for element in tensors.pool.contents.get(buffer, ()):
            if element in frame.grown:
                # What the other turns have put in.
                others = tensors.make(place, frame.grown.pop(element))
                tensors.pool.contents[buffer] = (*tensors.pool.contents[buffer], others)
        tensors.hold(place, frame.held)
        return buffer

    def follow(self, place: int, node: Node) -> None:
        """Look at an op on lists that was placed."""
        frame = self._frame_of[place]
        if frame is None or not node.op.startswith(_LIST):
            return
        if node.op not in _FOLLOWED:
            frame.is_followed = False
        elif node.op == "TensorListGetItem":
            elements = self._tensors.elements(node.inputs[0])
            self._got[self._tensors.buffer(node.output())] = elements
        elif node.op == "TensorListPushBack":
            self._push(place, node, frame)
        elif node.op == "TensorListPopBack":
            frame.taken_apart.add(_merge_behind(node.inputs[0]))
        elif node.op == "TensorListSetItem":
            before = self._tensors.elements(node.inputs[0])
            # Of a list that is full it replaces an element.
            if not before or -1 in before:
                frame.kept.append((node.inputs[2], self._tensors.buffer(node.output())))

    def end(self) -> None:
        """Once all is placed: what stands for all turns shares memory with nobody."""
        self.is_told = all(
            frame.is_followed and frame.is_ended and self._knows_sizes(frame)
            for frame in self._frames.values()
            if frame.has_lists
        )
        if not self._scaled:
            return
        pool = self._tensors.pool
        for buffer, sources in enumerate(pool.reusable):
            if buffer in self._scaled:
                pool.reusable[buffer] = []
            elif not self._scaled.isdisjoint(sources):
                pool.reusable[buffer] = [one for one in sources if one not in self._scaled]

    def _knows_sizes(self, frame: _Frame) -> bool:
        """Whether the sizes of all results in a loop are known, but for what is handed on."""
        nodes = self._tensors.numbering.nodes
        return all(
            tensor.is_known or tensor.dtype in _ELSEWHERE
            for place in frame.places
            if nodes[place].op not in op_types.CONTROL_FLOW
            and not nodes[place].op.startswith(_LIST)
            and nodes[place].op not in _FEW_NUMBERS
            for tensor in self._tensors.outputs(place)
        )

    def _find_frames(self) -> None:
        numbering = self._tensors.numbering
        for place in numbering.order:
            node = numbering.nodes[place]
            behind = (self._behind(numbering.place(source)) for source in _sources(node))
            inside = list(dict.fromkeys(frame for frame in behind if frame is not None))
            for one in inside[1:] and inside:
                # A loop in a loop.
                one.is_followed = False
            frame = inside[0] if inside else None
            if node.op in op_types.ENTERS:
                if frame is not None:
                    frame.is_followed = False
                name = node.attributes.get("frame_name")
                frame = self._frames.setdefault(name.s if name else _NO_NAME, _Frame())
            self._frame_of[place] = frame
            if frame is not None:
                frame.add(place, node)
        for frame in self._frames.values():
            is_whole = frame.has_lists and frame.condition is not None
            frame.is_followed = frame.is_followed and is_whole
        if any(frame.is_followed for frame in self._frames.values()):
            self.order = self._ordered()

    def _behind(self, place: int) -> _Frame | None:
        """The loop in which what reads a node runs."""
        is_exit = self._tensors.numbering.nodes[place].op in op_types.EXITS
        return None if is_exit else self._frame_of[place]

    def _ordered(self) -> list[int]:
        """The places with each end of a loop, and what waits for it, behind all of the loop."""
        numbering = self._tensors.numbering
        nodes = numbering.nodes
        waiting = [0] * len(nodes)
        users: list[list[int]] = [[] for _ in nodes]
        for place, producers in enumerate(numbering.producers):
            before = [p for p in producers if nodes[p].op not in op_types.NEXT_ITERATIONS]
            before += self.inside(place)
            for producer in before:
                users[producer].append(place)
            waiting[place] = len(before)
        ready = [place for place in numbering.order if not waiting[place]]
        for place in ready:
            for user in users[place]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if len(ready) == len(nodes):
            return ready
        for frame in self._frames.values():
            frame.is_followed = False
        return list(numbering.order)

    def inside(self, place: int) -> Iterable[int]:
        """The places that close the turns of the loop which a node leaves, if it is followed."""
        frame = self._frame_of[place]
        return frame.next_places if frame is not None and self.leaves(place) else ()

    def _push(self, place: int, node: Node, frame: _Frame) -> None:
        tensors, (_, element) = self._tensors, node.inputs
        buffer, pushed = tensors.buffer(element), tensors.buffer(node.output())
        rest = tuple(one for one in self._got.get(buffer, ()) if one not in (buffer, -1))
        if rest:
            # Each turn puts another element of that list into this one.
            tensors.pool.contents[buffer] = rest
            tensors.pool.contents[pushed] = (*tensors.elements(node.inputs[0]), *rest, buffer)
            tensors.hold(place, (pushed,))
        frame.kept.append((element, pushed))

    def _end(self, frame: _Frame) -> None:
        """Let what turns keep count as often as there are turns."""
        tensors, pool = self._tensors, self._tensors.pool
        frame.is_ended = True
        counters = self._counters(frame)
        turns = self._count_turns(frame, counters)
        if not turns:
            frame.is_followed = frame.is_ended = False
            return
        made = {buffer for place in frame.places for buffer in tensors.made[place]}
        for tensor, kept_in in frame.kept:
            merge, buffer = _merge_behind(tensor), tensors.buffer(tensor)
            if merge in frame.next_of:
                # What the turn before made; the first one puts in what the loop begins with.
                buffer = tensors.buffer(frame.next_value(merge))
                pool.contents[kept_in] = (*pool.contents[kept_in], buffer)
            if buffer not in made or buffer in self._scaled:
                continue
            self._scaled.add(buffer)
            if frame.taken_apart:
                frame.grown[buffer] = (turns - 1) * pool.size_bytes[buffer]
            else:
                pool.size_bytes[buffer] *= turns
        self._hold_lists(frame)
        for merge, (first, step) in counters.items():
            pool.numbers[tensors.buffer(frame.next_value(merge))] = first + turns * step

    def _hold_lists(self, frame: _Frame) -> None:
        """Let what is in lists be there until the turn ends, or the loop is left."""
        tensors = self._tensors
        held: dict[int, None] = {}
        for merge in frame.next_of:
            elements = tensors.pool.with_contents([tensors.buffer(merge.output())])
            held.update(elements)
            if merge not in frame.taken_apart:
                # Nobody has to read what leaves for it to be there until then.
                filled = tensors.pool.with_contents([tensors.buffer(frame.next_value(merge))])
                frame.held.update(dict.fromkeys([*elements, *filled]))
        for place in frame.next_places:
            tensors.hold(place, held)

    def _counters(self, frame: _Frame) -> dict[Node, tuple[int, int]]:
        """What loop variables that are known integers begin with, and grow by in each turn."""
        found = {}
        for merge in frame.next_of:
            first = self._tensors.number(merge.inputs[0])
            second = self._tensors.number(frame.next_value(merge))
            if first is not None and second is not None:
                found[merge] = first, second - first
        return found

    def _count_turns(self, frame: _Frame, counters: dict[Node, tuple[int, int]]) -> int:
        """How often a loop's test says yes; 0 where that cannot be told."""
        assert frame.condition is not None
        (test,) = frame.condition.inputs

        def goes_on(turn: int) -> bool:
            return bool(self._evaluate(test, counters, turn))

        return count_turns(goes_on) if goes_on(0) else 0

    def _evaluate(
        self, test: Tensor, counters: dict[Node, tuple[int, int]], turn: int
    ) -> int | None:
        """A known integer as it is in a turn, counted from 0."""
        values: dict[Node, int | None] = {}
        pending = [test.node]
        while pending:
            node = pending[-1]
            if node in counters:
                first, step = counters[node]
                values[node] = first + turn * step
            elif self._frame_of[self._tensors.numbering.place(node)] is None or (
                node.op in op_types.ENTERS or not node.inputs
            ):
                values[node] = self._tensors.number(node.output())
            elif node.op in op_types.MERGES:
                values[node] = None
            else:
                sources = [tensor.node for tensor in node.inputs]
                missing = [source for source in sources if source not in values]
                if missing:
                    pending += missing
                    continue
                values[node] = known_number(node, [values[source] for source in sources])
            pending.pop()
        return values[test.node]


class _Frame:
    """A loop.

    Attributes:
        places: Its nodes.
        condition: Its LoopCond.
        next_of: By Merge of a loop variable: the NextIteration that gives it its next value.
        next_places: The places of these.
        kept: What a turn puts into lists, each with the buffer of that list.
        taken_apart: The Merges of lists that elements are taken out of.
        grown: By buffer that a turn keeps: what the others keep of it, which is still to be placed.
        held: What is there until the loop is left.
        has_lists: Whether there are ops on lists in it.
        is_followed: Whether nothing speaks against following it.
        is_ended: Whether all of it has been placed, and its turns are known.
    """

    def __init__(self) -> None:
        self.places: list[int] = []
        self.condition: Node | None = None
        self.next_of: dict[Node, Node] = {}
        self.next_places: list[int] = []
        self.kept: list[tuple[Tensor, int]] = []
        self.taken_apart: set[Node] = set()
        self.grown: dict[int, int] = {}
        self.held: dict[int, None] = {}
        self.has_lists = False
        self.is_followed = True
        self.is_ended = False

    def add(self, place: int, node: Node) -> None:
        """A node of the loop, after those that it reads."""
        self.places.append(place)
        if node.op == "LoopCond":
            self.is_followed = self.is_followed and self.condition is None
            self.condition = node
        elif node.op in op_types.NEXT_ITERATIONS:
            self.next_places.append(place)
            for merge, _ in node.output().uses:
                self.next_of[merge] = node
        self.has_lists = self.has_lists or node.op.startswith(_LIST)

    def next_value(self, merge: Node) -> Tensor:
        """What a loop variable becomes in a turn."""
        value: Tensor = self.next_of[merge].inputs[0]
        return value


def _has_frames(graph: Graph) -> bool:
    return any(node.op in op_types.ENTERS for node in graph)


def _sources(node: Node) -> Iterable[Node]:
    """Whom a node reads or waits for, without what closes a loop."""
    for tensor in node.inputs:
        if tensor.node.op not in op_types.NEXT_ITERATIONS:
            yield tensor.node
    yield from node.control_inputs


def _merge_behind(tensor: Tensor) -> Node:
    """What a tensor is handed on from: the head of a loop, if it is a loop variable."""
    node = tensor.node
    while node.op in _HANDED_ON:
        node = node.inputs[0].node
    return node
