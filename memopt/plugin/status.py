"""What memopt is doing inside TensorFlow: how it is registered, and what was done to graphs."""

from __future__ import annotations

from dataclasses import dataclass

from memopt.display import Displayed, Overview, Table
from memopt.plugin.policy import Policy, Unset, current_policy
from memopt.plugin.process import Process
from memopt.plugin.records import RECORDS, GraphRecord


@dataclass(frozen=True, repr=False)
class PluginStatus(Displayed):
    """How memopt is registered with TensorFlow in this process.

    Attributes:
        registered: By device type ("CPU", "GPU") the mechanism in use: "symbol" (TensorFlow's own
            registration function for plugins), "shim" (a small C library, loaded as a plugin) or
            "transforms" (functions are rewritten when they are traced, without Grappler).
        failures: By mechanism why it did not work.
        policy: The policy that holds in this thread; `None` if memopt is off.
    """

    registered: dict[str, str]
    failures: dict[str, str]
    policy: Policy | None

    def _overview(self) -> Overview:
        rows = [(device, f"registered by {how}") for device, how in self.registered.items()]
        rows += [(how, f"failed: {reason}") for how, reason in self.failures.items()]
        state = "off" if self.policy is None else f"on, {self.policy!r}"
        return Overview("PluginStatus", state, (Table(("", ""), tuple(rows)),))

    def __str__(self) -> str:
        ways = ", ".join(f"{device} by {how}" for device, how in self.registered.items())
        lines = [f"registered: {ways or 'not yet'}"]
        lines += [f"not by {how}: {reason}" for how, reason in self.failures.items()]
        lines.append(f"policy: {self.policy or 'off'}")
        return "\n".join(lines)


def plugin_status() -> PluginStatus:
    """How memopt is registered with TensorFlow in this process, and which mechanisms failed."""
    process = Process()
    policy = current_policy()
    return PluginStatus(
        dict(process.registered),
        dict(process.failures),
        None if isinstance(policy, Unset) else policy,
    )


def last_reports() -> tuple[GraphRecord, ...]:
    """The records of the last graphs that TensorFlow compiled, the oldest first.

    Each says what was predicted; `measured_peak_bytes` is what was measured, where somebody looked:
    the callback `memopt.keras.MemoryReport`.
    """
    return RECORDS.last()
