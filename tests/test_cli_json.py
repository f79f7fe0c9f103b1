"""What commands print with `--json` is what the schema says, and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support.commands import Ended, run
from support.saved_models import save_network
from support.steps import tiny_step

import memopt.cli
import memopt.demo
from memopt.cli import fleets, group, main
from memopt.cli.group import LONGEST_LINE, error_line
from memopt.io import save
from memopt.models import MODELS

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = json.loads((Path(memopt.cli.__file__).parent / "output.schema.json").read_text())
COST_GRAPH = {
    "nodes": [{"id": 0, "cost": 1, "size": 8}, {"id": 1, "cost": 1, "size": 4}],
    "edges": [[0, 1]],
    "order": [0, 1],
}
WITHOUT = {"run", "completion"}
"""What one prints is a program's, and what the other prints is a shell's."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    save(tiny_step("mlp").function, str(folder / "step.pb"))
    (folder / "costs.json").write_text(json.dumps(COST_GRAPH))
    return folder


def check(command: str, ended: Ended, status: int = 0) -> Any:
    """What a command printed, which is what the schema says of it."""
    assert (ended.status, ended.errors) == (status, "")
    plain = json.loads(ended.output)
    jsonschema.validate(plain, {**SCHEMA, "anyOf": [{"$ref": f"#/$defs/commands/{command}"}]})
    return plain


def test_every_command_has_a_schema_and_the_option() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["$defs"]["commands"]) == set(main.commands) - WITHOUT
    for name in set(main.commands) - WITHOUT:
        assert any("--json" in parameter.opts for parameter in main.commands[name].params), name


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("passes", ()),
        ("plan", ("costs.json", "--budget", "1.0")),
        ("plan", ("costs.json", "--sweep")),
        ("analyze", ("step.pb", "--device", "CPU:0=CPU")),
        ("optimize", ("step.pb", "-o", "out.pb", "--budget", "70%")),
    ],
)
def test_what_is_printed_is_what_the_schema_says(
    command: str, arguments: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert check(command, run(command, *arguments, "--json"))


def test_the_schema_refuses_something_else() -> None:
    with pytest.raises(jsonschema.ValidationError):
        check("plan", Ended(0, "{}", ""))
    with pytest.raises(jsonschema.ValidationError):
        check("passes", Ended(0, '[{"name": 1, "what": "", "options": {}}]', ""))


@pytest.mark.slow
def test_of_long_commands_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    check("verify", run("verify", "step.pb", "step.pb", "--steps", 1, "--rounds", 1, "--json"))
    check("profile", run("profile", "step.pb", "-o", "step.profile", "--steps", 1, "--json"))
    check("profile-kernels", run("profile-kernels", "step.pb", "-o", tmp_path / "k", "--json"))
    model, leaner = save_network(tmp_path / "network"), tmp_path / "leaner"
    check("analyze", run("analyze", model, "--json"))
    check("optimize", run("optimize", model, "-o", leaner, "--budget", "60%", "--json"))
    found = check("verify", run("verify", model, leaner, "--rounds", 0, "--steps", 1, "--json"))
    assert found["verification"]["equal"]
    step = MODELS["mlp"](batch=2048, width=128, layers=16)
    monkeypatch.setattr(memopt.demo, "MODELS", {"mlp": lambda: step})
    check("demo", run("demo", "--model", "mlp", "--steps", "1", "--json"))


def test_errors_take_one_short_line_and_all_of_it_is_in_a_file() -> None:
    short = error_line("a\n  b")
    assert short == "memopt: a b"
    long = error_line("word\n" * 200)
    assert len(long) == LONGEST_LINE
    path = Path(long.rpartition("(all of it: ")[2].removesuffix(")"))
    assert path.read_text() == "word\n" * 200 + "\n"
    path.unlink()


def test_without_a_place_for_the_rest_an_error_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise OSError

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert error_line("x" * 400) == f"memopt: {'x' * 288} ..."


def test_a_refused_budget_takes_one_short_line(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = run(
        *("optimize", folder / "step.pb", "-o", tmp_path / "out.pb", "--budget", "1%"),
        *("--algorithm", "standard", "--scheduler", "list", "--report", page),
    )
    assert ended.status == group.FAILED
    assert len(ended.errors) <= LONGEST_LINE + 1
    assert ended.errors.startswith("memopt: the budget of ")
    assert ended.errors.endswith(f"(all of it: {page})\n")
    assert list(tmp_path.iterdir()) == [page]
    text = page.read_text()
    assert "<h1>A budget that cannot be kept</h1>" in text
    assert "No order and no recomputation gets below" in text


def test_exit_statuses_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "command_line.md").read_text()
    for status in (0, group.FAILED, group.WRONG_USAGE, fleets.SOME_FAILED, group.INTERRUPTED):
        assert f"| {status} |" in page


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    ended = run("completion", shell)
    assert ended.status == 0
    assert f"_MEMOPT_COMPLETE={shell}_complete" in ended.output


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [
        ("bash", {"COMP_WORDS": "memopt opt", "COMP_CWORD": "1"}, "plain,optimize"),
        ("zsh", {"COMP_WORDS": "memopt doc", "COMP_CWORD": "1"}, "doctor"),
        ("fish", {"COMP_WORDS": "memopt plan", "COMP_CWORD": "--bud"}, "--budget"),
    ],
)
def test_commands_and_options_are_completed(
    shell: str, words: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"_MEMOPT_COMPLETE": f"{shell}_complete"} | words).items():
        monkeypatch.setenv(name, value)
    code = "from memopt.cli import main; main(prog_name='memopt')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert expected in done.stdout


def test_no_colour_is_no_colour() -> None:
    code = (
        "from rich.text import Text\nfrom memopt.terminal.console import terminal\n"
        "terminal._force_terminal = True\nterminal.print(Text('x', style='red'))\n"
    )
    environment = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "x\n"
