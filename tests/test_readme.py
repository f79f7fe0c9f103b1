"""What the documentation shows works as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

from memopt.graph.rewriter import Rewriter
from memopt.graph.text import format_graph, parse_graph

ROOT = Path(__file__).resolve().parents[1]


def python_blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def test_the_example_of_the_readme_runs_and_prints_what_it_says() -> None:
    (example,) = python_blocks("README.md")
    printed: list[object] = []
    exec(compile(example, "README.md", "exec"), {"print": printed.append})
    assert printed == [True]


def test_the_pass_of_the_guide_is_a_pass() -> None:
    (example,) = python_blocks("docs/writing_a_pass.md")
    names: dict[str, object] = {}
    prologue = (
        "from dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from memopt.shapes.properties import Properties\n"
        "from memopt.graph.rewriter import Rewriter, Touches\n"
        "from memopt.passes import Context, Pass\n"
    )
    epilogue = "pass_, context = DropIdentities(), Context(Properties.unknown(), kept={'kept'})\n"
    exec(prologue + example + epilogue, names)
    graph = parse_graph("x = A()\ni = Identity(x:1)\nkept = Identity(i)\ny = B(i, kept, i)\n")
    rewriter = Rewriter(graph)
    names["pass_"].run(rewriter, names["context"])  # type: ignore[attr-defined]  # made by exec
    assert format_graph(graph) == "x = A()\nkept = Identity(x:1)\ny = B(x:1, kept, x:1)\n"
    assert [declined.node for declined in rewriter.declined] == ["kept"]
