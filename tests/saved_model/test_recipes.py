"""The recipes of docs/saved_models.md run and print what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import run

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "saved_models.md"
_SAID = re.compile(r"print\(.*\)  # (.*)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


def test_the_programs_run_and_print_what_they_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    printed: list[str] = []
    names = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
    text = DOCUMENT.read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "saved_models.md", "exec"), names)
    assert printed == _SAID.findall(text)
    assert len(printed) > 1


def test_the_options_of_the_commands_exist() -> None:
    text = DOCUMENT.read_text()
    for command in ("optimize", "analyze", "verify"):
        known = run(command, "--help").output
        lines = re.findall(rf"^    memopt {command} .*$", text, re.MULTILINE)
        assert lines
        options = {option for line in lines for option in re.findall(r"--[a-z-]+", line)}
        assert all(option in known for option in options), (command, options)
