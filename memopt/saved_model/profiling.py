"""A function of a SavedModel timed operation by operation: `memopt.profile_saved_model`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.runtime.profile import profile
from memopt.saved_model.remote import at_hand
from memopt.saved_model.step import read_step, sized

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from memopt.runtime.profile import Profile
    from memopt.runtime.settings import Mode


def profile_saved_model(  # noqa: PLR0913 - keywords, each with a default
    path: str | os.PathLike[str],
    *,
    function: str | None = None,
    signature: str | None = None,
    shapes: Mapping[str, Iterable[int]] | None = None,
    steps: int = 5,
    mode: Mode = "as-is",
    inputs: Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
    after_grappler: bool | None = None,
) -> Profile:
    """Run a few steps of a SavedModel's function and tell how long each operation takes.

    What runs is what a loader runs under TensorFlow's defaults, which is what
    `optimize_saved_model` and `fit_saved_model` rewrite: what Grappler makes of the function, where
    it trains. One operation runs at a time, in a fresh process.

    Args:
        path: The folder of the SavedModel; it stays as it is.
        function: The function's name, in the library or in the program that saved it. Without this
            and `signature` the only one that trains.
        signature: The key of a signature that runs it.
        shapes: Shapes of arguments whose dimensions are open, by name of the argument.
        steps: How many steps count.
        mode: "as-is" with the kernels that TensorFlow takes by default; "exact" without oneDNN.
        inputs: Values of arguments by name; what is missing is made up from the seed.
        variables: Values of variables by name of the argument that stands for each, instead of
            those that the model was saved with.
        seed: What made-up values and random operations without seeds draw from.
        after_grappler: As for `optimize_saved_model`.

    Raises:
        FileError: The SavedModel cannot be read.
        InvalidGraphError: The function cannot be run.
        OptionsError: There is no such function, or several train; a value or a shape is missing or
            does not fit.
        ExecutionError: A run failed; `OutOfMemoryError` if memory was short.
    """
    with at_hand(path) as folder:
        step = read_step(folder, function, signature, after_grappler)
        saved = step.rewriting.variables(step.function)
    given = dict(inputs or {})
    known = {name: tuple(value.shape) for name, value in given.items() if hasattr(value, "shape")}
    item = sized(step, {**known, **(shapes or {})})
    return profile(
        item,
        steps=steps,
        mode=mode,
        inputs={f"{step.node_of(name)}:0": value for name, value in given.items()},
        variables={**saved, **(variables or {})},
        seed=seed,
    )
