"""Text cases: small graphs before and after a pass, in files that a person can read.

A file holds cases of the form

    === a sentence that says what must hold
    pass: recomputation{hints_only=true}
    fed: x y
    fetched: train
    --- before
    x = Placeholder() {dtype=float}
    --- after
    x = Placeholder() {dtype=float}
    --- declined
    node: reason

`fed` and `fetched` may be left out. `after` may say `(unchanged)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class TextCase:
    """One case of a file."""

    name: str
    spec: str
    before: str
    after: str
    declined: str = ""
    settings: dict[str, frozenset[str]] = field(default_factory=dict)


def read_cases(path: Path) -> list[TextCase]:
    """The cases of a file, in order."""
    return [_read_case(block) for block in path.read_text().split("=== ")[1:]]


def _read_case(block: str) -> TextCase:
    head, *sections = block.split("--- ")
    name, *settings = head.strip().splitlines()
    values = dict(line.split(": ", 1) for line in settings)
    parts = dict(section.split("\n", 1) for section in sections)
    after = parts["after"]
    return TextCase(
        name=name,
        spec=values.pop("pass"),
        before=parts["before"].strip() + "\n",
        after=(parts["before"] if after.strip() == "(unchanged)" else after).strip() + "\n",
        declined=parts.get("declined", "").strip(),
        settings={key: frozenset(value.split()) for key, value in values.items()},
    )
