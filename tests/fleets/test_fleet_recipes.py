"""The recipes of docs/fleets.md run and print what they say; its tables name what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from support.commands import run

from memopt.fleets.report import FleetReport, FleetTask

if TYPE_CHECKING:
    import pytest

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fleets.md"
_SAID = re.compile(r"print\(.*\)  # (.*)")


def test_the_programs_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed: list[str] = []
    names = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
    text = DOCUMENT.read_text()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "fleets.md", "exec"), names)
    assert printed == _SAID.findall(text)
    assert len(printed) > 1


def test_the_options_of_the_command_exist() -> None:
    text = DOCUMENT.read_text()
    known = run("fleet", "--help").output
    lines = re.findall(r"^    memopt fleet .*$", text, re.MULTILINE)
    assert lines
    assert all(option in known for line in lines for option in re.findall(r"--[a-z-]+", line))


def test_the_fields_of_the_file_are_described() -> None:
    """All of them, and no others."""
    text = DOCUMENT.read_text().partition("## The file")[2].partition("## ")[0]
    described = re.findall(r"`(\.{0,2})([a-z_]+)`", text)
    outer = {name for dots, name in described if not dots and name not in {"json", "report"}}
    inner = {name for dots, name in described if dots == "."}
    task = FleetTask("step.pb", "60%", "", "done")
    assert outer == set(FleetReport("out", (), 0.0, 1).to_json())
    assert inner == set(task.to_json()) >= {field.name for field in fields(FleetTask)}
