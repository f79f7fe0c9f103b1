"""Policy: what is done to which graphs; one for the process, others for a thread or a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal

from memopt.display import DisplayedFields
from memopt.errors import OptionsError
from memopt.kernels.choice import RULES, check_kernels
from memopt.optimizer import MemoryOptimizer
from memopt.options import Budget, Level, Options, as_texts, check_seconds, check_whole
from memopt.passes import Rematerialization
from memopt.passes.recomputation import AUTO_SCOPE
from memopt.rematerialization.algorithms import BEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    from memopt.flags import Flags

TRAINING, ALL = "training", "all"

_SHARE_OF_PLANNING = 0.7
"""Of the seconds that a plan may take, what is left when it is written down."""


@dataclass(frozen=True, repr=False)
class Policy(DisplayedFields):
    """What is done to the graphs that TensorFlow optimizes.

    Attributes:
        level: How much is done: a `Level` or its name. ORDERED saves memory without recomputation;
            with a budget it recomputes.
        budget: The most memory that may be in use at any moment of a step, everything included:
            bytes, "6GiB", "60%" of what the step itself adds at its peak when it runs unchanged, or
            "device" for what the device's allocator may use, less a fifth for what it loses.
            On several devices it is that of each, or "GPU:0=6GiB,GPU:1=8GiB". A step that cannot
            keep it runs at the lowest peak that was found, with a warning.
        min_nodes: Graphs with fewer nodes are left alone.
        only_lower: Whether a graph stays as it is that is predicted to need hardly less memory
            rewritten: less than 5 % of what the step itself needs, and no budget kept by it.
        only: "training" for graphs that compute gradients, "all" for all.
        report_dir: A folder for one JSON report for each graph that is rewritten.
        from_config: Whether `memory_optimization` and `memory_optimizer_target_node_name_scope` of
            the user's RewriterConfig take precedence.
        deadline_ms: Milliseconds after which a graph is left as it is. TensorFlow's own limit for
            all of Grappler's work on a graph is five minutes.
        planning_seconds: Seconds that the plan for a budget may take for one graph, writing it down
            included; what was found until then is used. 0 for as long as it takes: then the same
            graph always gets the same plan. The first time on a machine the planner is compiled
            besides, which takes half a minute.
        disable_fusions: Whether TensorFlow's remapper is off, which fuses operations; without
            fusions the planner has more operations to choose from.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        algorithm: How a budget is kept: see `Rematerialization`.
        scheduler: How the order of execution is found.
        small_node_limit: MiB; smaller results are not recomputed for their own sake.
        kernels: Whose memory and times are predicted: "rules" for what memopt knows of TensorFlow's
            kernels; "measured" for what was measured on this machine, where kernels that were not
            yet are run first, each alone; or a file that `profile_kernels` wrote.
        pass_options: Options of passes, such as "ordering{smallest_bytes=65536}".
        same_bits: Of functions that XLA compiles: whether they stay as they are if they would
            compute other last bits, since XLA fuses other operations. All others keep their bits
            anyway.
        verbose: 1 for one line for each rewritten step, through Python's `logging` ("memopt").

    Raises:
        OptionsError: An option is not valid.
    """

    level: str = Level.ORDERED
    budget: Budget | int | str | None = None
    min_nodes: int = 32
    only_lower: bool = True
    only: Literal["training", "all"] = "training"
    report_dir: str | PathLike[str] | None = None
    from_config: bool = False
    deadline_ms: int = 120_000
    planning_seconds: float = 5.0
    disable_fusions: bool = False
    target_scope: str = AUTO_SCOPE
    algorithm: str = BEST
    scheduler: str = BEST
    small_node_limit: int = 0
    kernels: str | PathLike[str] = RULES
    pass_options: Sequence[str] = ()
    same_bits: bool = True
    verbose: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", Level.parse(self.level))
        object.__setattr__(self, "pass_options", as_texts("pass_options", self.pass_options))
        for name in ("min_nodes", "deadline_ms", "small_node_limit", "verbose"):
            check_whole(name, getattr(self, name))
        if not isinstance(self.report_dir, str | PathLike | None):
            raise OptionsError(f"report_dir is the path of a folder, not {self.report_dir!r}")
        if self.budget is not None:
            object.__setattr__(self, "budget", Budget.parse(self.budget))
        check_kernels(self.kernels)
        check_seconds("planning_seconds", self.planning_seconds)
        if self.only not in (TRAINING, ALL):
            raise OptionsError(f"only is {TRAINING!r} or {ALL!r}, not {self.only!r}")
        if self.deadline_ms <= 0:
            raise OptionsError(f"a deadline is after 1 ms or more, not {self.deadline_ms}")
        self.optimizer()

    @classmethod
    def from_flags(cls, flags: Flags) -> Policy:
        """The policy that flags ask for, as in MEMOPT_FLAGS.

        Raises:
            OptionsError: A flag is not valid, or is not a policy's.
        """
        return cls(**cls.flagged(flags))

    @classmethod
    def flagged(cls, flags: Flags) -> dict[str, Any]:
        """The fields that flags set, by name.

        Raises:
            OptionsError: A flag is not a policy's.
        """
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in vars(flags).items() if value is not None}
        unknown = sorted(given.keys() - known)
        if unknown:
            names = ", ".join(f"--{name}" for name in unknown)
            raise OptionsError(f"{names} has no effect on programs that run; take it away")
        return given

    def with_options(self, options: Mapping[str, Any]) -> Policy:
        """This policy with some of its fields changed.

        Raises:
            OptionsError: There is no such option, or its value is not valid.
        """
        known = {field.name for field in fields(self)}
        unknown = sorted(options.keys() - known)
        if unknown:
            names = ", ".join(sorted(known))
            raise OptionsError(f"there is no option {unknown[0]!r}; the options: {names}")
        return replace(self, **options)

    def as_configured(self, config: RewriterConfig) -> Policy | None:
        """This policy with what a RewriterConfig sets; `None` if it sets NO_MEM_OPT.

        A field of the RewriterConfig at its default changes nothing.

        Raises:
            OptionsError: It asks for a level that memopt does not have.
        """
        options = Options.from_rewriter_config(config)
        if options.level is Level.NO_MEM_OPT:
            return None
        if options.level is Level.DEFAULT_MEM_OPT:
            return self
        scope = config.memory_optimizer_target_node_name_scope or self.target_scope
        return replace(self, level=options.level, budget=None, target_scope=scope)

    def optimizer(self, budget: Budget | int | str | None = None) -> MemoryOptimizer:
        """The optimizer that this policy describes.

        Args:
            budget: Replaces the policy's budget.

        Raises:
            OptionsError: An option is not valid.
        """
        return MemoryOptimizer(
            self.level,
            self.target_scope,
            pass_options=tuple(self.pass_options),
            deadline_ms=self.deadline_ms,
            budget=self.budget if budget is None else budget,
            rematerialization=Rematerialization(
                algorithm=self.algorithm,
                scheduler=self.scheduler,
                small_node_limit=self.small_node_limit,
                planning_seconds=self.planning_seconds * _SHARE_OF_PLANNING,
                cache_plans=True,
            ),
        )


class Unset:
    """No policy was set, as opposed to memopt being off."""


UNSET: Final = Unset()

_of_process: list[Policy | Unset | None] = [UNSET]
_of_context: ContextVar[Policy | Unset | None] = ContextVar("memopt_policy", default=UNSET)


def current_policy() -> Policy | Unset | None:
    """The policy of this context, or else of the process.

    `None` if memopt is off, `UNSET` if it was never switched on or off: then only decorated
    functions are rewritten.
    """
    here = _of_context.get()
    return _of_process[0] if isinstance(here, Unset) else here


def set_policy(policy: Policy | Unset | None) -> None:
    """Set the policy of the process."""
    _of_process[0] = policy


def push_policy(policy: Policy | None) -> Token[Policy | Unset | None]:
    """Set the policy of this context (thread or task); returns what `pop_policy` takes."""
    return _of_context.set(policy)


def pop_policy(token: Token[Policy | Unset | None]) -> None:
    """Undo a `push_policy`."""
    _of_context.reset(token)
