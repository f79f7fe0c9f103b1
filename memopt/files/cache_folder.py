"""Where memopt keeps between processes what takes long to make."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder `memopt` below XDG_CACHE_HOME, or below ~/.cache if that is not set.

    Whoever writes there makes it, and does without where that fails.
    """
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "memopt"
