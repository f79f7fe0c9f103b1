"""SerialLoops: loops whose turns do not pile up, so that an order inside them holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from memopt.errors import OptionsError
from memopt.graph import op_types
from memopt.graph.attributes import integer_attribute
from memopt.graph.functiondef import Library
from memopt.graph.rewriter import Touches
from memopt.passes.base import Pass
from memopt.shapes.function_calls import LOOPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memopt.context import Context
    from memopt.graph.graph import Graph, Node
    from memopt.graph.rewriter import Rewriter


@dataclass(frozen=True)
class SerialLoops(Pass):
    """Let the turns of every loop run one after the other, or few at once.

    TensorFlow begins a turn as soon as its inputs are there, while up to `parallel_iterations`
    earlier ones still run. The tensors of several turns are alive together then, how many depends
    on chance, and a control edge orders only what runs in the same turn. With one turn at a time a
    loop has ended as a whole when its first result comes out. Where operations run at once, so may
    the next turn; what both have in use is what is predicted. The results are the same.

    1. While and StatelessWhile get `parallel_iterations=1`, or more with threads for them.
    2. The Enters of a loop of TensorFlow 1 get 1, all those of one frame alike: the first of them
       that runs decides for all. What follows such a loop waits for single results of it.

    Refused, with a reason in the report: a loop that is fed, since it does not run; and one with
    operations that wait for others without an edge (queues, stages, collectives), since what they
    wait for may be done by a later turn, and the step would hang.
    """

    name: ClassVar[str] = "serial-loops"
    touches: ClassVar[frozenset[Touches]] = frozenset({Touches.ATTRIBUTES})

    at_once: int = 2
    """How many turns run at once where as many operations may. One alone takes recurrent layers
    half as long again, since what the next turn reads is not made ready meanwhile; three gain no
    more than two."""

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise OptionsError(f"{self.name}: at_once is {self.at_once}, less than 1")

    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Look at each loop of functions, then at each frame, in the order of the graph."""
        graph = rewriter.graph
        for node in [node for node in graph if node.op in LOOPS]:
            most = min(self.at_once, context.inter_op_threads)
            _limit(rewriter, context, [node], most, "a loop's")
        for name, enters in _frames(graph).items():
            whose = f"the frame {name.decode(errors='replace')!r}'s"
            _limit(rewriter, context, enters, 1, whose)


def _limit(
    rewriter: Rewriter, context: Context, nodes: Sequence[Node], most: int, whose: str
) -> None:
    """Set the attribute of the nodes that begin one loop, unless something speaks against it."""
    at_once = max(map(op_types.turns_at_once, nodes))
    if at_once <= most:
        return
    fed = next((node for node in nodes if node.name in context.fed), None)
    if fed is not None:
        rewriter.decline(fed, "it is fed, so it does not run")
        return
    inside = _inside(nodes) if nodes[0].op in op_types.ENTERS else nodes
    waiting = _find_waiting(rewriter.graph, inside)
    if waiting:
        reason = f"{waiting} in it may wait for a later turn; one turn at a time would hang"
        rewriter.decline(nodes[0], reason)
        return
    how = "one after the other" if most == 1 else f"at most {most} at once"
    reason = f"{whose} turns run {how}; up to {at_once} could be alive together"
    with rewriter.edit(reason):
        for node in nodes:
            rewriter.set_attribute(node, op_types.TURNS_AT_ONCE, integer_attribute(most))


def _frames(graph: Graph) -> dict[bytes, list[Node]]:
    """The Enters by the name of their frame."""
    frames: dict[bytes, list[Node]] = {}
    for node in graph:
        if node.op in op_types.ENTERS:
            name = node.attributes.get("frame_name")
            frames.setdefault(b"" if name is None else name.s, []).append(node)
    return frames


def _inside(enters: Iterable[Node]) -> list[Node]:
    """The nodes of a frame, those of frames inside it included: what comes before its Exits."""
    pending = [(node, 1) for node in enters]
    found: dict[Node, None] = {}
    while pending:
        node, depth = pending.pop()
        if node in found:
            continue
        found[node] = None
        behind = depth - (node.op in op_types.EXITS)
        if behind:
            pending += [(user, behind + (user.op in op_types.ENTERS)) for user in node.users]
    return list(found)


def _find_waiting(graph: Graph, nodes: Iterable[Node]) -> str:
    """An operation that waits without an edge, in words, among nodes and what they call, or ""."""
    library = graph.library
    pending = list(nodes)
    known = frozenset(library.names() if isinstance(library, Library) else ())
    unseen = set(known)
    while pending:
        node = pending.pop()
        if node.op.startswith(op_types.WAITING):
            return f"the {node.op} {node.name!r}"
        if not isinstance(library, Library):
            continue
        for name in op_types.called_functions(node, library):
            if name in unseen:
                unseen.remove(name)
                pending.extend(library.graph(name))
            elif library.op_def(name) is not None and name not in known:
                return f"what the function {name!r} has, of which only the name is known,"
    return ""
