"""Whether this machine has what memopt needs: what is there, what is missing, what mends it."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from memopt.display import Displayed, Overview, Table, bytes_text, clip
from memopt.errors import MemoptError
from memopt.files.cache_folder import cache_folder
from memopt.flags import VARIABLE, Flags
from memopt.graph.kernels import ONEDNN_VARIABLE, runs_onednn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    State = Literal["good", "note", "bad"]

TESTED = ((2, 18), (2, 21))
"""The oldest and the newest release of TensorFlow that memopt is tested with."""
_EXTRAS = {
    "report": (("jinja2", "vl_convert"), "report pages (--report)"),
    "exact": (("ortools",), "plans that are proved (--exact)"),
}
_MARKS = {"good": "ok", "note": "--", "bad": "NO"}
_LENGTH = 300


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        state: "good"; "note" for what is worth to be known, and stops nothing; "bad" for what
            keeps memopt from working.
        text: What was found.
        remedy: A command, or what else mends it; "" if there is nothing to mend.
    """

    name: str
    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True, repr=False)
class Diagnosis(Displayed):
    """What was found on this machine.

    Attributes:
        findings: In the order in which one would look.
    """

    findings: tuple[Finding, ...]

    @property
    def is_well(self) -> bool:
        """Whether nothing keeps memopt from working."""
        return all(one.state != "bad" for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {"well": self.is_well, "findings": [asdict(one) for one in self.findings]}

    def lines(self) -> Iterator[str]:
        """A line for each finding, what mends it below, and the verdict."""
        width = max((len(one.name) for one in self.findings), default=0)
        for one in self.findings:
            yield f"{_MARKS[one.state]}  {one.name.ljust(width)}  {clip(one.text, _LENGTH)}"
            if one.remedy:
                yield f"    {' ' * width}  to mend it: {clip(one.remedy, _LENGTH)}"
        yield "memopt can work here" if self.is_well else "memopt cannot work here: see NO above"

    def _overview(self) -> Overview:
        rows = tuple((one.name, one.state, one.text, one.remedy) for one in self.findings)
        outcome = "memopt can work here" if self.is_well else "something is missing"
        return Overview("Diagnosis", outcome, (Table(("", "", "found", "what mends it"), rows),))


def diagnose() -> Diagnosis:
    """Look at all of it; nothing is installed or changed, TensorFlow is started."""
    looks: tuple[Callable[[], Iterator[Finding]], ...] = (
        _python,
        _tensorflow,
        _plugin,
        _numba,
        _extras,
        _flags,
        _caches,
    )
    return Diagnosis(tuple(found for look in looks for found in _looked(look)))


def _looked(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """What one look finds; what breaks it is a finding as well."""
    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 - a broken installation breaks in any way
        text = " ".join(f"{type(error).__name__}: {error}".split())
        yield Finding(look.__name__.strip("_"), "bad", text)


def _python() -> Iterator[Finding]:
    yield Finding("Python", "good", f"{platform.python_version()} at {sys.executable}")
    yield Finding("memopt", "good", f"{version('memopt')} at {Path(__file__).parent}")


def _tensorflow() -> Iterator[Finding]:
    if find_spec("tensorflow") is None:
        yield Finding("TensorFlow", "bad", "is not installed", f"pip install '{_required()}'")
        return
    tf: Any = import_module("tensorflow")
    release = tuple(int(part) for part in tf.__version__.split(".")[:2])
    oldest, newest = (".".join(map(str, each)) for each in TESTED)
    tested = f"tested are {oldest} to {newest}"
    if TESTED[0] <= release <= TESTED[1]:
        yield Finding("TensorFlow", "good", f"{tf.__version__}; {tested}")
    else:
        remedy = f"pip install '{_required()}'"
        yield Finding("TensorFlow", "bad", f"{tf.__version__}; {tested}", remedy)
    yield _onednn()
    yield _gpus(tf)


def _required() -> str:
    """What memopt asks for, as pip takes it."""
    needed = (line for line in requires("memopt") or () if line.startswith("tensorflow"))
    return next(needed, "tensorflow")


def _onednn() -> Finding:
    if not runs_onednn():
        why = f" ({ONEDNN_VARIABLE}=0)" if os.environ.get(ONEDNN_VARIABLE) == "0" else ""
        return Finding("oneDNN", "good", f"off{why}: predictions are exact for known kernels")
    return Finding("oneDNN", "good", "on: predictions are within some per cent")


def _gpus(tf: Any) -> Finding:
    found = tf.config.list_physical_devices("GPU")
    if found:
        names = ", ".join(device.name.removeprefix("/physical_device:") for device in found)
        return Finding("GPU", "good", names)
    if tf.test.is_built_with_cuda() and Path("/proc/driver/nvidia").exists():
        text = "there is a driver, and TensorFlow finds no GPU"
        return Finding("GPU", "note", text, "pip install 'tensorflow[and-cuda]'")
    return Finding("GPU", "note", "none: steps run, and are measured, on the CPU")


def _plugin() -> Iterator[Finding]:
    if find_spec("tensorflow") is None:
        return
    from memopt.plugin.installing import install
    from memopt.plugin.status import plugin_status

    try:
        install()
    except MemoptError as error:
        yield Finding("plugin", "bad", str(error))
        return
    status = plugin_status()
    for device, how in status.registered.items():
        text = f"registered by {how}"
        # Without Grappler's call sessions are not reached.
        is_best = how != "transforms"
        yield Finding(f"plugin, {device}", "good" if is_best else "note", text)
    for how, why in status.failures.items():
        yield Finding(f"plugin, by {how}", "note", why)


def _numba() -> Iterator[Finding]:
    if find_spec("numba") is None:
        yield Finding("numba", "bad", "is not installed: nothing is planned", "pip install numba")
        return
    from memopt.compilation.jit import IS_COMPILED

    if IS_COMPILED:
        yield Finding("numba", "good", f"{version('numba')}; the planner is compiled")
        return
    remedy = "unset NUMBA_DISABLE_JIT"
    yield Finding("numba", "note", f"{version('numba')}; compiles nothing: plans are poor", remedy)


def _extras() -> Iterator[Finding]:
    for extra, (modules, what) in _EXTRAS.items():
        missing = [name for name in modules if find_spec(name) is None]
        if missing:
            remedy = f"pip install 'memopt[{extra}]'"
            yield Finding(f"memopt[{extra}]", "note", f"not installed, for {what}", remedy)
            continue
        yield Finding(f"memopt[{extra}]", "good", f"{_versions(modules)}, for {what}")


def _versions(modules: tuple[str, ...]) -> str:
    found = []
    for name in modules:
        distribution = {"vl_convert": "vl-convert-python"}.get(name, name)
        try:
            found.append(f"{distribution} {version(distribution)}")
        except PackageNotFoundError:
            found.append(distribution)
    return ", ".join(found)


def _flags() -> Iterator[Finding]:
    text = os.environ.get(VARIABLE, "")
    try:
        Flags.from_environment()
    except MemoptError as error:
        yield Finding(VARIABLE, "bad", str(error), f"unset {VARIABLE}")
        return
    yield Finding(VARIABLE, "good", text or "not set")


def _caches() -> Iterator[Finding]:
    folder = cache_folder()
    if not folder.exists():
        yield Finding("caches", "good", f"{folder}: nothing there yet")
        return
    sizes = {path.name: _size_bytes(path) for path in sorted(folder.iterdir())}
    parts = ", ".join(f"{name} {bytes_text(size)}" for name, size in sizes.items())
    text = f"{folder}: {bytes_text(sum(sizes.values()))} ({parts or 'nothing'})"
    if os.access(folder, os.W_OK):
        yield Finding("caches", "good", text)
        return
    remedy = f"chmod -R u+rwX {folder}"
    yield Finding("caches", "note", f"{text}; cannot be written: compiled each time", remedy)


def _size_bytes(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; others may take files away meanwhile."""
    total = 0
    for one in (path, *path.rglob("*")) if path.is_dir() else (path,):
        try:
            total += one.lstat().st_size if one.is_file() else 0
        except OSError:
            continue
    return total
