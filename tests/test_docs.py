"""Links of the documentation lead somewhere, and the files that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")])
GENERATED = "reference.md"
"""Its headings come from docstrings."""

_FENCED = re.compile(r"```.*?```", re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_SOURCE = re.compile(r"`((?:memopt|models|tests|benchmarks|docs)/[\w./]*)`")
LONGEST_README = 150


def anchors_of(text: str) -> set[str]:
    """The anchors of a document's headings, as Markdown renderers make them."""
    headings = _HEADING.findall(_FENCED.sub("", text))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def broken_links(document: Path) -> list[str]:
    """The links of a document to files or headings that are not there."""
    links = _LINK.findall(_CODE.sub("", _FENCED.sub("", document.read_text())))
    return [link for link in links if not re.match(r"[a-z]+:", link) and not leads(document, link)]


def leads(document: Path, link: str) -> bool:
    """Whether a link within the repository leads to a file, and to a heading in it."""
    name, _, anchor = link.partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.exists():
        return False
    return not anchor or target.name == GENERATED or anchor in anchors_of(target.read_text())


def missing_sources(document: Path) -> list[str]:
    """The files and folders of the repository that a document names and that are not there."""
    named = _SOURCE.findall(document.read_text())
    return [name for name in named if not (ROOT / name).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document) == []


@pytest.mark.parametrize(
    "document",
    [path for path in DOCUMENTS if path.name != "CHANGELOG.md"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_files_that_are_named_are_there(document: Path) -> None:
    assert missing_sources(document) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One heading, `code` and [more](x.md)\n")
    document = tmp_path / "document.md"
    document.write_text(
        "# Here\n[a](other.md) [b](other.md#one-heading-code-and-more) [c](#here) [d](http://x)\n"
        "[e](none.md) [f](other.md#none) [g](#none)\n```\n[h](none.md)\n```\n"
        "`memopt/none.py` and `memopt/graph/` and `[i](none.md)`\n"
    )
    assert broken_links(document) == ["none.md", "other.md#none", "#none"]
    assert missing_sources(document) == ["memopt/none.py"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


def test_every_document_is_on_the_site() -> None:
    pages = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert pages == {path.name for path in (ROOT / "docs").glob("*.md")}
