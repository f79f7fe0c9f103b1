"""The recipes of docs/saved_models.md run and print what they say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.commands import run
from support.recipes import check_programs, read_document

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT = "saved_models.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipes")


def test_the_programs_run_and_print_what_they_say(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    check_programs(DOCUMENT)


def test_the_options_of_the_commands_exist() -> None:
    text = read_document(DOCUMENT)
    for command in ("optimize", "analyze", "verify"):
        known = run(command, "--help").output
        lines = re.findall(rf"^    memopt {command} .*$", text, re.MULTILINE)
        assert lines
        options = {option for line in lines for option in re.findall(r"--[a-z-]+", line)}
        assert all(option in known for option in options), (command, options)
