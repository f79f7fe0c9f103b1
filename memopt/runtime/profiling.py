"""Profiles: TensorFlow's own statistics of real steps, for costs that were measured."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from memopt.errors import ExecutionError, OptionsError, OutOfMemoryError
from memopt.runtime.entry import as_program
from memopt.runtime.runners import SessionRunner
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.io import GraphSource
    from memopt.runtime.program import Program

_WARM_UP_STEPS = 2
"""What is set up once (memory, kernels, chosen algorithms) is not part of a step."""


def profile(  # noqa: PLR0913 - keywords, each with a default
    graph: GraphSource | Program,
    *,
    steps: int = 5,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    seed: int = 0,
    fetch: Sequence[str] | None = None,
    feed: Sequence[str] | None = None,
) -> tuple[RunMetadata, ...]:
    """Run a step in this process and return TensorFlow's statistics of each run.

    One operation runs at a time, as it stands in the graph: Grappler and the session's own
    optimizer would merge and rename. The variables are copies; the caller's stay as they are.

    Args:
        graph: A ConcreteFunction, GraphDef, MetaGraphDef, path of a graph file, item or program.
        steps: How many runs to record, after two that are not recorded.
        inputs: Values of what is fed: by tensor name, or in the order of the call. What is missing
            is made up from the seed.
        variables: Values of variables by node name, instead of what a ConcreteFunction's variables
            hold now, or instead of what is made up for a file.
        seed: What made-up values and random operations without seeds draw from.
        fetch: What to run, instead of what the graph says.
        feed: What to feed, instead of what the graph says.

    Returns:
        For each step a message for `ProfiledCosts`; to keep it, write `SerializeToString()`.

    Raises:
        FileError: A path holds no graph.
        InvalidGraphError: The graph cannot be run.
        OptionsError: No step is asked for, or a value is missing or does not fit.
        ExecutionError: A run failed; `OutOfMemoryError` if memory was short.
    """
    if steps < 1:
        raise OptionsError(f"{steps} steps give no profile")
    import tensorflow as tf

    program = as_program(graph, inputs, variables, seed, fetch, feed)
    try:
        with _TracedSession(program) as session:
            for _ in range(_WARM_UP_STEPS):
                session.step()
            return tuple(session.traced_step() for _ in range(steps))
    except tf.errors.ResourceExhaustedError as error:
        raise OutOfMemoryError(f"the step needs too much memory: {_reason(error)}") from error
    except tf.errors.OpError as error:
        raise ExecutionError(f"the step cannot be run: {_reason(error)}") from error


def _reason(error: Any) -> str:
    """An error's own words in one line, without TensorFlow's stack trace."""
    return " ".join(error.message.partition("Original stack trace")[0].split())


class _TracedSession(SessionRunner):
    """A step in a session, where nodes run under their own names; a function's as well."""

    def __init__(self, program: Program) -> None:
        item = replace(
            program.item,
            graph_def=program.item.with_variable_handles(),
            variables=MappingProxyType({}),
        )
        super().__init__(replace(program, item=item), Settings().session_config())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def traced_step(self) -> RunMetadata:
        """Run once and return what TensorFlow recorded."""
        import tensorflow as tf

        metadata: RunMetadata = tf.compat.v1.RunMetadata()
        self._session.run(
            (self._tensors, self._operations),
            self._feed,
            options=tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
        return metadata
