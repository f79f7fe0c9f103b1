"""Which nodes are alive together: loops and branches made of Switch, Merge, Enter and Exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.errors import InvalidGraphError
from memopt.graph import op_types
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from memopt.graph.graph import Graph, Node, Tensor


class Side(NamedTuple):
    """That one side of a branch is taken.

    Attributes:
        predicate: The node and the output port that decide.
        sides: How many there are.
        side: Which one.
    """

    predicate: tuple[int, int]
    sides: int
    side: int


class Joined(NamedTuple):
    """That something comes to a Merge, of which nobody knows when that is."""

    merge: int


Condition = Side | Joined
"""What must be so for a node to be alive."""


class Frame(NamedTuple):
    """A loop, and the conditions under which it runs as a whole."""

    name: bytes
    around: frozenset[Condition]


class Place(NamedTuple):
    """Where a node runs: the loops around it, outermost first, and the branches inside."""

    frames: tuple[Frame, ...] = ()
    conditions: frozenset[Condition] = frozenset()


OUTSIDE = Place()
"""Outside of loops and branches."""

_TWO_SIDES = 2


def find_frames(nodes: Sequence[Node], order: Iterable[int]) -> list[int]:
    """By node a number that is the same for nodes of one loop's frame and one branch.

    Nodes of the same number run in the same turn of a loop, and either all of them or none: so a
    control edge between them neither crosses a frame's border nor comes out of a branch that may
    be dead. Ops of `CONTROL_FLOW` themselves lie on a border. A Merge whose inputs are not the two
    sides of one Switch begins a place of its own.

    Args:
        nodes: All nodes, by number.
        order: Those that run, producers first, but for edges that close a loop.
    """
    numbers: dict[Place, int] = {OUTSIDE: 0}
    return [numbers.setdefault(place, len(numbers)) for place in find_places(nodes, order)]


def find_places(nodes: Sequence[Node], order: Iterable[int]) -> list[Place]:
    """By node in which loops and branches it runs; equal where `find_frames` gives one number.

    Args:
        nodes: All nodes, by number.
        order: Those that run, producers first, but for edges that close a loop.
    """
    found = [OUTSIDE] * len(nodes)
    if not any(node.op in op_types.CONTROL_FLOW for node in nodes):
        return found
    place_of: dict[Node, Place] = {}
    for number in order:
        node = nodes[number]
        found[number] = place_of[node] = _place(node, place_of)
    return found


def find_loop_entries(nodes: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """For each loop what enters it, each with the loop's condition, as numbers.

    A turn of a loop ends only when all that enters the loop has arrived. If something waited for
    the loop's end before it enters, TensorFlow would stop without a word and without results. So in
    a sequence all that enters comes before the condition, and with it before all that leaves.
    """
    entering: dict[bytes, list[int]] = {}
    for place, node in enumerate(nodes):
        if node.op in op_types.ENTERS:
            entering.setdefault(node.attributes["frame_name"].s, []).append(place)
    if not entering:
        return
    for place, node in enumerate(nodes):
        if node.op == "LoopCond":
            for enter in entering.get(_frame_name(node), ()):
                yield enter, place


def find_serial_frames(nodes: Iterable[Node]) -> frozenset[bytes]:
    """The names of loops of which no turn begins before the one before it has ended."""
    names: set[bytes] = set()
    several: set[bytes] = set()
    for node in nodes:
        if node.op in op_types.ENTERS:
            name = node.attributes["frame_name"].s
            names.add(name)
            if op_types.turns_at_once(node) > 1:
                several.add(name)
    return frozenset(names - several)


def verify_loops(graph: Graph) -> None:
    """Check that nothing that enters a loop waits for what leaves it; see `find_loop_entries`.

    Raises:
        InvalidGraphError: Something does; the loop would never end.
    """
    numbering = Numbering.of(graph)
    after = [list(users) for users in numbering.users]
    for enter, condition in find_loop_entries(numbering.nodes):
        after[enter].append(condition)
    waiting = [0] * len(after)
    for node, users in zip(numbering.nodes, after, strict=True):
        if node.op not in op_types.NEXT_ITERATIONS:
            for user in users:
                waiting[user] += 1
    ready = [place for place, count in enumerate(waiting) if not count]
    for place in ready:
        if numbering.nodes[place].op in op_types.NEXT_ITERATIONS:
            continue
        for user in after[place]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(ready) < len(after):
        stuck = next(place for place, count in enumerate(waiting) if count)
        name = numbering.nodes[stuck].name
        raise InvalidGraphError(f"node {name!r} waits for a loop that waits for it", name)


def _frame_name(condition: Node) -> bytes:
    """The name of a loop by its condition: that of any Enter behind, but for loops inside."""
    seen = {condition}
    pending = [condition]
    while pending:
        node = pending.pop()
        if node.op in op_types.ENTERS:
            name: bytes = node.attributes["frame_name"].s
            return name
        if node.op in op_types.EXITS:
            continue
        for tensor in node.inputs:
            if tensor.node not in seen:
                seen.add(tensor.node)
                pending.append(tensor.node)
    return b""


def _place(node: Node, place_of: dict[Node, Place]) -> Place:
    """Where a node runs, by where its inputs come from."""
    if node.op in op_types.MERGES:
        return _merged(node, place_of)
    sources = [place_of_reader(tensor, place_of) for tensor in node.inputs]
    sources += [_place_behind(control, place_of) for control in node.control_inputs]
    # Of nested loops the innermost: an outer value comes in by an Enter of its own.
    frames = max((source.frames for source in sources), key=len, default=())
    return Place(frames, frozenset().union(*(source.conditions for source in sources)))


def place_of_reader(tensor: Tensor, place_of: Mapping[Node, Place]) -> Place:
    """Where a reader of a tensor runs, as far as that tensor tells."""
    node = tensor.node
    place = _place_behind(node, place_of)
    if node.op not in op_types.SWITCHES:
        return place
    predicate = node.inputs[1]
    side = Side((predicate.node.index, predicate.port), _sides(node), tensor.port)
    return Place(place.frames, place.conditions | {side})


def _sides(switch: Node) -> int:
    """How many outputs a Switch has, of which one is alive."""
    sides = switch.attributes.get("num_outs")
    return _TWO_SIDES if sides is None else int(sides.i)


def _place_behind(node: Node, place_of: Mapping[Node, Place]) -> Place:
    """Where a node runs that waits for another."""
    place = place_of.get(node, OUTSIDE)
    if node.op in op_types.ENTERS:
        name = node.attributes.get("frame_name")
        frame = Frame(name.s if name is not None else b"", place.conditions)
        return Place((*place.frames, frame))
    if node.op in op_types.EXITS and place.frames:
        return Place(place.frames[:-1], place.frames[-1].around)
    return place


def _are_all_sides(conditions: Collection[Condition]) -> bool:
    """Whether conditions are those of one predicate, each of its sides once."""
    sides = [each for each in conditions if isinstance(each, Side)]
    predicates = {(side.predicate, side.sides) for side in sides}
    return len(predicates) == 1 and len(conditions) == len(sides) == sides[0].sides


def _merged(node: Node, place_of: dict[Node, Place]) -> Place:
    """Where a Merge runs: where the Switch is whose sides it joins, or at the head of a loop."""
    sources = [
        place_of_reader(tensor, place_of)
        for tensor in node.inputs
        if tensor.node.op not in op_types.NEXT_ITERATIONS
    ]
    if not sources:
        return OUTSIDE
    frames = max((source.frames for source in sources), key=len)
    if len(sources) < len(node.inputs):
        return Place(frames, sources[0].conditions)
    shared = frozenset.intersection(*(source.conditions for source in sources))
    own = [source.conditions - shared for source in sources]
    if all(len(conditions) == 1 for conditions in own):
        sides = {side for conditions in own for side in conditions}
        if _are_all_sides(sides):
            return Place(frames, shared)
    return Place(frames, shared | {Joined(node.index)})
