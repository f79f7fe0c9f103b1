"""Levels of optimization, spelled as in RewriterConfig, and options in and out of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from operator import index
from typing import TYPE_CHECKING, SupportsIndex, cast

from memopt.display import DisplayedFields
from memopt.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

DEFAULT_TARGET_SCOPE = "gradients/"
"""Where Grappler looks for gradients unless told otherwise."""


class Level(StrEnum):
    """How much is done; the values of RewriterConfig's MemOptType, and two of memopt's own.

    The properties say which steps a level takes, as `MemoryOptimizer::Optimize` in Grappler's
    memory_optimizer.cc.

    IMPROVED_HEURISTICS takes the steps of HEURISTICS, but swaps in a better way than Grappler; see
    `Swapping.improved`. ORDERED recomputes and swaps nothing: it puts the operations into an order
    that needs little memory, and holds TensorFlow to it; see `Ordering`.
    """

    DEFAULT_MEM_OPT = "default_mem_opt"
    NO_MEM_OPT = "no_mem_opt"
    MANUAL = "manual"
    HEURISTICS = "heuristics"
    SWAPPING_HEURISTICS = "swapping_heuristics"
    RECOMPUTATION_HEURISTICS = "recomputation_heuristics"
    SCHEDULING_HEURISTICS = "scheduling_heuristics"
    IMPROVED_HEURISTICS = "improved_heuristics"
    ORDERED = "ordered"

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level of that name, in any case.

        Raises:
            OptionsError: There is no such level.
        """
        try:
            return cls(str(text).lower())
        except ValueError:
            known = ", ".join(level.value for level in cls)
            raise OptionsError(f"there is no level {text!r}; the levels: {known}") from None

    @property
    def relaxes(self) -> bool:
        """Whether assignments are marked that may take over the buffer they are given."""
        return self is not Level.NO_MEM_OPT

    @property
    def recomputes(self) -> bool:
        """Whether what is cheap is recomputed for gradients."""
        return self in (*_WHOLE, Level.RECOMPUTATION_HEURISTICS)

    @property
    def recomputes_by_hint(self) -> bool:
        """Whether what carries `_recompute_hint` is recomputed for gradients."""
        return self.recomputes or self is Level.MANUAL

    @property
    def schedules(self) -> bool:
        """Whether sums of many tensors are accumulated where memory is short."""
        return self in (*_WHOLE, Level.DEFAULT_MEM_OPT, Level.SCHEDULING_HEURISTICS)

    @property
    def swaps(self) -> bool:
        """Whether tensors are swapped out to the host where memory is short."""
        return self in (*_WHOLE, Level.DEFAULT_MEM_OPT, Level.SWAPPING_HEURISTICS)

    @property
    def swaps_by_hint(self) -> bool:
        """Whether inputs that `_swap_to_host` names are swapped out, memory short or not."""
        return self.swaps or self is Level.MANUAL

    @property
    def improves(self) -> bool:
        """Whether it goes beyond Grappler; TensorFlow does not know such a level."""
        return self in (Level.IMPROVED_HEURISTICS, Level.ORDERED)

    @property
    def orders(self) -> bool:
        """Whether operations are held to an order."""
        return self is Level.ORDERED


_WHOLE = (Level.HEURISTICS, Level.IMPROVED_HEURISTICS)
"""The levels that take every step."""


