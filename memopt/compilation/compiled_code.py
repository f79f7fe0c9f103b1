"""Keeps what numba compiled for other processes and environments: compiling takes half a minute."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, NullCache, _CacheLocator

from memopt.files.cache_folder import cache_folder
from memopt.terminal.console import working

try:
    import fcntl
except ImportError:  # Windows: processes that start at the same time all compile
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO

_SHARED_SOURCES = [Path(__file__).with_name(name) for name in ("jit.py", "machine_code.py")]
_UNUSED_DAYS = 30
"""After that many days what no process loaded is removed."""
_SECONDS_PER_DAY = 86_400
_ONCE = "compiling the planner, once on this machine"
_EACH_TIME = "compiling the planner (nothing can be kept in the cache folder)"


def code_of(function: Callable[..., object]) -> FunctionCache | NullCache:
    """Where numba finds the compiled code of a function, and leaves it.

    Args:
        function: What is compiled; all that it calls is in files beside its own, or in `jit`.
    """
    if _folder_for(Path(function.__code__.co_filename).parent) is None:
        return _NothingKept()
    return _CompiledCode(function)


def is_kept(function: Callable[..., object]) -> bool:
    """Whether there is code of a function that is compiled, or none can be kept."""
    python = getattr(function, "py_func", function)
    folder = _folder_for(Path(python.__code__.co_filename).parent)
    return folder is None or any(folder.glob(f"*.{python.__name__}-*.nbi"))


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Tells numba where the code of a function is: in a folder for this state of the sources.

    numba's own locators look at one source file, though a function contains those that it calls,
    and at the path of that file, which is another one in each environment.
    """

    def __init__(self, function: Callable[..., object], folder: Path) -> None:
        self._folder = folder
        self._py_file = function.__code__.co_filename  # named in a warning of numba's
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., object], py_file: str) -> _Locator | None:
        folder = _folder_for(Path(py_file).parent)
        return None if folder is None else cls(py_func, folder)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Files(CompileResultCacheImpl):  # type: ignore[misc]
    """How numba writes what it compiled."""

    _locator_classes = (_Locator,)


class _CompiledCode(FunctionCache):  # type: ignore[misc]
    """The compiled code of one function: one process compiles it, the others wait and load it."""

    _impl_class = _Files

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._lock_path = Path(self.cache_path, f"{function.__name__}.lock")
        self._lock: IO[bytes] | None = None
        self._shown = contextlib.ExitStack()

    def load_overload(self, sig: object, target_context: object) -> Any:
        """What was compiled for these types of arguments, or None: then `save_overload` follows."""
        found = self._load(sig, target_context)
        if found is not None:
            return found
        self._shown.enter_context(working(_ONCE))
        self._take_lock()
        found = self._load(sig, target_context)  # another process may have compiled it meanwhile
        if found is not None:
            self._shown.close()
            self._release_lock()
        return found

    def save_overload(self, sig: object, data: object) -> None:
        """Write what was compiled; where that fails, the next process compiles it again."""
        try:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)
        finally:
            self._shown.close()
            self._release_lock()

    def _load(self, sig: object, target_context: object) -> Any:
        # A file may be cut off, or lack what its index names: then it is compiled anew.
        with contextlib.suppress(Exception):
            return super().load_overload(sig, target_context)
        return None

    def _take_lock(self) -> None:
        if fcntl is None or self._lock is not None:
            return
        with contextlib.suppress(OSError):
            self._lock = self._lock_path.open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _release_lock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


class _NothingKept(NullCache):  # type: ignore[misc]
    """Shows that it is compiled, as it is in each process."""

    def __init__(self) -> None:
        self._shown = contextlib.ExitStack()

    def load_overload(self, sig: object, target_context: object) -> None:  # noqa: ARG002
        self._shown.enter_context(working(_EACH_TIME))

    def save_overload(self, sig: object, cres: object) -> None:  # noqa: ARG002
        self._shown.close()


@cache
def _folder_for(sources: Path) -> Path | None:
    """The folder for this state of a folder of sources, and this numba; None if not writable."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in (*_SHARED_SOURCES, *sorted(sources.glob("*.py"))):
        digest.update(path.read_bytes())
    folder = cache_folder() / "compiled" / f"{sources.name}-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()  # which also says that it is used
        _remove_unused(folder.parent)
    except OSError:
        return None
    return folder


def _remove_unused(root: Path) -> None:
    oldest = time.time() - _UNUSED_DAYS * _SECONDS_PER_DAY
    for folder in root.iterdir():
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
