"""What Grappler makes of a function, without running it."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from memopt.plugin import marks
from memopt.plugin.native_item import is_function, read_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

_capturing: ContextVar[Capture | None] = ContextVar("memopt_capture", default=None)


class Capture:
    """Takes the graph that Grappler hands over last.

    Args:
        in_session: Whether it is the graph of a session, and not of a function.
    """

    def __init__(self, *, in_session: bool = False) -> None:
        self._in_session = in_session
        self._graph_def: GraphDef | None = None

    def take(self, graph_def: GraphDef, native: int, device: str) -> GraphDef | None:
        """Keep a graph; what TensorFlow gets in its place, `None` for the same.

        TensorFlow calls twice. What it hands over the first time gets a mark, as when memopt
        rewrites it, so that Grappler does the same then.
        """
        if is_function(graph_def) == self._in_session:
            return None
        self._graph_def = graph_def
        if marks.was_seen(graph_def, device):
            return None
        names = read_names(native)
        marks.mark_seen(graph_def, (*names.fetched, *names.kept), device)
        return graph_def

    def result(self) -> GraphDef | None:
        """The graph; `None` if there was none.

        Without memopt's mark, and without what lies beside what, since all nodes are placed. A node
        that Grappler made after another one has the other one's shapes, which it says are its own,
        as nodes of SavedModels do; TensorFlow would refuse that in a graph that it imports.
        """
        if self._graph_def is not None:
            for node in self._graph_def.node:
                node.attr.pop(marks.SEEN, None)
                node.attr.pop("_class", None)
                if _is_of_grappler(node.name):
                    node.attr.pop("_output_shapes", None)
        return self._graph_def


@contextmanager
def capturing(*, in_session: bool = False) -> Iterator[Capture]:
    """While this thread compiles functions or sessions, take their graphs and rewrite none."""
    capture = Capture(in_session=in_session)
    token = _capturing.set(capture)
    try:
        yield capture
    finally:
        _capturing.reset(token)


def current_capture() -> Capture | None:
    """What takes the graphs of this thread, if anything does."""
    return _capturing.get()


def _is_of_grappler(name: str) -> bool:
    """Whether Grappler made a node: it puts the optimizer that did into the name."""
    parts = name.split("/")
    return any(part == "ConstantFolding" or part.endswith("Optimizer") for part in parts)
