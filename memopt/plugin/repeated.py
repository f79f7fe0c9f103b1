"""Graphs that TensorFlow hands over again and again: what was made of them is made once.

A function that a data set runs is instantiated anew for each iterator, with a graph that is the
same as before but for the order in which its bytes stand.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

from memopt.options import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.plugin.policy import Policy
    from memopt.plugin.records import GraphRecord

_MOST_BYTES = 64 << 20
_MOST_GRAPHS = 1000


class Rewriting(NamedTuple):
    """What came of a graph.

    Attributes:
        rewritten: The graph that ran in its place, as bytes; empty where it stayed as it was.
        record: What was told of that.
    """

    rewritten: bytes
    record: GraphRecord


class Repeated:
    """The last rewritings of this process; safe to use from all threads.

    Args:
        most_bytes: What they may take together; those that were not used for longest go first.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._found: OrderedDict[str, Rewriting] = OrderedDict()

    def find(self, key: str) -> Rewriting | None:
        """What came of it before, if that is known still."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: str, rewriting: Rewriting) -> None:
        """Keep what came of it."""
        with self._lock:
            self._found[key] = rewriting
            while self._takes_too_much():
                self._found.popitem(last=False)

    def _takes_too_much(self) -> bool:
        size_bytes = sum(len(each.rewritten) for each in self._found.values())
        return size_bytes > self._most_bytes or len(self._found) > _MOST_GRAPHS

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._found.clear()


REPEATED = Repeated()


def options_of(options: Policy | Budget) -> Iterator[object]:
    """All options of a policy, and of its budget; their own texts leave out what is long."""
    for field in fields(options):
        value = getattr(options, field.name)
        yield tuple(options_of(value)) if isinstance(value, Budget) else value


def key_of(graph_def: GraphDef, facts: Iterable[object]) -> str:
    """A digest that is the same for the same graph and facts, in this process."""
    digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True))
    for fact in facts:
        digest.update(repr(fact).encode())
    return digest.hexdigest()
