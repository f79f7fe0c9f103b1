"""memopt inside TensorFlow: switched on and off in all ways, and broken in all places."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from support.child import run_child

BY_SYMBOL = {"CPU": "symbol", "GPU": "symbol"}


@cache
def results() -> dict[str, Any]:
    return run_child("switching")


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("nothing_happens_before_it_is_switched_on", [{}, None, []]),
        (
            # Once for each policy, and not again when one comes back.
            "functions_that_ran_are_optimized_anew",
            [[], ["rewritten"], [], ["rewritten"], ["rewritten"], [], []],
        ),
        ("it_is_on_inside_a_with_statement", [["rewritten"], [], [], []]),
        ("the_users_options_come_back", [True, False, True]),
        (
            "the_status_says_how",
            [BY_SYMBOL, {}, "registered: CPU by symbol, GPU by symbol"],
        ),
        (
            "functions_ask_for_themselves",
            [
                ["rewritten"],
                ["rewritten"],
                [],
                ["rewritten"],
                ["recomputation_heuristics"],
                [],
                [],
            ],
        ),
        ("interrupted", [True, True, "KeyboardInterrupt:"]),
        ("too_late", [True, "MemoptError: the deadline of 100 ms has passed"]),
        ("a_report_that_cannot_be_written", [["rewritten"], ""]),
        (
            "from_config",
            [
                [[], ""],
                [["unchanged"], "recomputation_heuristics"],
                [["rewritten"], "ordered"],
            ],
        ),
        ("one_turn_of_grappler", [[True], ["rewritten"]]),
        ("reloaded", ["rewritten"]),
        ("second_copy", [True, ["rewritten"], BY_SYMBOL]),
    ],
)
def test_case(case: str, expected: Any) -> None:
    assert results()[case] == expected


def test_whatever_fails_leaves_the_graph_as_it_is() -> None:
    """And is recorded, and told once."""
    assert results()["faults"] == {
        "parse": [True, ["ValueError: broken"], 1],
        "asked_for": [True, ["ZeroDivisionError:"], 1],
        "why_not": [True, ["KeyError: 'x'"], 1],
        "read_names": [True, ["InvalidGraphError: no names"], 1],
        "item_of": [True, ["RuntimeError: no item"], 1],
        "read_shapes": [True, ["OSError: no shapes"], 1],
        "Work": [True, ["InvalidGraphError: not verified"], 1],
        "serialize": [True, ["MemoryError:"], 1],
        "config_of_functions": [True, ["SystemExit: 3"], 1],
    }


def test_a_graph_without_nodes_is_not_handed_over() -> None:
    same, error = results()["verification_failed"]
    assert same
    assert error.startswith("InvalidGraphError: ")


def test_a_budget_that_cannot_be_kept_is_told_and_kept_as_well_as_can_be() -> None:
    same, outcome, budget_bytes, peak_bytes, messages = results()["a_budget_that_cannot_be_kept"]
    assert same
    assert outcome == "rewritten"
    assert budget_bytes == 1000
    assert len(messages) == 1
    assert f"the lowest peak that was found is {peak_bytes} bytes" in messages[0]


def test_a_report_is_a_file_in_the_folder() -> None:
    files, expected, _ = results()["a_report_is_written"]
    assert files == [expected]


def test_what_xla_compiles_is_told_once() -> None:
    (message,) = results()["xla"]
    assert "'my_step'" in message
    assert "jit_compile=False" in message
