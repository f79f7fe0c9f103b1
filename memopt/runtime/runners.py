"""The two ways to run a step inside one process: as a function, or in a TensorFlow 1 session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memopt.errors import ExecutionError, OptionsError
from memopt.graph.final import is_final
from memopt.item import COMPILED
from memopt.runtime.function import Interface, build_plain_function
from memopt.runtime.graph_import import find_operation, find_tensor, import_graph
from memopt.runtime.random_seeds import seed_random_operations
from memopt.runtime.replay import Buffer
from memopt.runtime.step_graph import as_function_graph, find_variables, with_named_variables
from memopt.runtime.trace import value_marker
from memopt.runtime.values import aligned, copy_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto

    from memopt.runtime.program import Program
    from memopt.runtime.step_graph import StepVariable

    Array = npt.NDArray[Any]


class Runner(Protocol):
    """A step that is ready to run, with its variables and inputs in place."""

    @property
    def outside(self) -> Sequence[Buffer]:
        """What is held throughout a step outside TensorFlow's allocators."""

    def step(self) -> Sequence[Any]:
        """Run once. The outputs may share memory with the runtime; see `as_arrays`."""

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Have steps from now on run with other values of the inputs, by tensor name."""

    def variables(self) -> dict[str, Array]:
        """Copies of the variables' values, by node name."""


def as_arrays(names: Sequence[str], outputs: Sequence[Any]) -> dict[str, Array]:
    """Copies of a step's outputs, by tensor name, that share no memory with the runtime."""
    return {name: copy_of(value) for name, value in zip(names, outputs, strict=True)}


class FunctionRunner:
    """The step as a function with captured variables, as `tf.function` runs it.

    Raises:
        InvalidGraphError: The graph cannot be made a function.
        OptionsError: A variable or input has no value.
    """

    outside: Sequence[Buffer] = ()

    def __init__(self, program: Program) -> None:
        item = program.item
        graph_def = seed_random_operations(as_function_graph(item), program.seed)
        # What TensorFlow runs first in a process gets a copy of its input, which leaves a hole.
        _place("first", np.zeros(1, np.uint8))
        self._variables = {
            variable.name: _make_variable(variable, program.variables)
            for variable in find_variables(item)
        }
        captures = [(f"{name}:0", value.handle) for name, value in self._variables.items()]
        self._feed = item.feed
        self.feed(program.inputs)
        self._function = build_plain_function(
            graph_def,
            Interface(item.feed, captures, item.fetched_tensors, item.fetched_operations),
            {COMPILED: True} if item.compiled else None,
        )
        for tensor in self._function.outputs:
            _check_comparable(tensor)

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Have steps from now on run with other values of the inputs, by tensor name."""
        self._inputs = [_place(f"input {name}", inputs[name]) for name in self._feed]

    def step(self) -> Sequence[Any]:
        """Run once and wait for the end."""
        import tensorflow as tf

        outputs: Sequence[Any] = self._function(*self._inputs) or ()
        tf.test.experimental.sync_devices()
        return outputs

    def variables(self) -> dict[str, Array]:
        """Copies of the variables' values, by node name."""
        return {name: copy_of(value) for name, value in self._variables.items()}


