"""memopt inside TensorFlow, switched on and off: for the process, for a while, for a function."""

from __future__ import annotations

import atexit
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, overload

from memopt.flags import Flags
from memopt.plugin.bridge import register
from memopt.plugin.configs import note_session_configs, tag_functions, untag_functions
from memopt.plugin.functions import rewrite_function
from memopt.plugin.policy import (
    Policy,
    Unset,
    current_policy,
    pop_policy,
    push_policy,
    set_policy,
)
from memopt.plugin.process import Process
from memopt.plugin.records import RECORDS
from memopt.plugin.rewriting import rewrite
from memopt.plugin.scopes import mark_function, scope_text
from memopt.plugin.xla import watch_traced_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memopt.plugin.records import GraphRecord

_tags: list[Any] = []
"""How functions were configured before memopt was switched on in the process; one or none."""


@dataclass(frozen=True)
class PluginStatus:
    """How memopt is part of TensorFlow in this process.

    Attributes:
        registered: By type of device ("CPU", "GPU") the way that is in use: "symbol" (TensorFlow's
            own function for plugins), "shim" (a small C library, loaded as a plugin) or
            "transforms" (functions are rewritten when they are traced, without Grappler).
        failures: By way why it did not work.
        policy: What is done now in this thread; `None` if memopt is off.
    """

    registered: dict[str, str]
    failures: dict[str, str]
    policy: Policy | None

    def __str__(self) -> str:
        ways = ", ".join(f"{device} by {how}" for device, how in self.registered.items())
        lines = [f"registered: {ways or 'not yet'}"]
        lines += [f"not by {how}: {reason}" for how, reason in self.failures.items()]
        lines.append(f"policy: {self.policy or 'off'}")
        return "\n".join(lines)


def enable(**options: Any) -> Policy:
    """Rewrite every training step that TensorFlow compiles from now on.

    It holds for all threads, until `disable`. Functions that ran before are optimized anew: in this
    thread when they run next, in others when they next change an option of TensorFlow's. A v1
    session keeps what it has optimized.

    Args:
        **options: The fields of `Policy`. What is not given, MEMOPT_FLAGS says.

    Returns:
        The policy.

    Raises:
        OptionsError: An option is not valid.
        PluginError: Another plugin rewrites graphs in this process.
    """
    policy = Policy.from_flags(Flags.from_environment()).with_options(options)
    process = install()
    with process.lock:
        _untag()
        _tags.append(_tag(policy))
        set_policy(policy)
    return policy


def disable() -> None:
    """Leave all graphs as they are from now on, those of decorated functions too."""
    process = Process()
    with process.lock:
        _untag()
        set_policy(None)


@contextmanager
def enabled(**options: Any) -> Iterator[Policy]:
    """Rewrite training steps that this thread compiles inside the `with` statement.

    Bodies of functions that TensorFlow does not inline are compiled by threads of its own; for them
    the policy of the process holds.

    Args:
        **options: As for `enable`.

    Raises:
        OptionsError: An option is not valid.
        PluginError: Another plugin rewrites graphs in this process.
    """
    policy = Policy.from_flags(Flags.from_environment()).with_options(options)
    install()
    before = _tag(policy)
    token = push_policy(policy)
    try:
        yield policy
    finally:
        pop_policy(token)
        untag_functions(before)


@overload
def optimize_function(function: Callable[..., Any], /) -> Any: ...


@overload
def optimize_function(*, enabled: bool = True, **options: Any) -> Callable[[Any], Any]: ...


def optimize_function(
    function: Callable[..., Any] | None = None, /, *, enabled: bool = True, **options: Any
) -> Any:
    """Decorate a function with what is to be done to its graph, above or below `@tf.function`.

    Such a function is rewritten without `enable`, but not after `disable`. It must not have been
    called yet.

    Args:
        function: The function, or a `tf.function`.
        enabled: Whether it is to be rewritten; `False` leaves it alone when memopt is on.
        **options: Fields of `Policy` in place of those of `enable`.

    Raises:
        OptionsError: An option is not valid.
    """
    text = scope_text(options, enabled=enabled)

    def decorate(decorated: Any) -> Any:
        if enabled:
            install()
        return mark_function(decorated, text)

    return decorate if function is None else decorate(function)


def plugin_status() -> PluginStatus:
    """How memopt is part of TensorFlow in this process, and why not in a better way."""
    process = Process()
    policy = current_policy()
    return PluginStatus(
        dict(process.registered),
        dict(process.failures),
        None if isinstance(policy, Unset) else policy,
    )


def last_reports() -> tuple[GraphRecord, ...]:
    """What was done to the last graphs that TensorFlow compiled, the oldest first."""
    return RECORDS.last()


def install() -> Process:
    """Register memopt with TensorFlow; it does nothing yet.

    Raises:
        PluginError: Another plugin rewrites graphs in this process.
    """
    register()
    process = Process()
    note_session_configs(process)
    watch_traced_functions(process)
    process.rewrite = rewrite
    process.rewrite_function = rewrite_function
    _let_go_at_exit()
    return process


@cache
def _let_go_at_exit() -> None:
    """TensorFlow's threads may run on while the interpreter ends."""
    process = Process()

    def let_go() -> None:
        process.rewrite = None
        process.rewrite_function = None

    atexit.register(let_go)


def _tag(policy: Policy) -> Any:
    number = Process().number_of(repr(policy))
    return tag_functions(number, disable_fusions=policy.disable_fusions)


def _untag() -> None:
    while _tags:
        untag_functions(_tags.pop())
