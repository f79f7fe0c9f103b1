"""Small files in the cache folder: what was found out on this machine, under digests of what of."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from memopt.errors import FileError
from memopt.files.cache_folder import cache_folder
from memopt.files.whole_files import write_local

_CPUS = Path("/proc/cpuinfo")
_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tf-nightly")
_EQUAL, _OTHER = b"equal", b"other"
_SPARED = 0.9
"""The share of what a folder may hold that stays when files have to go."""


@dataclass(frozen=True)
class KeptFiles:
    """A folder of files that processes share.

    Each is written whole or not at all. A folder that cannot be read or written is as good as none.

    Attributes:
        name: Of the folder, in the cache folder.
        most_bytes: What the files may have together; those that were not used for longest go first.
        most_files: How many there may be.
    """

    name: str
    most_bytes: int
    most_files: int = 20_000

    def find(self, digest: str) -> bytes | None:
        """What is kept under a digest, if it is no larger than all may be."""
        path = self._folder / digest
        try:
            if path.stat().st_size > self.most_bytes:
                return None
            data = path.read_bytes()
            os.utime(path)  # it was used
        except OSError:
            return None
        return data

    def keep(self, digest: str, data: bytes) -> None:
        """Keep something under a digest, where that is possible."""
        with contextlib.suppress(OSError, FileError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_local(str(self._folder / digest), data)
            self._remove_oldest()

    def recall_equal(self, digest: str) -> bool | None:
        """Whether two ways to compute had the same bits; `None` if that is not kept."""
        return {_EQUAL: True, _OTHER: False}.get(self.find(digest) or b"")

    def keep_equal(self, digest: str, *, is_equal: bool) -> None:
        """Keep whether two ways to compute had the same bits, where that is possible."""
        self.keep(digest, _EQUAL if is_equal else _OTHER)

    @property
    def _folder(self) -> Path:
        return cache_folder() / self.name

    def _remove_oldest(self) -> None:
        files = [(path, path.stat()) for path in self._folder.iterdir()]
        left_bytes, left = sum(status.st_size for _, status in files), len(files)
        if left_bytes <= self.most_bytes and left <= self.most_files:
            return
        for path, status in sorted(files, key=lambda each: each[1].st_mtime):
            if left_bytes <= self.most_bytes and left <= self.most_files * _SPARED:
                break
            path.unlink(missing_ok=True)
            left_bytes -= status.st_size
            left -= 1


@cache
def machine_facts() -> bytes:
    """What kernels depend on besides their settings: the releases and the processor."""
    facts = [metadata.version("memopt"), platform.machine()]
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            facts.append(f"{name} {metadata.version(name)}")
    with contextlib.suppress(OSError):
        lines = _CPUS.read_text(encoding="utf-8", errors="replace").splitlines()
        facts += sorted({line for line in lines if line.startswith(("model name", "flags"))})
    return json.dumps(facts).encode()
