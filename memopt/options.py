"""Levels of optimization, spelled as in RewriterConfig, and options in and out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING

from memopt.errors import OptionsError

if TYPE_CHECKING:
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

DEFAULT_TARGET_SCOPE = "gradients/"
"""Where Grappler looks for gradients unless told otherwise."""


class Level(StrEnum):
    """How much is done; the values of RewriterConfig's MemOptType that memopt has."""

    NO_MEM_OPT = "no_mem_opt"
    MANUAL = "manual"
    RECOMPUTATION_HEURISTICS = "recomputation_heuristics"

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level of that name, in any case.

        Raises:
            OptionsError: There is no such level.
        """
        try:
            return cls(text.lower())
        except ValueError:
            known = ", ".join(level.value for level in cls)
            raise OptionsError(f"there is no level {text!r}; the levels: {known}") from None


@dataclass(frozen=True)
class Options:
    """What RewriterConfig says about memory optimization.

    Attributes:
        level: How much is done.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
    """

    level: Level = Level.RECOMPUTATION_HEURISTICS
    target_scope: str = DEFAULT_TARGET_SCOPE

    @classmethod
    def from_rewriter_config(cls, config: RewriterConfig) -> Options:
        """The options that a RewriterConfig sets.

        Raises:
            OptionsError: It asks for a level that memopt does not have.
        """
        number = config.memory_optimization
        known = type(config).MemOptType.DESCRIPTOR.values_by_number.get(number)
        # A later TensorFlow may have levels that this one has no name for.
        name = str(number) if known is None else known.name
        scope = config.memory_optimizer_target_node_name_scope or DEFAULT_TARGET_SCOPE
        return cls(Level.parse(name), scope)

    def to_rewriter_config(self) -> RewriterConfig:
        """A RewriterConfig that asks TensorFlow's own optimizer for the same."""
        from tensorflow.core.protobuf import rewriter_config_pb2

        config: RewriterConfig = rewriter_config_pb2.RewriterConfig()
        config.memory_optimization = config.MemOptType.Value(self.level.name)
        config.memory_optimizer_target_node_name_scope = self.target_scope
        return config


_BYTES = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[KMGT]i?)?B?", re.IGNORECASE)
_MOST_BYTES = (1 << 63) - 1


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: "1500000", "512MiB", "6 GB".

    Raises:
        OptionsError: It is no positive number of bytes.
    """
    match = _BYTES.fullmatch(text.strip())
    if match is not None:
        unit = (match["unit"] or "").lower()
        base = 1024 if unit.endswith("i") else 1000
        size = Decimal(match["number"]) * base ** " kmgt".index(unit[:1] or " ")
        if 1 <= size <= _MOST_BYTES:
            return int(size)
    raise OptionsError(f"{text!r} is no number of bytes, such as 512MiB")
