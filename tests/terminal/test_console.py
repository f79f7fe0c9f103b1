"""What shows that work is going on."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console

from memopt.terminal import console

if TYPE_CHECKING:
    import pytest


def test_work_inside_of_work_takes_its_line_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(console, "_progress", Console(file=written, force_terminal=True))
    with console.working("planning") as say:
        with console.working("compiling") as say_inside:
            say_inside("a loop")
            assert str(console._shown[0].status) == "compiling: a loop ..."
        assert str(console._shown[0].status) == "planning ..."
        say("halfway")
        assert str(console._shown[0].status) == "planning: halfway ..."
    assert not console._shown


def test_nothing_is_said_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(console, "_progress", Console(file=written))
    with console.working("planning"), console.working("compiling"):
        pass
    assert not written.getvalue().strip()
