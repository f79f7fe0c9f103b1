"""Compiles hot loops with numba; the same functions run, slowly, where it is told not to.

Functions that are compiled use integers, and floating point only in operations that IEEE 754
defines to the last bit, so that both ways take the same decisions. With NUMBA_DISABLE_JIT=1, for a
debugger, they are some hundred times slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numba
from numba.extending import register_jitable

from memopt.compilation.compiled_code import code_of
from memopt.compilation.machine_code import OPTIONS, CalledFromPython, LatePart, Part

if TYPE_CHECKING:
    from collections.abc import Callable

_Function = TypeVar("_Function", bound="Callable[..., object]")

IS_COMPILED = not numba.config.DISABLE_JIT
"""Whether the loops are compiled in this process."""


def compiled_apart(function: _Function) -> _Function:
    """Compile a function when it is first called, or load it from `cache_folder`."""
    if not IS_COMPILED:
        return function
    dispatcher = numba.njit(pipeline_class=CalledFromPython, **OPTIONS)(function)
    # What `cache=True` does, but with a folder that does not depend on where the package lies.
    dispatcher._cache = code_of(function)  # noqa: SLF001
    compiled_function: _Function = dispatcher
    return compiled_function


def compile_for(function: Callable[..., object], *arguments: object) -> None:
    """Compile a function that `compiled_apart` gave for arguments like these, or find it kept."""
    if IS_COMPILED:
        function.compile(tuple(map(numba.typeof, arguments)))  # type: ignore[attr-defined]


def compiled(function: _Function) -> _Function:
    """Make a function part of each compiled one that calls it. Called from Python, it is Python.

    Arguments are many arrays: passing them on takes ten times as long as the work.
    """
    return _part(function, Part)


def compiled_late(function: _Function) -> _Function:
    """The same for a function that contains large ones: it is optimised as a part of others alone.

    Optimised at each level, they take longer to compile and are no faster.
    """
    return _part(function, LatePart)


def _part(function: _Function, compiler: type[Part]) -> _Function:
    if not IS_COMPILED:
        return function
    part: Callable[[_Function], _Function] = register_jitable(pipeline_class=compiler, **OPTIONS)
    return part(function)


@compiled
def next_random(last: int) -> int:
    """The number after another one (Park and Miller's generator: products fit in 64 bits)."""
    return last * 48271 % 2147483647
