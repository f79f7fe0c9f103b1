"""Compiles hot loops, where numba is installed; the same functions run without it.

Functions that are compiled use integers, and floating point only in operations that IEEE 754
defines to the last bit, so that both ways take the same decisions. Without numba they are some
hundred times slower.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., object]")

_PLAIN = {"_nrt": False}
"""Who refers to an array is not counted: no compiled function keeps or makes one."""

PURE_VARIABLE = "MEMOPT_PURE_PYTHON"
"""Set to anything, nothing is compiled."""


@cache
def _cache_directory(sources: Path) -> Path:
    """Where compiled code is kept between processes: compiling takes half a minute.

    numba looks at one source file at a time, but a function contains those that it calls, which are
    in the same folder, or in this file. So each state of all of these sources has a directory.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(sources.glob("*.py")):
        digest.update(path.read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "memopt" / f"{sources.name}-{digest.hexdigest()[:16]}"


def _find_compiler() -> Callable[..., Any] | None:
    if os.environ.get(PURE_VARIABLE):
        return None
    try:
        import numba
    except ImportError:
        return None

    def compile_function(function: _Function) -> _Function:
        directory = str(_cache_directory(Path(function.__code__.co_filename).parent))
        usual = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = directory
        try:
            compiler = numba.njit(cache=True, no_cfunc_wrapper=True, **_PLAIN)
            compiled_function: _Function = compiler(function)
        finally:
            numba.config.CACHE_DIR = usual
        return compiled_function

    return compile_function


def _find_inliner() -> Callable[..., Any] | None:
    if _COMPILER is None:
        return None
    from numba.extending import register_jitable

    # Nothing but compiled code calls it: wrappers for Python take longer to compile than itself.
    inliner: Callable[..., Any] = register_jitable(
        forceinline=True, no_cfunc_wrapper=True, no_cpython_wrapper=True, **_PLAIN
    )
    return inliner


_COMPILER = _find_compiler()
_INLINER = _find_inliner()
IS_COMPILED = _COMPILER is not None
"""Whether the loops are compiled in this process."""


def compiled_apart(function: _Function) -> _Function:
    """Compile a function when it is first called, if there is a compiler."""
    return function if _COMPILER is None else _COMPILER(function)


def compiled(function: _Function) -> _Function:
    """Make a function part of each compiled one that calls it. Called from Python, it is Python.

    Arguments are many arrays: passing them on takes ten times as long as the work.
    """
    return function if _INLINER is None else _INLINER(function)


@compiled
def next_random(last: int) -> int:
    """The number after another one (Park and Miller's generator: products fit in 64 bits)."""
    return last * 48271 % 2147483647
