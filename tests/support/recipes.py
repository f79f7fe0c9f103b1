"""Documents whose Python is run, all blocks of one as one program."""

from __future__ import annotations

import re
from pathlib import Path

_DOCUMENTS = Path(__file__).resolve().parents[2] / "docs"
_SAID = re.compile(r"print\(.*\)  # (.*)")


def read_document(name: str) -> str:
    """The text of a page of the documentation."""
    return (_DOCUMENTS / name).read_text()


def check_programs(name: str) -> None:
    """Run the Python of a page here, and check that it prints what stands behind its prints."""
    printed: list[str] = []
    names = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
    text = read_document(name)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, name, "exec"), names)
    assert printed == _SAID.findall(text)
    assert len(printed) > 1
