"""How numba compiles hot loops: a function that others contain has no machine code of its own.

numba turns each function, with all that it calls, into machine code: where calls are nested, the
innermost one at each level. Here only what Python calls becomes machine code; that halves the time.
numba also compiles a function again for each set of options of those that call it: all have the
same ones here, and what differs is set behind that.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

OPTIONS = {
    # Who refers to an array is not counted: no compiled function keeps or makes one.
    "_nrt": False,
    "forceinline": True,
    "no_cfunc_wrapper": True,
    # What Python calls is the exception: see `CalledFromPython`.
    "no_cpython_wrapper": True,
}
"""The options of all functions."""
_ENVIRONMENT = "_ZN08NumbaEnv"
"""How names of variables begin in which numba notes, by function, the objects that it uses."""


class Part(Compiler):  # type: ignore[misc]
    """Compiles a function that becomes part of each one that calls it."""

    is_optimised = True

    def define_pipelines(self) -> list[Any]:
        """Numba's passes; there they leave it unfinished."""
        state = self.state
        name = state.func_id.func_qualname
        state.library = _Unfinished(state.targetctx.codegen(), name, is_optimised=self.is_optimised)
        passes: list[Any] = super().define_pipelines()
        return passes


class LatePart(Part):
    """Compiles a function that is optimised only as a part of others."""

    is_optimised = False


class CalledFromPython(Compiler):  # type: ignore[misc]
    """Compiles a function that Python calls, with all its parts."""

    def define_pipelines(self) -> list[Any]:
        """Numba's passes."""
        self.state.flags.forceinline = False
        self.state.flags.no_cpython_wrapper = False
        # Several searches run side by side: see `cores.side_by_side`.
        self.state.flags.release_gil = True
        passes: list[Any] = super().define_pipelines()
        return passes


class _Unfinished(JITCodeLibrary):  # type: ignore[misc]
    """Code that becomes machine code only as a part of other code."""

    def __init__(self, codegen: Any, name: str, *, is_optimised: bool) -> None:
        super().__init__(codegen, name)
        self._is_optimised = is_optimised

    def _optimize_final_module(self) -> None:
        if self._is_optimised:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._codegen._add_module(self._environments())  # noqa: SLF001 - it has no other way in
        self._finalized = True

    def _environments(self) -> binding.ModuleRef:
        """A module with the variables alone into which numba writes at the end."""
        module = ir.Module()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(_ENVIRONMENT):
                # As large as the pointer that it is.
                own = ir.GlobalVariable(module, ir.IntType(64), variable.name)
                own.linkage = "common"
                own.initializer = ir.Constant(own.value_type, 0)
        return binding.parse_assembly(str(module))
