"""The page as a file: self-contained, the same every time, and safe whatever names say."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from html.parser import HTMLParser
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

import pytest
from support.pages import training_report

from memopt.errors import FileError, OptionsError
from memopt.planning.plan import Plan, Plans
from memopt.report.page import rendering, vega
from memopt.report.page.entry import check_page, page_html, write_page
from memopt.report.page.model import Fact, Grid, Page
from memopt.report.page.rendering import render

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "\u2028alert(1)\u2029",
    "<!--<script>",
    "\"'><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "]]>&lt;b&gt;",
    "\u202egnp.exe",
)
SCRIPTS = 3
"""Of these two are data."""


class Elements(HTMLParser):
    """Every element of a page with its attributes, and what stands in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "style":
            self.styles[-1] += data
        else:
            self.texts.append(data)


def unpacked(text: str, element: str) -> str:
    found = re.search(rf'id="{element}">([A-Za-z0-9+/=]*)</script>', text)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1])).decode()


def data_of(text: str) -> Any:
    return json.loads(unpacked(text, "data"))


def policy_of(text: str) -> dict[str, list[str]]:
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None
    rules = (rule.split() for rule in html.unescape(found[1]).split(";"))
    return {name: values for name, *values in rules}


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_text(name: str) -> None:
    """In the elements, their attributes, scripts: what a name adds is the text itself."""
    plain = Elements(training_report(21, "model").to_html())
    hostile_text = training_report(21, name).to_html()
    hostile = Elements(hostile_text)
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [sorted(given) for _, given in hostile.found] == [
        sorted(given) for _, given in plain.found
    ]
    assert len(hostile.scripts) == SCRIPTS
    assert hostile.scripts[2] == plain.scripts[2]
    assert "\u2028" not in hostile_text
    assert "\u202e" not in hostile_text
    texts = data_of(hostile_text)["texts"]
    assert any("layer_0/Relu" in text and len(text) > len("layer_0/Relu") for text in texts)


def test_all_that_a_page_says_is_escaped() -> None:
    """Titles, figures, tables and notes too: errors quote names."""
    name = HOSTILE[0]
    page = Page(name, name, (Fact(name, name, name),), grids=(Grid(name, (name,), ((name,),)),))
    text = render(Page(**{**vars(page), "notes": (name,)}))
    assert "<img" not in text
    assert Elements(text).texts.count(name) >= 8


def test_the_policy_allows_what_is_there_and_nothing_else() -> None:
    text = training_report(21).to_html()
    elements, policy = Elements(text), policy_of(text)
    assert policy["default-src"] == ["'none'"]
    assert policy["script-src"] == [digest(elements.scripts[2]), digest(unpacked(text, "library"))]
    assert policy["style-src"] == [digest(elements.styles[0])]
    assert not any("unsafe" in value for values in policy.values() for value in values)


def test_nothing_is_loaded_from_elsewhere() -> None:
    elements = Elements(training_report(21).to_html())
    for tag, attributes in elements.found:
        assert tag not in ("link", "iframe", "img", "object", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]


def test_the_same_report_has_the_same_bytes() -> None:
    assert training_report(70).to_html() == training_report(70).to_html()


def test_the_data_has_every_text_once_and_what_the_script_reads() -> None:
    data = data_of(training_report(70).to_html())
    assert len(data["texts"]) == len(set(data["texts"]))
    after, before = data["charts"][0]["tracks"]
    for track in (after, before):
        assert len({len(column) for column in track["tensors"].values()}) == 1
        assert max(track["tensors"]["end"]) <= track["moments"]
    assert after["operations"]["start"] is None


def test_a_page_without_memory_says_so() -> None:
    text = render(Page("Optimization", "nothing was done"))
    assert "There is no memory over the step to be shown." in text


def test_every_reference_of_a_label_is_there() -> None:
    """What reads a page aloud finds the names of its regions."""
    elements = Elements(training_report(70).to_html())
    ids = {given["id"] for _, given in elements.found if "id" in given}
    for _, given in elements.found:
        for key in ("aria-labelledby", "aria-describedby", "for"):
            assert set((given.get(key) or "").split()) <= ids
        if (given.get("href") or "").startswith("#"):
            assert (given["href"] or "")[1:] in ids
    for tag, given in elements.found:
        if given.get("tabindex") == "0":
            assert {"aria-label", "aria-labelledby"} & set(given), tag


PLAN = Plan((0, 1, 0), (), 2048, 30, 20, 4096, 25, 0.1, 0, "feasible")


def test_plans_have_pages() -> None:
    assert "<h1>Plan</h1>" in PLAN.to_html()
    text = Plans((PLAN, PLAN)).to_html()
    assert data_of(text)["budgets"]["budget_bytes"] == [4096, 4096]
    assert "What budgets cost" in text


def test_other_things_have_no_page() -> None:
    with pytest.raises(OptionsError, match="there is no report page of a dict"):
        page_html({})


def test_what_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_NEEDED", ("jinja2", "not_installed"))
    with pytest.raises(OptionsError, match=r"needs not_installed: pip install memopt\[report\]$"):
        PLAN.to_html()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(str(path), PLAN)
    assert path.read_text() == PLAN.to_html()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileError, match="cannot be written"):
        write_page(str(tmp_path), PLAN)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["", "none/page.html", "page\0.html"])
def test_a_bad_path_is_known_before_the_work(tmp_path: Path, place: str) -> None:
    with pytest.raises(FileError):
        check_page(f"{tmp_path}/{place}")
    check_page(str(tmp_path / "page.html"))


def test_a_damaged_library_in_the_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = vega.vega_source()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "memopt" / "report"
    folder.mkdir(parents=True)
    path = folder / f"vega-{metadata.version('vl-convert-python')}.js"
    path.write_text(f"{'0' * 64}\nalert(1)")
    vega.vega_source.cache_clear()
    assert vega.vega_source() == whole
    assert path.read_text().partition("\n")[2] == whole


def test_assets_are_part_of_the_package() -> None:
    assets = resources.files("memopt.report.page") / "assets"
    names = {each.name for each in assets.iterdir()}
    assert {"page.html.j2", "page.css", *rendering._SCRIPTS} == names
