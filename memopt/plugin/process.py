"""What exists once in a process, whatever is reloaded: registrations, callbacks, the rewriter.

TensorFlow keeps a registered plugin for the life of the process, and ends the process if one is
registered twice. So what was registered is kept on the tensorflow module, in plain Python objects
that another copy of this package, or a reloaded one, understands.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Rewrite = Callable[[bytes, int, str], bytes | None]
    RewriteFunction = Callable[[Any], Any | None]

_NAME = "_memopt_process"


class Process:
    """The one state of a process; every instance shows the same.

    Importing TensorFlow is the first thing that making one does.
    """

    def __init__(self) -> None:
        import tensorflow as tf

        first: dict[str, Any] = {
            "lock": threading.RLock(),
            "how": {},
            "failures": {},
            "kept": [],
            "rewrite": None,
            "rewrite_function": None,
            "numbers": {},
        }
        # One step of the interpreter, so that two threads end up with the same.
        self._state: dict[str, Any] = vars(tf).setdefault(_NAME, first)

    @property
    def lock(self) -> threading.RLock:
        """Held while something is registered or switched."""
        lock: threading.RLock = self._state["lock"]
        return lock

    @property
    def registered(self) -> dict[str, str]:
        """By device type how memopt was registered: "symbol", "shim" or "transforms"."""
        registered: dict[str, str] = self._state["how"]
        return registered

    @property
    def failures(self) -> dict[str, str]:
        """By way of registering why it did not work."""
        failures: dict[str, str] = self._state["failures"]
        return failures

    @property
    def kept(self) -> list[Any]:
        """What C code points to, which must live as long as the process."""
        kept: list[Any] = self._state["kept"]
        return kept

    @property
    def rewrite(self) -> Rewrite | None:
        """What rewrites a graph: bytes of a GraphDef, TensorFlow's item, type of device.

        It returns the bytes of another GraphDef, or `None` to leave the graph as it is.
        """
        rewrite: Rewrite | None = self._state["rewrite"]
        return rewrite

    @rewrite.setter
    def rewrite(self, rewrite: Rewrite | None) -> None:
        self._state["rewrite"] = rewrite

    @property
    def rewrite_function(self) -> RewriteFunction | None:
        """What rewrites a function as soon as it is traced, where no graph optimizer can be."""
        rewrite: RewriteFunction | None = self._state["rewrite_function"]
        return rewrite

    @rewrite_function.setter
    def rewrite_function(self, rewrite: RewriteFunction | None) -> None:
        self._state["rewrite_function"] = rewrite

    def number_of(self, key: object) -> int:
        """A number from 1 that stands for this key and no other, as long as the process lives."""
        with self.lock:
            numbers: dict[object, int] = self._state["numbers"]
            return numbers.setdefault(key, len(numbers) + 1)