@dataclass(frozen=True, repr=False)
class Options(DisplayedFields):
    """What RewriterConfig says about memory optimization.

    Attributes:
        level: How much is done.
        target_scope: The name scope of gradient operations; "auto" finds them by structure, and ""
            means Grappler's own.
        deadline_ms: Milliseconds after which no further step is begun; 0 for no limit.
    """

    level: Level = Level.HEURISTICS
    target_scope: str = DEFAULT_TARGET_SCOPE
    deadline_ms: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "target_scope", self.target_scope or DEFAULT_TARGET_SCOPE)
        if self.deadline_ms < 0:
            raise OptionsError(f"a deadline is after 0 ms or more, not {self.deadline_ms}")

    @classmethod
    def from_rewriter_config(cls, config: RewriterConfig) -> Options:
        """The options that a RewriterConfig sets.

        As in TensorFlow 2.21 (`DeadlineMicroSeconds` in meta_optimizer.cc) a timeout that is not
        set, or negative, is none. Which optimizers run at all (`optimizers`,
        `disable_meta_optimizer`) is another question.

        Raises:
            OptionsError: It asks for a level that memopt does not have.
        """
        number = config.memory_optimization
        known = type(config).MemOptType.DESCRIPTOR.values_by_number.get(number)
        # A later TensorFlow may have levels that this one has no name for.
        name = str(number) if known is None else known.name
        return cls(
            Level.parse(name),
            config.memory_optimizer_target_node_name_scope,
            max(0, config.meta_optimizer_timeout_ms),
        )

    @classmethod
    def from_config_proto(cls, config: ConfigProto, xla_flags: str = "") -> Options:
        """The options that a session's configuration sets.

        Where XLA compiles by itself, DEFAULT_MEM_OPT is NO_MEM_OPT (`MemoryOptimizerEnabled` in
        meta_optimizer.cc); a level that is asked for by name stays.

        Args:
            config: The configuration.
            xla_flags: The environment variable TF_XLA_FLAGS, whose `--tf_xla_auto_jit` comes before
                what the configuration says.

        Raises:
            OptionsError: It asks for a level that memopt does not have.
        """
        options = cls.from_rewriter_config(config.graph_options.rewrite_options)
        jit_level = config.graph_options.optimizer_options.global_jit_level
        if options.level is Level.DEFAULT_MEM_OPT and _compiles_all(jit_level, xla_flags):
            return replace(options, level=Level.NO_MEM_OPT)
        return options

    def to_rewriter_config(self) -> RewriterConfig:
        """A RewriterConfig that asks TensorFlow's own optimizer for the same.

        Raises:
            OptionsError: TensorFlow does not have the level.
        """
        if self.level.improves:
            raise OptionsError(f"TensorFlow has no level {self.level.value!r}; it is memopt's own")
        from tensorflow.core.protobuf import rewriter_config_pb2

        config: RewriterConfig = rewriter_config_pb2.RewriterConfig()
        config.memory_optimization = config.MemOptType.Value(self.level.name)
        config.memory_optimizer_target_node_name_scope = self.target_scope
        config.meta_optimizer_timeout_ms = self.deadline_ms
        return config


_AUTO_JIT = re.compile(
    r"--tf_xla_auto_jit=(?:(?P<both>[+-]?[0-9]+)|single-gpu\((?P<single>[+-]?[0-9]+)\)|fusible)"
)


def _compiles_all(jit_level: int, xla_flags: str) -> bool:
    """Whether XLA compiles every graph, of one GPU and of several (`IsXlaGlobalJitOn`).

    Levels are GlobalJitLevel's: -1 for off, 0 for what is usual, which is off, 1 and 2 for on.
    """
    single = several = 0
    for flag in xla_flags.split():
        match = _AUTO_JIT.fullmatch(flag)
        if match is None:
            continue
        if match["single"]:
            single = int(match["single"])
        else:
            single = several = int(match["both"] or 1)
    return min(single or jit_level, several or jit_level) >= 1


def check_whole(name: str, value: object, least: int = 0) -> None:
    """Check an option that is a whole number.

    Raises:
        OptionsError: It is none, or less than `least`.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionsError(f"{name} is a whole number, not {value!r}")
    number = index(cast("SupportsIndex", value))
    if number < least:
        raise OptionsError(f"{name} is {number}, less than {least}")


def check_seconds(name: str, value: object) -> None:
    """Check an option that is a time in seconds.

    Raises:
        OptionsError: It is none, or less than 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise OptionsError(f"{name} is a number of seconds, 0 or more, not {value!r}")


