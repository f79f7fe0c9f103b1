"""SavedModels in and out: `memopt.optimize_saved_model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import OptionsError
from memopt.flags import Flags
from memopt.kernels.choice import RULES
from memopt.options import Level, as_texts, check_whole
from memopt.passes.recomputation import AUTO_SCOPE
from memopt.plugin.policy import Policy
from memopt.rematerialization.algorithms import BEST
from memopt.saved_model.library import Wish
from memopt.saved_model.rewriting import rewrite_saved_model

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from memopt.options import Budget
    from memopt.saved_model.report import SavedModelReport

_NEVER_MS = 1 << 40


def optimize_saved_model(  # noqa: PLR0913 - the fields of Policy that make sense, by keyword
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    functions: Sequence[str] = (),
    signatures: Sequence[str] = (),
    every: bool = False,
    shapes: Mapping[str, Iterable[int]] | None = None,
    fix_shapes: bool = False,
    after_grappler: bool | None = None,
    level: str | None = None,
    budget: Budget | int | str | None = None,
    only_lower: bool = True,
    deadline_ms: int = 0,
    planning_seconds: float = 0.0,
    target_scope: str = AUTO_SCOPE,
    algorithm: str | None = None,
    scheduler: str | None = None,
    small_node_limit: int | None = None,
    kernels: str | os.PathLike[str] | None = None,
    pass_options: Sequence[str] = (),
) -> SavedModelReport:
    """Write a SavedModel whose functions need less memory, with the same results.

    Nothing of the model runs, but functions that XLA compiles, in processes of their own. Bodies of
    functions are replaced in its library, and steps in its main graph; names, signatures, objects,
    variables, assets and other graphs stay as they are. A program loads it as it loads the
    original, by `tf.saved_model.load`, in a session, or in another language.

    A function that cannot keep a budget is written at the lowest peak that was found, and the
    report says so. What cannot be rewritten stays as it is, and the report says why.

    Args:
        path: The folder of the SavedModel.
        out: The folder that is to be; it must not exist. It appears whole or not at all.
        functions: Which functions are rewritten, by their names in the library or in the program
            that saved them. Without these and `signatures` those that compute gradients.
        signatures: Keys of signatures whose functions are rewritten.
        every: Rewrite functions that compute no gradients as well.
        shapes: Shapes to plan with where dimensions are open, by name of an argument. The rewritten
            function still takes every shape that it took.
        fix_shapes: Accept a function that takes these shapes and no others.
        after_grappler: Whether Grappler works on a function before memopt and is off for it when it
            runs, which then has the bits of the original under TensorFlow's defaults. By default
            for functions that compute gradients. Such a function cannot be differentiated.
        level: How much is done; ORDERED if not given. See `Level`.
        budget: What may be in use at any moment while a function runs, everything included: bytes,
            "6GiB", or "60%" of what the function itself adds at its peak when it runs unchanged.
        only_lower: Whether a function stays as it is that is predicted to need hardly less memory
            rewritten: less than 5 % of what it needs itself, and no budget kept by it.
        deadline_ms: Milliseconds after which no further pass starts, for each function; 0 for no
            deadline.
        planning_seconds: Seconds that a plan for a budget may take; 0 for as long as it takes: then
            the same model always gives the same bytes.
        target_scope: The name scope of gradient operations; "auto" finds them by structure.
        algorithm: How a budget is kept: see `Rematerialization`.
        scheduler: How the order is found.
        small_node_limit: MiB; what makes no more than this is not recomputed for its own sake.
        kernels: Whose memory is predicted: "rules" by default, "measured", or a file that
            `profile_kernels` wrote.
        pass_options: Options of passes, such as "ordering{smallest_bytes=65536}".

    Returns:
        What was done to each function.

    Raises:
        FileError: The SavedModel cannot be read, or the folder not be written.
        OptionsError: An option is not valid, something is named that is not there, or there is
            nothing to rewrite.
        BudgetError: None of the functions keeps the budget.
    """
    wish = make_wish(
        functions=functions,
        signatures=signatures,
        every=every,
        shapes=shapes,
        fix_shapes=fix_shapes,
        after_grappler=after_grappler,
        level=level,
        budget=budget,
        only_lower=only_lower,
        deadline_ms=deadline_ms,
        planning_seconds=planning_seconds,
        target_scope=target_scope,
        algorithm=algorithm,
        scheduler=scheduler,
        small_node_limit=small_node_limit,
        kernels=kernels,
        pass_options=pass_options,
    )
    return rewrite_saved_model(path, out, wish)


def make_wish(  # noqa: PLR0913 - as above
    *,
    functions: Sequence[str] = (),
    signatures: Sequence[str] = (),
    every: bool = False,
    shapes: Mapping[str, Iterable[int]] | None = None,
    fix_shapes: bool = False,
    after_grappler: bool | None = None,
    level: str | None = None,
    budget: Budget | int | str | None = None,
    only_lower: bool = True,
    deadline_ms: int = 0,
    planning_seconds: float = 0.0,
    target_scope: str = AUTO_SCOPE,
    algorithm: str | None = None,
    scheduler: str | None = None,
    small_node_limit: int | None = None,
    kernels: str | os.PathLike[str] | None = None,
    pass_options: Sequence[str] = (),
) -> Wish:
    """What is to be done; arguments as for `optimize_saved_model`.

    Raises:
        OptionsError: An option is not valid.
    """
    given = Flags(level, budget, algorithm, scheduler, small_node_limit, kernels=kernels)
    flags = Flags.from_environment().overridden_by(given)
    check_whole("deadline_ms", deadline_ms)
    policy = Policy(
        level=flags.level or Level.ORDERED,
        budget=flags.budget,
        min_nodes=0,
        only_lower=only_lower,
        only="all" if every else "training",
        deadline_ms=deadline_ms or _NEVER_MS,
        planning_seconds=planning_seconds,
        target_scope=target_scope,
        algorithm=flags.algorithm or BEST,
        scheduler=flags.scheduler or BEST,
        small_node_limit=flags.small_node_limit or 0,
        kernels=flags.kernels or RULES,
        pass_options=as_texts("pass_options", pass_options),
    )
    return Wish(
        policy,
        functions=as_texts("functions", functions),
        signatures=as_texts("signatures", signatures),
        shapes={name: parse_sizes(name, sizes) for name, sizes in (shapes or {}).items()},
        fix_shapes=fix_shapes,
        after_grappler=after_grappler,
    )


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """A shape as people write it: "x=64,16".

    Raises:
        OptionsError: It is none.
    """
    name, equals, sizes = text.partition("=")
    parts = [part.strip() for part in sizes.split(",")] if sizes.strip() else []
    if not equals or not name.strip() or not all(part.isdecimal() for part in parts):
        raise OptionsError(f"{text!r} is no shape of an argument, such as x=64,16")
    return name.strip(), parse_sizes(name.strip(), map(int, parts))


def parse_sizes(name: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes of an argument's dimensions, all of them known.

    Raises:
        OptionsError: One is not.
    """
    found = tuple(sizes)
    for size in found:
        check_whole(f"a dimension of {name}", size, 1)
    return found
