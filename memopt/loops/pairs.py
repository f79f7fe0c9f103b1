"""Pairs of loops: one that keeps what each turn computes, and that of its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph import op_types
from memopt.graph.functiondef import ARGUMENT, RESULT, Library
from memopt.graph.op_types import DT_RESOURCE, DT_VARIANT
from memopt.graph.traversal import Numbering
from memopt.shapes.function_calls import LOOPS

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node, Tensor, Use


class Body(NamedTuple):
    """A function of a loop as a graph.

    Attributes:
        graph: Its operations.
        arguments: By number: what it is given.
        results: By number: what it gives, by whoever has made it.
        ends: By number: what hands a result on.
    """

    graph: Graph
    arguments: tuple[Node, ...]
    results: tuple[Tensor, ...]
    ends: tuple[Node, ...]

    @classmethod
    def of(cls, library: Library, name: str) -> Body:
        """That of a function of the library."""
        graph = library.graph(name)
        numbered = {op: {n.attributes["index"].i: n for n in graph if n.op == op} for op in _ENDS}
        arguments, ends = ([n[i] for i in sorted(n)] for n in numbered.values())
        results = tuple(source(node.inputs[0]) for node in ends)
        return cls(graph, tuple(arguments), results, tuple(ends))

    def hands_on(self, number: int) -> bool:
        """Whether a turn gives what it is given."""
        return self.results[number].node is self.arguments[number]


class Loop(NamedTuple):
    """A While.

    Attributes:
        node: The operation.
        test: The function that says whether another turn follows.
        body: The function that is one turn.
    """

    node: Node
    test: Body
    body: Body

    @classmethod
    def of(cls, node: Node, library: Library) -> Loop:
        """That of an operation whose functions are in the library."""
        bodies = (Body.of(library, name) for name in _function_names(node))
        return cls(node, *bodies)

    @property
    def body_name(self) -> str:
        """The name of the function that is one turn."""
        return _function_names(self.node)[1]


class LoopPair(NamedTuple):
    """A loop, and that of its gradient, which takes out of lists what the first has put in.

    Positions are those of a loop's variables.

    Attributes:
        forward: The first loop.
        backward: That of its gradient.
        lists: The positions of the lists, in the first loop and in the other.
        unread: The positions of further lists in the first loop, of which nobody reads anything.
        pushed: What a turn of the first loop puts in, list by list.
        state: What of the first loop's variables a turn has to be given to compute that again,
            and that changes from turn to turn.
        fixed: What it has to be given and does not change.
        variables: The resources from which it reads values.
    """

    forward: Loop
    backward: Loop
    lists: tuple[tuple[int, int], ...]
    unread: tuple[int, ...]
    pushed: tuple[Tensor, ...]
    state: tuple[int, ...]
    fixed: tuple[int, ...]
    variables: tuple[int, ...]


class UnfitError(Exception):
    """Why a loop cannot run again from the state of a turn."""


class PairedLists(NamedTuple):
    """A loop, another one that takes out of lists what it has put in, and these lists.

    Positions are those of a loop's variables.

    Attributes:
        forward: The first loop.
        backward: The other one.
        lists: The positions of the lists, in the first loop and in the other.
        unread: The positions of further lists in the first loop, of which nobody reads anything.
    """

    forward: Loop
    backward: Loop
    lists: tuple[tuple[int, int], ...]
    unread: tuple[int, ...]

    def pushed(self, position: int) -> Tensor:
        """What a turn of the first loop puts into a list."""
        return self.forward.body.results[position].node.inputs[1]

    def popped(self, slot: int) -> Node:
        """What takes it out in the other one."""
        ((pop, _),) = self.backward.body.arguments[slot].output().uses
        return pop


def find_pairs(graph: Graph, named: Collection[str]) -> Iterator[tuple[Node, LoopPair | str]]:
    """The loops of which another one takes out what each turn has kept, or why one is left alone.

    Args:
        graph: The graph with the loops; their functions are in its library.
        named: Names of the nodes that must stay; what they do not depend on does not run.
    """
    library = graph.library
    for lists in find_paired_lists(graph, named):
        assert isinstance(library, Library)
        try:
            yield lists.forward.node, _pair(lists, library)
        except UnfitError as reason:
            yield lists.forward.node, str(reason)


def find_paired_lists(graph: Graph, named: Collection[str]) -> Iterator[PairedLists]:
    """The loops of which another one takes out what each turn has put in.

    Pairs come in the order of the graph. A list counts where nobody but the loop puts into it, and
    nobody but one other loop takes out.

    Args:
        graph: The graph with the loops; their functions are in its library.
        named: Names of the nodes that must stay; what they do not depend on does not run.
    """
    library = graph.library
    if not isinstance(library, Library):
        return
    known = frozenset(library.names())
    for node in _running(graph, named):
        if node.op not in LOOPS or not known.issuperset(_function_names(node)):
            continue
        forward = Loop.of(node, library)
        read, unread = _find_lists(forward)
        for reader in dict.fromkeys(user for user, _ in read.values()):
            if not known.issuperset(_function_names(reader)):
                continue
            backward = Loop.of(reader, library)
            lists = tuple(
                (position, slot)
                for position, (user, slot) in read.items()
                if user is reader and _only_pops(backward, slot, named)
            )
            if lists:
                yield PairedLists(forward, backward, lists, unread)


def _running(graph: Graph, named: Collection[str]) -> Iterator[Node]:
    numbering = Numbering.of(graph)
    runs = numbering.running_for(named)
    return (node for node, is_running in zip(numbering.nodes, runs, strict=True) if is_running)


_ENDS = (ARGUMENT, RESULT)


def _function_names(node: Node) -> tuple[str, str]:
    test, body = (node.attributes.get(name) for name in ("cond", "body"))
    return ("" if test is None else test.func.name, "" if body is None else body.func.name)


def source(tensor: Tensor) -> Tensor:
    """What a tensor is handed on from."""
    while tensor.node.op == "Identity":
        tensor = tensor.node.inputs[0]
    return tensor


def _find_lists(loop: Loop) -> tuple[dict[int, Use], tuple[int, ...]]:
    """The lists into which every turn puts one element.

    Returns:
        By position: the loop that has the list afterwards, and where; and the positions of those
        that nobody has.
    """
    read: dict[int, Use] = {}
    unread = []
    for position in range(len(loop.node.inputs)):
        if not _only_fills(loop, position):
            continue
        uses = loop.node.output(position).uses
        if not uses:
            unread.append(position)
        elif len(uses) == 1 and uses[0][0].op in LOOPS:
            read[position] = uses[0]
    return read, tuple(unread)


def _only_fills(loop: Loop, position: int) -> bool:
    """Whether every turn puts one element into a list, and nothing else is done with it."""
    push, argument = loop.body.results[position].node, loop.body.arguments[position]
    return (
        loop.node.inputs[position].node.op == "EmptyTensorList"
        and push.op == "TensorListPushBack"
        and push.inputs[0].node is argument
        and len(argument.output().uses) == len(push.output().uses) == 1
        and not loop.test.arguments[position].output().uses
    )


def _only_pops(loop: Loop, position: int, named: Container[str]) -> bool:
    """Whether every turn takes one element out of a list, and nothing else is done with it."""
    uses = loop.body.arguments[position].output().uses
    left = loop.node.output(position)
    if len(uses) != 1 or len(idle_readers(left, named)) != len(left.uses):
        return False
    pop = uses[0][0]
    is_own = loop.body.results[position] is pop.output()
    is_read = loop.test.arguments[position].output().uses
    return pop.op == "TensorListPopBack" and is_own and not is_read


def idle_readers(tensor: Tensor, named: Container[str] = ()) -> list[Node]:
    """The nodes that hand a tensor on to nobody, and need not be there."""
    return [
        node
        for node, _ in tensor.uses
        if node.op == "Identity" and not node.users and node.name not in named
    ]


def _pair(known: PairedLists, library: Library) -> LoopPair:
    """Everything that is known of a pair.

    Raises:
        UnfitError: The first loop cannot run again.
    """
    forward, backward, lists, unread = known
    _require_one_device(forward, backward)
    filled = [position for position, _ in lists]
    pushed = tuple(map(known.pushed, filled))
    needed = _needed(forward, pushed, {*filled, *unread}, library)
    types = op_types.port_types(forward.node, library).outputs
    state, fixed, variables = [], [], []
    for position in sorted(needed):
        if not forward.body.hands_on(position):
            if types[position] in (DT_RESOURCE, DT_VARIANT):
                raise UnfitError("a turn changes a list that the next one reads")
            state.append(position)
        elif types[position] == DT_RESOURCE:
            variables.append(position)
        else:
            fixed.append(position)
    return LoopPair(*known, pushed, tuple(state), tuple(fixed), tuple(variables))


def _require_one_device(*loops: Loop) -> None:
    """What a list holds may lie elsewhere than the list: on the host, beside one GPU at most.

    Raises:
        UnfitError: An operation of a turn is on a second device, or on one of another kind.
    """
    nodes = [node for loop in loops for body in (loop.test, loop.body) for node in body.graph]
    away = [node for node in nodes if node.device and "CPU" not in node.device.upper()]
    found = next((node for node in away if "GPU" not in node.device.upper()), None)
    found = found or next((node for node in away if node.device != away[0].device), None)
    if found is not None:
        raise UnfitError(
            f"{found.name!r} is on {found.device}; only loops on the host and one GPU are split"
        )


def _needed(loop: Loop, pushed: Iterable[Tensor], lists: set[int], library: Library) -> set[int]:
    """The variables of a loop on which what is put into its lists depends, and the test.

    Raises:
        UnfitError: Something on the way would do more than compute.
    """
    numbers = {argument: number for number, argument in enumerate(loop.body.arguments)}
    tested = {argument: number for number, argument in enumerate(loop.test.arguments)}
    needed: set[int] = set()
    pending: list[Node] = [loop.test.results[0].node]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in tested:
            needed.add(tested[node])
            if _is_resource(node.output()):
                raise UnfitError("its test reads a variable")
            continue
        _require_pure(node, library)
        pending += [tensor.node for tensor in node.inputs]
        pending += node.control_inputs
    pending = [tensor.node for tensor in pushed]
    pending += [loop.body.results[number].node for number in needed]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        number = numbers.get(node)
        if number is None:
            _require_pure(node, library)
            pending += [tensor.node for tensor in node.inputs]
            pending += node.control_inputs
        elif number in lists:
            raise UnfitError("a turn reads a list that it fills")
        else:
            needed.add(number)
            pending.append(loop.body.results[number].node)
    return needed


def _require_pure(node: Node, library: Library) -> None:
    """An operation only computes, or reads a variable.

    Raises:
        UnfitError: It does more.
    """
    resources = [tensor for tensor in map(source, node.inputs) if _is_resource(tensor)]
    if node.op == "Identity" or (node.op == "ReadVariableOp" and resources):
        return
    if resources:
        raise UnfitError(f"{node.op} {node.name!r} uses a resource, and would do so twice")
    if op_types.is_stateful(node, library):
        raise UnfitError(f"{node.op} {node.name!r} has effects or is random, and would run twice")


def _is_resource(tensor: Tensor) -> bool:
    """Whether a function is given a tensor, and it is a resource."""
    node = tensor.node
    return node.op == ARGUMENT and bool(node.attributes["T"].type == DT_RESOURCE)


def reads_of(body: Body, position: int) -> list[Node]:
    """The operations that read a variable that a function is given."""
    argument = body.arguments[position]
    reads = (node for node in body.graph if node.op == "ReadVariableOp")
    return [node for node in reads if source(node.inputs[0]).node is argument]


def why_asked_for(loops: Iterable[Node], context: Context) -> str:
    """Who else gives what loops compute, or asks for it; "" if nobody does."""
    asked = {name.partition(":")[0] for name in context.fetched_tensors}
    for loop in loops:
        if loop.name in context.fed:
            return f"{loop.name!r} is fed, so it does not run"
        if loop.name in asked:
            return f"a tensor of {loop.name!r} is fetched"
    return ""
