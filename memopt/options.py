"""Levels of optimization, spelled as in RewriterConfig, and options in and out of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
        name = type(config).MemOptType.Name(config.memory_optimization)
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


def parse_bytes(text: str) -> int:
    """A number of bytes as people write it: "1500000", "512MiB", "6 GB".

    Raises:
        OptionsError: It is no positive number of bytes.
    """
    match = _BYTES.fullmatch(text.strip())
    unit = (match["unit"] or "").lower() if match else ""
    base = 1024 if unit.endswith("i") else 1000
    size = int(float(match["number"]) * base ** " kmgt".index(unit[:1] or " ")) if match else 0
    if size < 1:
        raise OptionsError(f"{text!r} is no number of bytes, such as 512MiB")
    return size
