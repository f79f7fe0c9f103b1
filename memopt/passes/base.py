"""What a pass is: a frozen dataclass with a name, whose fields are its options."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memopt.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.context import Context
    from memopt.graph.rewriter import Declined, Edit, Rewriter, Touches

_SPEC = re.compile(r"(?P<name>[a-z][a-z0-9-]*)(?:\{(?P<options>[^}]*)\})?")


@dataclass(frozen=True)
class Pass(ABC):
    """One named rewrite of a graph in place; the fields are its options.

    `str(pass_)` prints `name{option=value}` with the options that differ from their defaults, and
    `parse` reads it back to an equal pass.
    """

    name: ClassVar[str]
    touches: ClassVar[frozenset[Touches]]
    """All kinds of change that the edits can make; the optimizer checks it."""

    @abstractmethod
    def run(self, rewriter: Rewriter, context: Context) -> None:
        """Read `rewriter.graph` and change it through `rewriter` alone.

        Every edit has a reason, every candidate left alone a `decline`. The same graph and context
        give the same edits in every process.
        """

    def wants_more(self, edits: Sequence[Edit], declined: Sequence[Declined]) -> bool:
        """Whether what the pass just did is a reason for another iteration of the repeated passes.

        Args:
            edits: What it changed.
            declined: What it left alone.
        """
        del edits, declined
        return False

    def __str__(self) -> str:
        options = ",".join(
            f"{field.name}={_print_option(getattr(self, field.name))}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        )
        return f"{self.name}{{{options}}}" if options else self.name

    @classmethod
    def defaults(cls) -> tuple[str, ...]:
        """Every option with its default, as `option=value`."""
        return tuple(
            f"{field.name}={_print_option(field.default)}" for field in dataclasses.fields(cls)
        )

    @classmethod
    def parse(cls, spec: str) -> Self:
        """The pass that `str` printed.

        Raises:
            OptionsError: The name is another pass's, or an option is unknown or of the wrong type.
        """
        return cls().with_options(spec)

    def with_options(self, spec: str) -> Self:
        """The same pass with the options that a text like `str`'s names set.

        Raises:
            OptionsError: The name is another pass's, or an option is unknown or of the wrong type.
        """
        match = _SPEC.fullmatch(spec)
        if match is None or match["name"] != self.name:
            raise OptionsError(f"{spec!r} does not describe the pass {self.name!r}")
        # Every option has a default, whose type is the option's.
        known = {field.name: type(field.default) for field in dataclasses.fields(self)}
        options: dict[str, Any] = {}
        for part in filter(None, (match["options"] or "").split(",")):
            key, equals, text = part.partition("=")
            if not equals or key not in known:
                names = ", ".join(sorted(known)) or "none"
                raise OptionsError(f"{self.name}: no option {part!r}; its options: {names}")
            options[key] = _read_option(self.name, key, known[key], text)
        return dataclasses.replace(self, **options)


def _print_option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read_option(pass_name: str, key: str, kind: object, text: str) -> object:
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind is int and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if kind is float and re.fullmatch(r"-?[0-9.]+(?:e-?[0-9]+)?", text):
        return float(text)
    if kind is str:
        return text
    raise OptionsError(f"{pass_name}: option {key!r} cannot be {text!r}")
