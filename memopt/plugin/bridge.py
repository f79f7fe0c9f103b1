"""Registration with TensorFlow: once in a process, for every type of device."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from memopt.errors import PluginError
from memopt.plugin.callback import make_optimize
from memopt.plugin.process import Process
from memopt.plugin.shim import register_by_shim
from memopt.plugin.structures import INIT, OPTIMIZE, api
from memopt.plugin.transforms import install_transform

DEVICE_TYPES = ("CPU", "GPU")
"""A type that the machine does not have is registered and never called."""

SYMBOL, SHIM, TRANSFORMS = "symbol", "shim", "transforms"
"""The ways to register, the best first."""

_OK_STATUSES = (0, 1)
"""How absl::Status spells OK: 0 before 2024, 1 since."""

_PLUGIN_FOLDER = "tensorflow-plugins"
"""Where TensorFlow looks for plugins, and loads them, when it is imported."""


def register(device_types: tuple[str, ...] = DEVICE_TYPES) -> None:
    """Register memopt, where that was not done: for each type of device the best way that works.

    Raises:
        PluginError: Another plugin rewrites graphs in this process.
    """
    process = Process()
    with process.lock:
        missing = [device for device in device_types if device not in process.registered]
        if missing:
            _refuse_foreign_plugins()
        for device in missing:
            _register_one(device, process)


def _register_one(device: str, process: Process) -> None:
    try:
        optimize = make_optimize(device, process)
    except AttributeError as error:
        # Neither way can do without these functions.
        process.failures.update(dict.fromkeys((SYMBOL, SHIM), str(error)))
        install_transform(process)
        process.registered[device] = TRANSFORMS
        return
    for how, attempt in ((SYMBOL, _register_by_symbol), (SHIM, register_by_shim)):
        try:
            attempt(device, optimize, process)
        except PluginError as error:
            process.failures[how] = str(error)
            continue
        process.registered[device] = how
        return
    install_transform(process)
    process.registered[device] = TRANSFORMS


def _register_by_symbol(device: str, optimize: Any, process: Process) -> None:
    """Call the C++ function that TensorFlow itself registers plugins with.

    Raises:
        PluginError: This TensorFlow does not export it, or it refuses.
    """
    function = api().find_registration()
    if function is None:
        raise PluginError("this TensorFlow does not export the function that registers plugins")
    name, callback = ctypes.c_char_p(device.encode()), OPTIMIZE(optimize)

    def fill_in(registration: Any, _status: Any) -> None:
        given = registration.contents
        given.device_type = name
        given.optimizer.contents.optimize = ctypes.cast(callback, ctypes.c_void_p).value

    init = INIT(fill_in)
    process.kept.extend((name, callback, init))
    status = function(ctypes.cast(init, ctypes.c_void_p)).rep
    if status not in _OK_STATUSES:
        raise PluginError(f"TensorFlow refuses a graph optimizer for {device}")


def _refuse_foreign_plugins() -> None:
    """Raise where TensorFlow would end the process: it takes one plugin for a type of device.

    Raises:
        PluginError: A plugin that rewrites graphs lies where TensorFlow loads plugins.
    """
    for path in _plugin_files():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            # Nor could TensorFlow load it.
            continue
        if hasattr(library, "TF_InitGraph"):
            raise PluginError(
                f"{path}: this plugin rewrites TensorFlow's graphs already, and TensorFlow takes "
                "only one; uninstall it to use memopt.enable()"
            )


def _plugin_files() -> list[Path]:
    folders = dict.fromkeys(Path(entry or ".") / _PLUGIN_FOLDER for entry in sys.path)
    return [path for folder in folders for path in sorted(folder.glob("*.so"))]
