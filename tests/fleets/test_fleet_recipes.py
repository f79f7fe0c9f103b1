"""The recipes of docs/fleets.md run and print what they say; its tables name what there is."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

from support.commands import run
from support.recipes import check_programs, read_document

from memopt.fleets.report import FleetReport, FleetTask

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DOCUMENT = "fleets.md"


def test_the_programs_run_and_print_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_programs(DOCUMENT)


def test_the_options_of_the_command_exist() -> None:
    text = read_document(DOCUMENT)
    known = run("fleet", "--help").output
    lines = re.findall(r"^    memopt fleet .*$", text, re.MULTILINE)
    assert lines
    assert all(option in known for line in lines for option in re.findall(r"--[a-z-]+", line))


def test_the_fields_of_the_json_are_described() -> None:
    """All of them, and no others."""
    text = read_document(DOCUMENT).partition("## As JSON")[2].partition("## ")[0]
    described = re.findall(r"`(\.{0,2})([a-z_]+)`", text)
    outer = {name for dots, name in described if not dots and name not in {"json", "report"}}
    inner = {name for dots, name in described if dots == "."}
    task = FleetTask("step.pb", "60%", "", "done")
    assert outer == set(FleetReport("out", (), 0.0, 1).to_json())
    assert inner == set(task.to_json()) >= {field.name for field in fields(FleetTask)}
