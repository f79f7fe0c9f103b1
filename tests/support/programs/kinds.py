"""Trains steps of all kinds with and without memopt, and tells what was done."""

from __future__ import annotations

from typing import Any

from support.programs.pairs import train_pairs
from support.programs.steps import KINDS


def main(option: str, *kinds: str) -> dict[str, Any]:
    """For each kind, or each of some: what came of it without and with memopt, and the records."""
    name, _, value = option.partition("=")
    chosen = {kind: train for kind, train in KINDS.items() if kind in kinds or not kinds}
    return train_pairs(chosen, **{name: value})
