"""`memopt fit` as a user calls it, for real under the allocator's limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run

from memopt.io import read_graph, save
from memopt.models import MODELS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "step.pb"
    save(MODELS["mlp"](batch=None, width=64, layers=8).function, str(path))
    return path


@pytest.mark.slow
def test_the_size_is_found_proved_and_written(tmp_path: Path, step_file: Path) -> None:
    out = tmp_path / "out.pb"
    ended = run(
        *("fit", step_file, "--memory", "12MiB", "--multiple-of", "512", "-o", out, "--json")
    )
    assert (ended.status, ended.errors) == (0, "")
    found = json.loads(ended.output)
    assert found["size"] % 512 == 0
    assert found["size"] >= found["free_size"] > 0
    assert found["measured_peak_bytes"] <= 12 << 20
    assert found["overhead"] <= 0.2
    sizes = {
        node.name: [dimension.size for dimension in node.attr["shape"].shape.dim]
        for node in read_graph(str(out)).graph_def.node
        if node.op == "Placeholder"
    }
    assert sizes == {"features": [found["size"], 64], "targets": [found["size"]]}


@pytest.mark.slow
def test_the_table_says_what_was_found(tmp_path: Path, step_file: Path) -> None:
    out = tmp_path / "out.pb"
    ended = run("fit", step_file, "--memory", "8MiB", "--no-run", "-o", out, "--multiple-of", "512")
    assert (ended.status, ended.errors) == (0, "")
    for text in ("largest size of features:0, targets:0", "not run", "largest size unchanged"):
        assert text in ended.output
    assert "only, for which it was planned" in ended.output


def test_what_cannot_be_is_one_line_and_nothing_is_written(tmp_path: Path, step_file: Path) -> None:
    out = tmp_path / "out.pb"
    fixed = tmp_path / "fixed.pb"
    save(MODELS["mlp"](batch=8, width=16, layers=2).function, str(fixed))
    ended = run("fit", fixed, "--memory", "8MiB", "-o", out)
    assert_one_line(ended, "no open dimension .* trace the step with None")
    ended = run("fit", step_file, "--memory", "8MiB", "--multiple-of", "65536", "-o", out)
    assert_one_line(ended, "not even size 65536 fits .* the smallest budget")
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--memory", "much"),
        ("--memory", "1KB"),
        ("--memory", "8MiB", "--max-overhead", "little"),
        ("--memory", "8MiB", "--dimension", "features"),
        ("--memory", "8MiB", "--multiple-of", "0"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], step_file: Path) -> None:
    assert run("fit", step_file, *arguments).status == 2
