"""The library that every page carries: Vega, as `vl-convert-python` bundles it, made once.

Vega was chosen over Plotly, which is as well kept: 0.9 MB instead of 4.8 MB (deflated 0.3 and 1.5),
and a browser has run it in a thirtieth of the time. To bundle it takes seconds, so what comes of it
stays in the cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from importlib.metadata import version

from memopt.errors import FileError
from memopt.files.cache_folder import cache_folder
from memopt.files.whole_files import write_local

_SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the bundle does: it makes Vega's entry known to the page's script."""


@cache
def vega_source() -> str:
    """The source of the bundle, from the cache folder if it is there and whole."""
    import vl_convert

    path = cache_folder() / "report" / f"vega-{version('vl-convert-python')}.js"
    try:
        digest, _, source = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        digest = source = ""
    if source and digest == _digest(source):
        return source
    bundled: str = vl_convert.javascript_bundle(_SNIPPET)
    with contextlib.suppress(OSError, FileError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_local(str(path), f"{_digest(bundled)}\n{bundled}".encode())
    return bundled


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
