"""The example notebook runs, and shows what is stored in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.child import child_environment
from support.notebook import code_cells, run_cell

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def shapes_of(outputs: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """What is shown, but for figures, which differ from machine to machine."""
    return [(output["output_type"], sorted(output.get("data", ()))) for output in outputs]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_one_and_has_its_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    for cell in code_cells(notebook):
        compile("".join(cell["source"]), path.name, "exec")
    tables = [
        output["data"]["text/html"]
        for cell in code_cells(notebook)
        for output in cell["outputs"]
        if "text/html" in output.get("data", ())
    ]
    assert tables
    assert all("<table>" in "".join(table) for table in tables)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_is_stored(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.notebook", str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    stored, found = json.loads(path.read_text()), json.loads(done.stdout)
    for before, after in zip(code_cells(stored), code_cells(found), strict=True):
        assert shapes_of(before["outputs"]) == shapes_of(after["outputs"])
    (printed,) = (
        "".join(output["text"])
        for cell in code_cells(found)
        for output in cell["outputs"]
        if output["output_type"] == "stream"
    )
    assert printed == "the same losses, bit for bit: True\n"


def test_a_cell_shows_what_it_prints_and_its_last_value() -> None:
    (stream, shown) = run_cell("x = 1\nprint(x)\nx + 1", {})
    assert stream["text"] == ["1\n"]
    assert shown["data"] == {"text/plain": ["2"]}
    assert run_cell("y = 2", {}) == []
