"""Runs a program that knows nothing of memopt with memopt switched on."""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import runpy
import sys
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memopt.errors import FileError
from memopt.plugin.records import RECORDS
from memopt.plugin.switch import enable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.options import Budget
    from memopt.plugin.records import GraphRecord

_MEBIBYTE = 1 << 20
_TENSORFLOW = "tensorflow"


def run_script(path: str, arguments: Sequence[str], budget: Budget | None = None) -> None:
    """Run a Python file as `python FILE ARGUMENTS` does, with memopt switched on.

    The file may set environment variables for TensorFlow, as it could without memopt: TensorFlow is
    imported when the file imports it, and memopt switched on right then.

    Args:
        path: The file.
        arguments: What the file finds in `sys.argv`.
        budget: The budget of its steps; what MEMOPT_FLAGS says if not given.

    Raises:
        FileError: The file cannot be read.
        BaseException: Whatever the program raises.
    """
    file = str(Path(path).absolute())
    try:
        code = compile(Path(path).read_bytes(), file, "exec")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    _switch_on_with_tensorflow(budget)
    main = ModuleType("__main__")
    main.__dict__.update(
        __builtins__=builtins,
        __file__=file,
        __loader__=SourceFileLoader("__main__", file),
        __spec__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    exec(code, main.__dict__)  # noqa: S102 - to run the user's own program is what this is for


def run_module(name: str, arguments: Sequence[str], budget: Budget | None = None) -> None:
    """Run a module as `python -m MODULE ARGUMENTS` does, with memopt switched on.

    Args:
        name: The module.
        arguments: What it finds in `sys.argv`.
        budget: The budget of its steps; what MEMOPT_FLAGS says if not given.

    Raises:
        BaseException: Whatever the program raises; ImportError if there is no such module.
    """
    _switch_on_with_tensorflow(budget)
    sys.argv = [name, *arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def summary(records: Sequence[GraphRecord]) -> list[str]:
    """What was done in a few lines, for a person."""
    count = {
        outcome: sum(record.outcome == outcome for record in records)
        for outcome in ("rewritten", "unchanged", "passed over", "failed")
    }
    lines = [", ".join(f"{number} graphs {outcome}" for outcome, number in count.items())]
    for record in records:
        if record.outcome == "failed":
            lines.append(f"{record.kind} of {record.nodes} nodes: {record.error}")
        if record.outcome != "rewritten":
            continue
        line = f"{record.kind} of {record.nodes} nodes, {record.level}: {record.reason}"
        if record.peak_before_bytes:
            line += (
                f"; predicted peak {record.peak_before_bytes / _MEBIBYTE:.1f} MiB, now "
                f"{record.peak_after_bytes / _MEBIBYTE:.1f} MiB"
            )
        lines.append(line)
    return lines


def _switch_on_with_tensorflow(budget: Budget | None) -> None:
    atexit.register(_print_summary)
    switch_on = enable if budget is None else partial(enable, budget=budget)
    if _TENSORFLOW in sys.modules:
        switch_on()
    else:
        sys.meta_path.insert(0, _Finder(switch_on))


def _print_summary() -> None:
    sys.stderr.writelines(f"memopt: {line}\n" for line in summary(RECORDS.last()))


class _Finder(MetaPathFinder):
    """Finds TensorFlow as everybody does, and calls a function when it has been imported."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own specification, with a loader that calls the function."""
        del path, target
        if fullname != _TENSORFLOW:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(Loader):
    """A module's own loader, and a function afterwards."""

    def __init__(self, loader: Loader, then: Callable[[], object]) -> None:
        self._loader = loader
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the module's own loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the module's own loader does; then call the function."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._then()
