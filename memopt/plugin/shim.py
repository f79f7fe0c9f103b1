"""The C shim: compiled once, loaded as a plugin where TensorFlow does not export its symbol."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import PluginError
from memopt.files.cache_folder import cache_folder
from memopt.plugin.structures import OPTIMIZE, api

if TYPE_CHECKING:
    from memopt.plugin.process import Process

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O1", "-shared", "-fPIC", "-nostdlib")
_TIMEOUT_S = 60


def compile_shim(device: str) -> Path:
    """The compiled shim for a type of device; compiled if it is not there.

    Each type has a file of its own, since the library says for which type it is. A file appears
    whole or not at all, so processes may do this at the same time.

    Raises:
        PluginError: There is no compiler, it fails, or the folder cannot be written to.
    """
    source = resources.files("memopt.plugin").joinpath("shim.c").read_bytes()
    key = hashlib.sha256(source + sysconfig.get_platform().encode()).hexdigest()[:16]
    folder = cache_folder()
    path = folder / f"shim-{key}-{device}.so"
    if path.exists():
        return path
    compiler = _compiler()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            text, library = Path(name, "shim.c"), Path(name, "shim.so")
            text.write_bytes(source)
            _compile(compiler, text, library)
            library.replace(path)
    except OSError as error:
        raise PluginError(f"{folder}: the compiled shim cannot be kept there: {error}") from error
    return path


def _compiler() -> str:
    wanted = os.environ.get("CC")
    names = (wanted,) if wanted else _COMPILERS
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        raise PluginError(f"there is no C compiler ({', '.join(names)})")
    return found


def _compile(compiler: str, source: Path, library: Path) -> None:
    command = [compiler, *_FLAGS, str(source), "-o", str(library)]
    try:
        subprocess.run(  # noqa: S603 - the user's compiler, our own source
            command, check=True, capture_output=True, timeout=_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        reason = " ".join(error.stderr.decode(errors="replace").split())
        raise PluginError(f"{compiler} cannot compile the shim: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise PluginError(f"{compiler} did not end within {_TIMEOUT_S} seconds") from error


def register_by_shim(device: str, optimize: Any, process: Process) -> None:
    """Let TensorFlow load the shim, which calls a Python function for each graph.

    Raises:
        PluginError: It cannot be compiled, or TensorFlow refuses it.
    """
    from tensorflow.python.framework import load_library

    path = compile_shim(device)
    library = ctypes.CDLL(str(path))
    name, callback = ctypes.c_char_p(device.encode()), OPTIMIZE(optimize)
    process.kept.extend((library, name, callback))
    set_status = ctypes.cast(api().TF_SetStatus, ctypes.c_void_p)
    library.memopt_configure.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    library.memopt_configure(ctypes.cast(callback, ctypes.c_void_p), set_status, name)
    try:
        # Under the same path the loader finds the library that was told what to call.
        load_library.load_pluggable_device_library(str(path))
    except Exception as error:
        raise PluginError(f"TensorFlow does not load the shim: {error}") from error
