"""Registers memopt where TensorFlow lacks its symbol, and trains."""

from __future__ import annotations

from typing import Any
from unittest import mock

import memopt
from support.programs.steps import KINDS


def main(*kinds: str) -> dict[str, Any]:
    """How it was registered, why not better, and what came of it."""
    from memopt.plugin.structures import Api

    without = {kind: KINDS[kind]() for kind in kinds}
    with mock.patch.object(Api, "find_registration", return_value=None):
        memopt.enable()
    same = {kind: KINDS[kind]() == without[kind] for kind in kinds}
    status = memopt.plugin_status()
    return {
        "registered": status.registered,
        "failures": status.failures,
        "same": same,
        "outcomes": [r.outcome for r in memopt.last_reports() if r.outcome != "passed over"],
    }