class SessionRunner:
    """The step in a TensorFlow 1 session, for variables that only live there.

    Args:
        program: The step.
        config: How the session runs.

    Raises:
        InvalidGraphError: The graph cannot be imported or lacks the initializer.
        OptionsError: A variable or input has no value, or is captured by a function.
    """

    def __init__(self, program: Program, config: ConfigProto) -> None:
        import tensorflow as tf

        item = program.item
        if item.variables:
            raise OptionsError("a function's captured variables cannot live in a session")
        found = find_variables(item)
        self._graph = tf.Graph()
        if is_final(item.graph_def):
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        graph_def = with_named_variables(item.graph_def)
        import_graph(seed_random_operations(graph_def, program.seed), self._graph)
        self._names = item.feed
        self.feed(program.inputs)
        self._tensors = [find_tensor(self._graph, n, "output") for n in item.fetched_tensors]
        self._operations = [
            find_operation(self._graph, n, "operation") for n in item.fetched_operations
        ]
        for tensor in self._tensors:
            _check_comparable(tensor)
        with self._graph.as_default():
            self._reads = {variable.name: self._read_operation(variable) for variable in found}
            self._initialize(program, found)
        self._graph.finalize()

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Have steps from now on run with other values of the inputs, by tensor name."""
        self._feed = {name: aligned(inputs[name]) for name in self._names}

    @property
    def outside(self) -> Sequence[Buffer]:
        """The inputs: a session uses arrays where they lie."""
        return [Buffer(f"input {name}", value.nbytes) for name, value in self._feed.items()]

    def step(self) -> Sequence[Any]:
        """Run once."""
        outputs, _ = self._session.run((self._tensors, self._operations), self._feed)
        return list(outputs)

    def variables(self) -> dict[str, Array]:
        """Copies of the variables' values, by node name."""
        values = self._session.run(self._reads)
        return {name: copy_of(value) for name, value in values.items()}

    def _initialize(self, program: Program, found: Sequence[StepVariable]) -> None:
        """Set all variables in one run: each run of a graph that has grown prepares all of it."""
        if program.initializer is not None:
            self._session.run(find_operation(self._graph, program.initializer, "initializer"))
            found = [variable for variable in found if variable.name in program.variables]
        values = [aligned(_value_of(variable, program.variables)) for variable in found]
        pairs = [self._assign_operation(variable) for variable in found]
        places = [place for place, _ in pairs]
        assignments = [assignment for _, assignment in pairs]
        self._session.run(assignments, dict(zip(places, values, strict=True)))

    def _assign_operation(self, variable: StepVariable) -> tuple[tf.Tensor, tf.Operation]:
        import tensorflow as tf

        place = tf.compat.v1.placeholder(variable.spec.dtype)
        # The variable must have memory of its own, not the array's.
        value = tf.raw_ops.DeepCopy(x=place)
        target = self._graph.get_tensor_by_name(f"{variable.name}:0")
        if variable.kind == "handle":
            return place, tf.raw_ops.AssignVariableOp(resource=target, value=value)
        return place, tf.raw_ops.Assign(ref=target, value=value, validate_shape=False).op

    def _read_operation(self, variable: StepVariable) -> tf.Tensor:
        import tensorflow as tf

        source = self._graph.get_tensor_by_name(f"{variable.name}:0")
        if variable.kind == "handle":
            return tf.raw_ops.ReadVariableOp(resource=source, dtype=variable.spec.dtype)
        return tf.identity(source)


def _make_variable(variable: StepVariable, values: Mapping[str, Array]) -> tf.Variable:
    import tensorflow as tf

    value = _place(f"variable {variable.name}", _value_of(variable, values))
    shape = variable.spec.shape
    known = None if shape is None else [None if size == -1 else size for size in shape]
    return tf.Variable(value, trainable=False, shape=tf.TensorShape(known))


def _value_of(variable: StepVariable, values: Mapping[str, Array]) -> Array:
    if variable.name not in values:
        raise OptionsError(f"variable {variable.name} has no value")
    return values[variable.name]


def _place(name: str, value: Array) -> tf.Tensor:
    """A tensor in TensorFlow's memory: made from an array, it would use the array's."""
    import tensorflow as tf

    with value_marker(name):
        return tf.raw_ops.DeepCopy(x=aligned(value))


def _check_comparable(tensor: tf.Tensor) -> None:
    import tensorflow as tf

    if tensor.dtype.base_dtype in {tf.resource, tf.variant}:
        raise ExecutionError(
            f"{tensor.name} is fetched, but a {tensor.dtype.name} has no value to compare"
        )
