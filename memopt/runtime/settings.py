"""How a step is run in a process of its own: TensorFlow's modes, threads and memory limit."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from memopt.graph.kernels import ONEDNN_VARIABLE
from memopt.interpreter import finding_memopt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    Mode = Literal["exact", "as-is"]

SETTINGS_FILE = "settings.json"
"""Where the settings stand beside a program."""

_MEBIBYTE_BYTES = 2**20
_SECOND_NS = 10**9
ALLOCATOR_VARIABLE = "TF_CPU_ALLOCATOR_USE_BFC"
LIMIT_VARIABLE = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
"""What makes TensorFlow's own allocator serve the host, and what it may use."""


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes:
        mode: "exact" runs one operation at a time with everything off that changes results in the
            last bits (oneDNN, Grappler), so that runs can be compared bit for bit; "as-is" runs as
            TensorFlow does by default and with the environment of this process.
        memory_limit_bytes: The most that TensorFlow's allocator may use, rounded down to whole
            MiB; `None` for no limit. A step in which an allocation failed is ended.
        inter_op_threads: Operations that may run at once; `None` for what the mode says.
        grappler: Whether Grappler's optimizers run; `None` for what the mode says.
        timeout_ns: How long one request to the process may take.
        deterministic: Whether kernels run that give the same bits each time, as after
            `tf.config.experimental.enable_op_determinism`; an op that has none fails.
    """

    mode: Mode = "exact"
    memory_limit_bytes: int | None = None
    inter_op_threads: int | None = None
    grappler: bool | None = None
    timeout_ns: int = 1800 * _SECOND_NS
    deterministic: bool = False

    @property
    def uses_grappler(self) -> bool:
        """Whether Grappler's optimizers run."""
        return self.mode == "as-is" if self.grappler is None else self.grappler

    @property
    def threads(self) -> int:
        """Operations that may run at once; 0 leaves it to TensorFlow."""
        if self.inter_op_threads is not None:
            return self.inter_op_threads
        return 1 if self.mode == "exact" else 0

    @property
    def limit_mebibytes(self) -> int | None:
        """The memory limit in the unit that TensorFlow takes."""
        if self.memory_limit_bytes is None:
            return None
        return max(1, self.memory_limit_bytes // _MEBIBYTE_BYTES)

    def environment(self) -> dict[str, str]:
        """Environment variables of the process: this one's, changed as the settings ask."""
        environment = dict(os.environ)
        environment.pop(LIMIT_VARIABLE, None)
        # Only this allocator's work can be recorded, and only it knows a limit.
        environment[ALLOCATOR_VARIABLE] = "1"
        # Several processes share an accelerator.
        environment["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
        # A step that is read from a file needs no Keras, whose import takes a second.
        environment["TF_USE_LEGACY_KERAS"] = "1"
        # Its log goes to a file, in which failed allocations are looked for.
        environment["TF_CPP_MIN_LOG_LEVEL"] = "1"
        if self.mode == "exact":
            environment[ONEDNN_VARIABLE] = "0"
        if self.limit_mebibytes is not None:
            environment[LIMIT_VARIABLE] = str(self.limit_mebibytes)
        return finding_memopt(environment)

    def configure_tensorflow(self) -> None:
        """Apply them in the process that the environment was made for, before anything runs."""
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(self.threads)
        if self.deterministic:
            tf.config.experimental.enable_op_determinism()
        if not self.uses_grappler:
            tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        if self.limit_mebibytes is None:
            return
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=self.limit_mebibytes)
        for accelerator in tf.config.list_physical_devices("GPU"):
            tf.config.set_logical_device_configuration(accelerator, [limit])

    def session_config(self) -> ConfigProto:
        """The same for a TensorFlow 1 session."""
        from tensorflow.core.protobuf.config_pb2 import ConfigProto, OptimizerOptions

        config = ConfigProto(inter_op_parallelism_threads=self.threads)
        config.graph_options.rewrite_options.disable_meta_optimizer = not self.uses_grappler
        if self.mode == "exact":
            # The session's own optimizer would merge what was meant to be computed twice.
            config.graph_options.optimizer_options.opt_level = OptimizerOptions.L0
        return config

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Settings:
        """The settings that `to_json` described."""
        return cls(**plain)


def is_deterministic_here() -> bool:
    """Whether this process has asked TensorFlow for deterministic kernels."""
    from tensorflow.python.util import _pywrap_determinism

    return bool(_pywrap_determinism.is_enabled())
