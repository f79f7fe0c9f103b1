"""Notebooks run without Jupyter: code cells one after the other, what the last line gives shown."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a cell, as a notebook keeps them."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        shown = {"output_type": "display_data", "data": data, "metadata": {}}
        outputs.append(shown)
    return outputs


def run_all(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The outputs of all code cells, by cell."""
    names: dict[str, Any] = {}
    return [run_cell("".join(cell["source"]), names) for cell in code_cells(notebook)]


def main() -> None:
    """Run the notebook that is named, and print it with its outputs."""
    notebook = json.loads(Path(sys.argv[1]).read_text())
    outputs = run_all(notebook)
    for number, (cell, found) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell["outputs"], cell["execution_count"] = found, number
    sys.stdout.write(json.dumps(notebook, indent=1) + "\n")


if __name__ == "__main__":
    main()
