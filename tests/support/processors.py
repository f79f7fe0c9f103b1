"""What tests ask of the processor that they run on."""

from __future__ import annotations

from pathlib import Path

import pytest


def _flags() -> set[str]:
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return set()


adds_up_with_avx2 = pytest.mark.skipif(
    not {"avx2", "fma"} <= _flags() or "avx512f" in _flags(),
    reason="oneDNN's products are known to add up as told with AVX2 alone",
)
