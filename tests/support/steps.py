"""The models' tiny training steps with their variables, built once for all tests."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from memopt.models import MODELS, TINY

if TYPE_CHECKING:
    from memopt.models import TrainingStep


@cache
def tiny_step(name: str) -> TrainingStep:
    """A model's tiny step; who runs it puts its variables back."""
    return MODELS[name](**TINY[name])
