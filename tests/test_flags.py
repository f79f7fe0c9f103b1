"""Options from the environment, and which of two that ask for the same wins."""

from __future__ import annotations

import pytest

from memopt.errors import OptionsError
from memopt.flags import Flags
from memopt.options import Budget


def test_every_flag_is_read() -> None:
    text = (
        "--level=ordered --budget=60% --algorithm=standard --scheduler=list "
        "--small_node_limit=2 --dump_dot='a graph.dot' --dump_memlog=m.log"
    )
    assert Flags.parse(text) == Flags(
        "ordered", Budget.parse("60%"), "standard", "list", 2, "a graph.dot", "m.log"
    )


def test_no_flags_ask_for_nothing() -> None:
    assert Flags.from_environment({}) == Flags()
    assert Flags.from_environment({"MEMOPT_FLAGS": "  "}) == Flags()


def test_names_are_spelled_with_lines_below_or_between() -> None:
    assert Flags.parse("--small-node-limit=1") == Flags.parse("--small_node_limit=1")
    assert Flags.parse("--memory_limit=6GiB") == Flags(budget=Budget.parse("6GiB"))


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_switches(text: str, value: bool) -> None:
    assert Flags.parse(f"--only_lower={text}") == Flags(only_lower=value)


def test_what_is_given_in_the_program_wins() -> None:
    flags = Flags.parse("--algorithm=standard --scheduler=dfs")
    both = flags.overridden_by(Flags(scheduler="list", small_node_limit=0))
    assert both == Flags(algorithm="standard", scheduler="list", small_node_limit=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--buget=60%", "there is no flag '--buget=60%'; the flags: --level, --budget"),
        ("budget=60%", "there is no flag 'budget=60%'"),
        ("--budget", "write --budget=VALUE"),
        ("--dump_dot=", "write --dump_dot=VALUE"),
        (
            "--budget=much",
            "'much' is no budget, such as 6GiB, 60%, device or GPU:0=6GiB,GPU:1=8GiB",
        ),
        ("--small_node_limit=-1", "is no number of MiB"),
        ("--only_lower=no", "write --only_lower=true or --only_lower=false"),
        ("--dump_dot='x", "No closing quotation"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Flags.parse(text)
    assert message in str(caught.value)
