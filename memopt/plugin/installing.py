"""Registers memopt with TensorFlow in this process, and lets go of it at exit."""

from __future__ import annotations

import atexit
from functools import cache

from memopt.plugin.bridge import register
from memopt.plugin.configs import note_session_configs
from memopt.plugin.functions import rewrite_function
from memopt.plugin.process import Process
from memopt.plugin.rewriting import rewrite
from memopt.plugin.xla import watch_traced_functions


def install() -> Process:
    """Register memopt with TensorFlow, without a policy.

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
    """Drop the callbacks at exit: TensorFlow's threads may still run while Python shuts down."""
    process = Process()

    def let_go() -> None:
        process.rewrite = None
        process.rewrite_function = None

    atexit.register(let_go)
