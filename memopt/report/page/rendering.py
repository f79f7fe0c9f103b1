"""The page as text: a template, a style, a script, Vega, all in one file that asks for nothing.

Vega and the data are in it deflated, as base64: they are a third as large so, and no text of either
can end the element in which it stands.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from functools import cache
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from memopt.display import bytes_text, count_text, time_text
from memopt.errors import OptionsError
from memopt.report.page.grouping import KINDS
from memopt.report.page.packing import packed
from memopt.report.page.vega import vega_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.report.page.model import Page, Track

_SCRIPTS = ("track.js", "figure.js", "details.js", "chart.js", "decisions.js", "main.js")
"""In the order in which they need each other; together they are one script."""
_NEEDED = ("jinja2", "vl_convert")
_ROWS_AT_PEAK = 25
_LEVEL = 9


def check_installed() -> None:
    """Check that what draws pages is there.

    Raises:
        OptionsError: It is not; the message says how to install it.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise OptionsError(
            f"a report page needs {' and '.join(missing)}: pip install memopt[report]"
        )


def render(page: Page) -> str:
    """A page as HTML. The same page gives the same text.

    Raises:
        OptionsError: What draws pages is not installed.
    """
    check_installed()
    library = _library()
    style, script = _file("page.css"), _script()
    return str(
        _template().render(
            page=page,
            style=style,
            script=script,
            policy=_policy(style, script, library.digest),
            library=library.deflated,
            data=_deflated(packed(page)),
            peaks=list(_peaks(page)),
            most_ns=max((one.time_ns for one in page.repeated), default=1) or 1,
        )
    )


def _policy(style: str, script: str, library: str) -> str:
    """What a browser may do for the page: run these scripts, and nothing that needs a network."""
    scripts = f"{_digest(script)} {library}"
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_digest(style)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode()


def _file(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    parts = "\n".join(_file(name) for name in _SCRIPTS)
    return f'(function () {{\n"use strict";\n{parts}\n}})();'


class _Library(NamedTuple):
    """What draws, as a page carries it: its source, deflated, and the digest of that source."""

    deflated: str
    digest: str


@cache
def _library() -> _Library:
    source = vega_source()
    return _Library(_deflated(source.encode()), _digest(source))


@cache
def _template() -> Any:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(bytes=bytes_text, time=time_text, count=count_text)
    return environment.get_template("page.html.j2")


def _peaks(page: Page) -> Iterator[dict[str, Any]]:
    """For each track the largest tensors at its peak, as a table."""
    for place, chart in enumerate(page.charts):
        for number, track in enumerate(chart.tracks):
            rows = list(_rows(track, chart.unit))
            yield {
                "chart": place,
                "track": number,
                "title": f"{chart.title}, {track.title}"
                if track.title != chart.title
                else chart.title,
                "peak_bytes": track.peak_bytes,
                "rows": rows[:_ROWS_AT_PEAK],
                "live": len(rows),
            }


def _rows(track: Track, unit: str) -> Iterator[dict[str, Any]]:
    numbers = {id(tensor): number for number, tensor in enumerate(track.tensors)}
    for tensor in track.live_at_peak():
        maker = track.operations[tensor.maker].op if tensor.maker >= 0 else ""
        yield {
            "tensor": tensor,
            "number": numbers[id(tensor)],
            "op": maker,
            "kind": KINDS[tensor.kind],
            "kind_number": tensor.kind,
            "share": tensor.size_bytes / max(track.peak_bytes, 1),
            "birth": _moment_text(track, tensor.birth, unit),
            "end": _moment_text(track, tensor.end, unit),
        }


def _moment_text(track: Track, moment: int, unit: str) -> str:
    if moment >= track.moments:
        return "the end"
    if track.times is None:
        return f"{moment:,}"
    return f"{track.times[moment]:.3f} {unit}"
