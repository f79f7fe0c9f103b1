"""What machine the figures were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def describe_machine() -> str:
    """GPUs, processor, cores and versions in one line."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                processor = line.partition(":")[2].strip()
                break
    for gpu in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        processor = f"{gpu.read_text().partition(':')[2].split(chr(10))[0].strip()}, {processor}"
    return (
        f"{processor}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, TensorFlow {version('tensorflow')}"
    )
