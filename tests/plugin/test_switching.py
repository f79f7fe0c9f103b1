"""memopt inside TensorFlow: switched on and off in all ways, and broken in all places."""

from __future__ import annotations

from typing import Any

import pytest
from support.child import run_child

BY_SYMBOL = {"CPU": "symbol", "GPU": "symbol"}

EXPECTED = {
    "nothing_happens_before_it_is_switched_on": [{}, None, []],
    # Once for each policy, and not again when one comes back.
    "functions_that_ran_are_optimized_anew": [
        [],
        ["rewritten"],
        [],
        ["rewritten"],
        ["rewritten"],
        [],
        [],
    ],
    "it_is_on_inside_a_with_statement": [["rewritten"], [], [], []],
    "the_users_options_come_back": [True, False, True],
    "the_status_says_how": [BY_SYMBOL, {}, "registered: CPU by symbol, GPU by symbol"],
    "functions_ask_for_themselves": [
        ["rewritten"],
        ["rewritten"],
        [],
        ["rewritten"],
        ["recomputation_heuristics"],
        [],
        [],
    ],
    # Whatever fails leaves the graph as it is; it is recorded, and told once.
    "faults": {
        "parse": [True, ["ValueError: broken"], 1],
        "asked_for": [True, ["ZeroDivisionError:"], 1],
        "why_not": [True, ["KeyError: 'x'"], 1],
        "read_names": [True, ["InvalidGraphError: no names"], 1],
        "item_of": [True, ["RuntimeError: no item"], 1],
        "read_shapes": [True, ["OSError: no shapes"], 1],
        "Work": [True, ["InvalidGraphError: not verified"], 1],
        "serialize": [True, ["MemoryError:"], 1],
        "config_of_functions": [True, ["SystemExit: 3"], 1],
    },
    "interrupted": [True, True, 1, "KeyboardInterrupt:"],
    "interrupted_in_between": [[True, True], True],
    "too_late": [True, "MemoptError: the deadline of 100 ms has passed"],
    "a_report_that_cannot_be_written": [["rewritten"], ""],
    "from_config": [
        [[], ""],
        [["unchanged"], "recomputation_heuristics"],
        [["rewritten"], "ordered"],
    ],
    "sessions_beside_each_other": [4.0, 4.0],
    "one_turn_of_grappler": [[True], ["rewritten"]],
    "what_needs_no_less_stays": [
        ["rewritten"],
        ["unchanged"],
        True,
        (
            "the best that was found needs 0.02 MiB on top of what the step holds, and as it is it "
            "needs 0.02 MiB"
        ),
    ],
    "reloaded": ["rewritten"],
    "second_copy": [True, ["rewritten"], BY_SYMBOL],
}
"""What each case of the program tells, where it can be said beforehand."""


@pytest.mark.slow
def test_switches_and_faults() -> None:
    """All in one process: to start TensorFlow takes longer than a case."""
    found = run_child("switching", MEMOPT_FLAGS="--only_lower=false")
    assert {case: found.pop(case) for case in EXPECTED} == EXPECTED
    _check_verification(*found.pop("verification_failed"))
    _check_budget(*found.pop("a_budget_that_cannot_be_kept"))
    files, expected, _ = found.pop("a_report_is_written")
    assert files == [expected]
    (message,), compiled = found.pop("xla")
    assert "XLA compiles 'my_step'" in message
    assert "traced before memopt was switched on" in message
    assert compiled == 1
    assert found == {}


def _check_verification(same: bool, error: str) -> None:
    """A graph without nodes is not handed over."""
    assert same
    assert error.startswith("InvalidGraphError: ")


def _check_budget(
    same: bool, outcome: str, budget_bytes: int, peak_bytes: int, messages: list[Any]
) -> None:
    """A budget that cannot be kept is told once, and kept as well as can be."""
    assert same
    assert (outcome, budget_bytes, len(messages)) == ("rewritten", 1000, 1)
    assert f"the lowest peak that was found is {peak_bytes} bytes" in messages[0]
    assert "with more than planning_seconds=5 " in messages[0]
