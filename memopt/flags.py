"""MEMOPT_FLAGS: options from the environment, for programs that are not to be changed.

In the manner of XLA_FLAGS, and with the options of Microsoft's rematerialization for XLA.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from memopt.errors import OptionsError
from memopt.options import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MEMOPT_FLAGS"


@dataclass(frozen=True)
class Flags:
    """What can be asked for by flags; `None` for what was not.

    Attributes:
        level: How much is done.
        budget: What may be in use at any moment of the step; `memory_limit` means the same.
        algorithm: How a budget is kept.
        scheduler: How the order is found.
        small_node_limit: MiB; what makes no more is not recomputed for its own sake.
        dump_dot: A file for the graph before and after, as DOT.
        dump_memlog: A file for the memory in use at each operation.
        kernels: Whose memory and times are predicted: "rules", "measured" or a file.
        report_dir: Inside TensorFlow: a folder for a report of each graph that is rewritten.
        min_nodes: Inside TensorFlow: graphs with fewer nodes are left alone.
        only_lower: Inside TensorFlow: whether a graph stays as it is that is predicted to need
            hardly less memory rewritten; "true" or "false".
        only: Inside TensorFlow: "training" for graphs that compute gradients, "all" for all.
        deadline_ms: Inside TensorFlow: milliseconds after which a graph is left as it is.
        planning_seconds: Inside TensorFlow: seconds that a plan for a budget may take.
        same_bits: Inside TensorFlow: whether functions that XLA compiles stay as they are if they
            would compute other last bits; "true" or "false".
        verbose: Inside TensorFlow: 1 for one line for each rewritten step, through `logging`.
    """

    level: str | None = None
    budget: Budget | int | str | None = None
    algorithm: str | None = None
    scheduler: str | None = None
    small_node_limit: int | None = None
    dump_dot: str | None = None
    dump_memlog: str | None = None
    kernels: str | os.PathLike[str] | None = None
    report_dir: str | None = None
    min_nodes: int | None = None
    only_lower: bool | None = None
    only: Literal["training", "all"] | None = None
    deadline_ms: int | None = None
    planning_seconds: int | None = None
    same_bits: bool | None = None
    verbose: int | None = None

    @classmethod
    def parse(cls, text: str) -> Flags:
        """Flags as in "--budget=60% --algorithm=path", with quotes as in a shell.

        Raises:
            OptionsError: There is no such flag, or its value is not valid.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise OptionsError(f"{VARIABLE}: {error}: {text!r}") from None
        values: dict[str, Any] = {}
        for word in words:
            name, value = _split(word)
            values[name] = value
        return cls(**values)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Flags:
        """The flags that MEMOPT_FLAGS sets.

        Raises:
            OptionsError: It holds something else.
        """
        return cls.parse(environment.get(VARIABLE, ""))

    def overridden_by(self, others: Flags) -> Flags:
        """These flags, but for those that others set."""
        given = {name: value for name, value in vars(others).items() if value is not None}
        return replace(self, **given)


_NUMBERS = {
    "small_node_limit": "MiB",
    "min_nodes": "nodes",
    "deadline_ms": "milliseconds",
    "planning_seconds": "seconds",
    "verbose": "lines",
}
_SWITCHES = ("only_lower", "same_bits")
_SWITCHED = {"true": True, "false": False}
_NAMES = (*(field.name for field in fields(Flags)), "memory_limit")


def _split(word: str) -> tuple[str, Any]:
    """The name and the value of one flag."""
    flag, equals, text = word.removeprefix("--").partition("=")
    name = flag.replace("-", "_")
    if not word.startswith("--") or name not in _NAMES:
        known = ", ".join(f"--{name}" for name in _NAMES)
        raise OptionsError(f"{VARIABLE}: there is no flag {word!r}; the flags: {known}")
    if not equals or not text:
        raise OptionsError(f"{VARIABLE}: write --{name}=VALUE, not {word!r}")
    if name in ("budget", "memory_limit"):
        return "budget", Budget.parse(text)
    if name in _SWITCHES:
        if text not in _SWITCHED:
            raise OptionsError(f"{VARIABLE}: write --{name}=true or --{name}=false, not {word!r}")
        return name, _SWITCHED[text]
    if name not in _NUMBERS:
        return name, text
    if not text.isdecimal():
        raise OptionsError(f"{VARIABLE}: {word!r} is no number of {_NUMBERS[name]}")
    return name, int(text)
