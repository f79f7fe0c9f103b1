"""Tiny training steps, built once, run without the optimizers that are not under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memopt.models import MODELS, TINY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.models import TrainingStep


@pytest.fixture(scope="module", params=MODELS)
def built_step(request: pytest.FixtureRequest) -> TrainingStep:
    """The tiny step of each model in turn; one object for all tests of a module."""
    return MODELS[request.param](**TINY[request.param])


@pytest.fixture
def step(built_step: TrainingStep) -> Iterator[TrainingStep]:
    """The tiny step of each model in its first state, to which it returns after the test."""
    first_values = [variable.numpy() for variable in built_step.variables]
    yield built_step
    for variable, value in zip(built_step.variables, first_values, strict=True):
        variable.assign(value)


@pytest.fixture(autouse=True)
def no_meta_optimizer() -> Iterator[None]:
    """Runs graphs as they are: Grappler's rewrites may depend on the machine."""
    import tensorflow as tf

    option = "disable_meta_optimizer"
    previous = tf.config.optimizer.get_experimental_options().get(option, False)
    tf.config.optimizer.set_experimental_options({option: True})
    yield
    tf.config.optimizer.set_experimental_options({option: previous})