def as_texts(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """An option that is a sequence of texts, as a tuple.

    Raises:
        OptionsError: It is a single text, or something else.
    """
    if not isinstance(value, str):
        texts = tuple(value) if isinstance(value, Iterable) else (value,)
        if all(isinstance(text, str) for text in texts):
            return texts
    raise OptionsError(f"{name} is a sequence of texts, not {value!r}")


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


UNLIMITED_BYTES = 1 << 62
"""A budget that is more than any step needs."""

_SHARE = re.compile(r"(?P<percent>[0-9]+(?:\.[0-9]+)?)\s*%")
_WHOLE_SHARE = 100
_DEVICE = "device"
_DEVICE_NAME = re.compile(
    r"(?P<where>/job:[^/]+/replica:\d+/task:\d+/device:)?(?:/?device:)?"
    r"(?P<type>[A-Za-z_]+):(?P<index>\d+)"
)
_FRACTION = re.compile(r"[0-9]*\.[0-9]+")


@dataclass(frozen=True, repr=False)
class Budget(DisplayedFields):
    """Bytes that may be in use at any moment of a step, everything included.

    Included are variables, constants, inputs, what is held for the caller, and the step's own.

    Attributes:
        size_bytes: The bytes; 0 for a share.
        percent: The share, in percent, of what the step itself adds at its peak when it runs
            unchanged; what is held comes on top.
        of_device: Whether it is what the device has on which the step runs; that is known inside
            TensorFlow alone.
        devices: Budgets of single devices by name, in bytes or shares, instead of one for each.
    """

    size_bytes: int = 0
    percent: Decimal = Decimal(0)
    of_device: bool = False
    devices: tuple[tuple[str, Budget], ...] = ()

    @classmethod
    def parse(cls, text: int | str | Budget) -> Budget:
        """A budget as people write it: 1500000, "6GiB", "60%", "device", "GPU:0=6GiB,GPU:1=8GiB".

        Raises:
            OptionsError: It is neither a positive number of bytes, nor a positive share, nor that
                word, nor one of the first two for each of some devices.
        """
        if isinstance(text, Budget):
            return text
        if "=" in str(text):
            return cls(devices=_parse_devices(str(text)))
        if str(text).strip().lower() == _DEVICE:
            return cls(of_device=True)
        match = _SHARE.fullmatch(str(text).strip())
        if match is not None and 0 < Decimal(match["percent"]) <= _WHOLE_SHARE:
            return cls(percent=Decimal(match["percent"]))
        try:
            return cls(size_bytes=parse_bytes(str(text)))
        except OptionsError:
            raise OptionsError(
                f"{text!r} is no budget, such as 6GiB, 60%, device or GPU:0=6GiB,GPU:1=8GiB"
            ) from None

    def limit_bytes(self, held_bytes: int, step_peak_bytes: int) -> int:
        """What it means for a step.

        Args:
            held_bytes: In use before the step.
            step_peak_bytes: What the step adds at its peak when it runs unchanged.

        Raises:
            OptionsError: It is the device's, which nobody knows here, or names devices.
        """
        if self.devices:
            names = ", ".join(name for name, _ in self.devices)
            raise OptionsError(f"the budget is one of devices ({names}): give one figure here")
        if self.of_device:
            raise OptionsError(
                'the budget "device" is known where a step runs: use it with memopt.enable or '
                "memopt run, and give bytes here"
            )
        if self.size_bytes:
            return self.size_bytes
        return held_bytes + int(step_peak_bytes * self.percent / _WHOLE_SHARE)

    def __str__(self) -> str:
        if self.of_device:
            return _DEVICE
        if self.devices:
            return ",".join(f"{name}={budget}" for name, budget in self.devices)
        return f"{self.percent}%" if self.percent else str(self.size_bytes)


def _parse_devices(text: str) -> tuple[tuple[str, Budget], ...]:
    found: dict[str, Budget] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        match = _DEVICE_NAME.fullmatch(name.strip())
        budget = Budget.parse(size) if match is not None and "=" not in size else Budget()
        if match is None or not (budget.size_bytes or budget.percent):
            raise OptionsError(f"{part!r} is no budget of a device, such as GPU:0=6GiB")
        device = f"{match['where'] or ''}{match['type'].upper()}:{match['index']}"
        if device in found:
            raise OptionsError(f"{text!r} gives two budgets for {device}")
        found[device] = budget
    return tuple(found.items())


@dataclass(frozen=True, repr=False)
class PlanBudget(DisplayedFields):
    """Bytes that may be in use at any step of a plan on numbers, everything included.

    Attributes:
        size_bytes: The bytes; 0 for a share.
        share: Of what the cost graph's own order needs at its peak.
    """

    size_bytes: int = 0
    share: Decimal = Decimal(0)

    @classmethod
    def parse(cls, text: float | str | PlanBudget) -> PlanBudget:
        """A budget as people write it: 1500000, "6GiB", 0.8, "0.8", "80%".

        Raises:
            OptionsError: It is neither a positive number of bytes nor a share up to one.
        """
        if isinstance(text, PlanBudget):
            return text
        spelled = str(text).strip()
        percent = _SHARE.fullmatch(spelled)
        share = Decimal(0)
        if percent is not None:
            share = Decimal(percent["percent"]) / _WHOLE_SHARE
        elif _FRACTION.fullmatch(spelled):
            share = Decimal(spelled)
        if 0 < share <= 1:
            return cls(share=share)
        try:
            # Parts of bytes are nothing but a mistake.
            return cls(size_bytes=parse_bytes("" if share else spelled))
        except OptionsError:
            raise OptionsError(f"{text!r} is no budget, such as 6GiB or 0.8") from None

    def limit_bytes(self, peak_bytes: int) -> int:
        """What it means for a cost graph whose order has a peak."""
        return self.size_bytes or int(peak_bytes * self.share)
