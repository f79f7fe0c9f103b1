"""Trains steps of all kinds with and without memopt, and tells what was done."""

from __future__ import annotations

from typing import Any

from support.programs.pairs import train_pairs
from support.programs.steps import KINDS


def main(*options: str) -> dict[str, Any]:
    """For each kind: what came of it without and with memopt, and the records."""
    return train_pairs(KINDS, **dict(option.split("=") for option in options))
