"""Two forms of a step run for real and compared: `memopt.verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.errors import OptionsError
from memopt.io import as_item
from memopt.runtime.program import Program
from memopt.runtime.verification import verify_programs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memopt.io import GraphSource
    from memopt.runtime.settings import Mode
    from memopt.runtime.verification import Verification

    Values = Mapping[str, Any] | Sequence[Any]


def verify(  # noqa: PLR0913 - keywords, each with a default
    original: GraphSource | Program,
    rewritten: GraphSource | Program,
    *,
    inputs: Values | None = None,
    variables: Mapping[str, Any] | None = None,
    steps: int = 3,
    mode: Mode | None = None,
    timing_rounds: int = 5,
    memory_limit_bytes: int | None = None,
    seed: int = 0,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> Verification:
    """Run a step and its rewritten form, each in a fresh process, and compare all they compute.

    Every output of every step and every variable afterwards is compared bit for bit; the peaks are
    those of TensorFlow's allocator, in bytes, with everything included. Where the two differ, the
    original runs once more; if it differs from itself, both are compared again with deterministic
    kernels. So they are in any case after `tf.config.experimental.enable_op_determinism`.

    Args:
        original: The step before: a ConcreteFunction, GraphDef, MetaGraphDef, path of a graph file,
            item or program.
        rewritten: The step after, in any of these forms; only its graph counts.
        inputs: Values of what is fed: by tensor name, or in the order of the call. What is missing
            is made up from the seed.
        variables: Values of variables by node name, instead of what a ConcreteFunction's variables
            hold now, or instead of what is made up for a file.
        steps: How many steps to run, each from where the last one left the variables.
        mode: "exact" turns off what may change the last bits (oneDNN, Grappler, several operations
            at once) and compares bits; "as-is" runs as TensorFlow does by default and accepts what
            Grappler alone changes. By default "as-is" for what XLA compiles and for what `rewrite`
            makes of what Grappler makes, which have to be equal then, and "exact" for all else.
        timing_rounds: How often to time both in turns; 0 for not at all.
        memory_limit_bytes: A limit that the rewritten step has to keep.
        seed: What made-up values and random operations without seeds draw from.
        fetch: What to run and compare, instead of what the graph says.
        feed: What to feed, instead of what the graph says.

    Raises:
        FileError: A path holds no graph.
        InvalidGraphError: The two do not take and give the same, or a graph cannot be run.
        OptionsError: A value is missing that cannot be made up, or does not fit.
        ExecutionError: A run failed; `OutOfMemoryError` if the limit was too low.
    """
    before = as_program(original, inputs, variables, seed, fetch, feed)
    after = rewritten
    if not isinstance(after, Program):
        after = before.replace_graph(as_item(after, before.item.fetch, before.item.feed).graph_def)
    return verify_programs(
        before,
        after,
        steps=steps,
        mode=mode,
        timing_rounds=timing_rounds,
        memory_limit_bytes=memory_limit_bytes,
    )


def as_program(
    source: GraphSource | Program,
    inputs: Values | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> Program:
    """Anything that holds a step as a program; arguments as for `verify`."""
    if isinstance(source, Program):
        return source.with_values(_by_name(inputs, source.item.feed), variables, seed)
    if hasattr(source, "captured_inputs"):
        program = Program.from_concrete_function(source, inputs, seed)
        return program.with_values(variables=variables)
    item = as_item(source, fetch, feed)
    return Program.from_item(item, _by_name(inputs, item.feed), variables, seed)


def _by_name(values: Values | None, feed: Sequence[str]) -> dict[str, Any]:
    if values is None:
        return {}
    if hasattr(values, "items"):
        return dict(values.items())
    if len(values) != len(feed):
        raise OptionsError(f"{len(feed)} tensors are fed, but {len(values)} values were given")
    return dict(zip(feed, values, strict=True))
