"""Steps that other functions call, rewritten and run: the same bits as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.state import run_from_start, without_grappler

import memopt
from memopt.models import MODELS, TINY

if TYPE_CHECKING:
    from collections.abc import Callable

    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.models import TrainingStep

    Wrapper = Callable[[ConcreteFunction], Callable[..., Any]]

FAST = frozenset({"mlp", "bert once"})
"""Models, or a way of calling one, that are not slow."""
LARGE = frozenset({"densenet121", "resnet50"})
"""So slow that one way of calling them has to do."""


def once(step: ConcreteFunction) -> Callable[..., Any]:
    def run(*inputs: tf.Tensor) -> tf.Tensor:
        return step(*inputs)

    return run


def twice(step: ConcreteFunction) -> Callable[..., Any]:
    import tensorflow as tf

    called: Callable[..., Any] = tf.function(once(step), autograph=False)
    return called


def in_loop(step: ConcreteFunction) -> Callable[..., Any]:
    import tensorflow as tf

    def run(*inputs: tf.Tensor) -> tf.Tensor:
        turns = tf.constant(2)
        return tf.while_loop(
            lambda turn, _: turn < turns,
            lambda turn, _: (turn + 1, step(*inputs)),
            (tf.constant(0), tf.constant(0.0)),
            parallel_iterations=1,
        )[1]

    return run


def in_branches(step: ConcreteFunction) -> Callable[..., Any]:
    import tensorflow as tf

    def run(*inputs: tf.Tensor) -> tf.Tensor:
        is_large = tf.size(inputs[0]) > tf.random.uniform([], maxval=1, dtype=tf.int32)
        return tf.cond(is_large, lambda: step(*inputs), lambda: 2 * step(*inputs))

    return run


def traced(function: Callable[..., Any], step: TrainingStep) -> ConcreteFunction:
    import tensorflow as tf

    specs = [tf.TensorSpec(np.shape(one), np.asarray(one).dtype) for one in step.inputs]
    return tf.function(function, autograph=False).get_concrete_function(*specs)


def not_inlined(step: ConcreteFunction) -> Callable[..., Any]:
    import tensorflow as tf

    attributes = {"_noinline": True}
    called: Callable[..., Any] = tf.function(
        once(step), autograph=False, experimental_attributes=attributes
    )
    return called


WRAPPERS: dict[str, Wrapper] = {
    "once": once,
    "twice": twice,
    "in a loop": in_loop,
    "in branches": in_branches,
    "not inlined": not_inlined,
}


def _marks(name: str, how: str) -> Any:
    return () if FAST & {name, f"{name} {how}"} else pytest.mark.slow


CASES = [
    pytest.param(name, wrapper, id=f"{name} {how}", marks=_marks(name, how))
    for name in MODELS
    for how, wrapper in WRAPPERS.items()
    if name not in LARGE or how == "twice"
]


@pytest.mark.parametrize(("name", "wrapper"), CASES)
def test_a_step_that_is_called_by_others(name: str, wrapper: Wrapper) -> None:
    step = MODELS[name](**TINY[name])
    with without_grappler():
        caller = traced(wrapper(step.function), step)
        rewritten = memopt.rewrite(caller, level="ordered", after_grappler=False)
        expected, found = (
            run_from_start(function, step.variables, step.inputs)
            for function in (caller, rewritten)
        )
    assert found == expected


@pytest.mark.parametrize(
    ("level", "budget"),
    [("ordered", "60%"), ("recomputation_heuristics", None)],
    ids=["budget", "heuristics"],
)
@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_recomputation_around_and_in_bodies(
    wrapper: Wrapper, level: str, budget: str | None
) -> None:
    step = MODELS["mlp"](**TINY["mlp"])
    with without_grappler():
        caller = traced(wrapper(step.function), step)
        rewritten = memopt.rewrite(caller, level=level, budget=budget, after_grappler=False)
        expected, found = (
            run_from_start(function, step.variables, step.inputs)
            for function in (caller, rewritten)
        )
    assert found == expected


@pytest.mark.parametrize("name", ["mlp", pytest.param("gpt", marks=pytest.mark.slow)])
def test_what_grappler_works_on_later_stays_as_it_is(name: str) -> None:
    """A function that is not inlined goes to Grappler by itself, whatever is made of its caller."""
    step = MODELS[name](**TINY[name])
    caller = traced(not_inlined(step.function), step)
    rewritten = memopt.rewrite(caller, level="ordered")
    expected, found = (
        run_from_start(function, step.variables, step.inputs) for function in (caller, rewritten)
    )
    assert found == expected
