"""The models' tiny training steps with their variables, built once for all tests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from memopt.io import save
from memopt.models import MODELS, TINY

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.models import TrainingStep


@cache
def tiny_step(name: str) -> TrainingStep:
    """A model's tiny step; who runs it puts its variables back."""
    return MODELS[name](**TINY[name])


def save_open_step(folder: Path) -> str:
    """The file of a network's step for batches of any size, of which a few hundred fit into MiB."""
    path = str(folder / "open.pb")
    save(MODELS["mlp"](batch=None, width=64, layers=8).function, path)
    return path
