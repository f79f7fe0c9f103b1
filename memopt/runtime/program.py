"""Program: a step with all the values that it needs to run in another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memopt.errors import OptionsError
from memopt.item import GrapplerItem, VariableSpec
from memopt.runtime.item_files import load_item_and_more, save_item
from memopt.runtime.step_graph import (
    fed_specs,
    find_variables,
    needed_nodes,
    positive_variables,
)
from memopt.runtime.synthesis import complete_values
from memopt.runtime.values import copy_of, load_values, save_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from memopt.runtime.step_graph import StepVariable

    Array = npt.NDArray[Any]

_INPUTS_FILE = "inputs.npz"
_VARIABLES_FILE = "variables.npz"


# Compared by identity: arrays have no equality that yields one truth value.
@dataclass(frozen=True, eq=False)
class Program:
    """A step that can be run anywhere, any number of times, with the same results.

    Attributes:
        item: The graph, what is fed and what is fetched.
        inputs: Values of the fed tensors, by tensor name.
        variables: Values of the variables before the first step, by node name. With an
            `initializer`, those that differ from what it sets.
        seed: Where random operations without seeds of their own take theirs from.
        initializer: Name of the operation that sets all variables first, or `None`.
    """

    item: GrapplerItem
    inputs: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    variables: Mapping[str, Array] = field(default_factory=lambda: MappingProxyType({}))
    seed: int = 0
    initializer: str | None = None

    @classmethod
    def from_concrete_function(
        cls,
        function: ConcreteFunction,
        inputs: Mapping[str, Any] | Sequence[Any] | None = None,
        seed: int = 0,
    ) -> Program:
        """The step of a `tf.function`, with its variables and captures as they are now.

        Args:
            function: The step.
            inputs: A value (array or tensor) for each argument, flat, in the order of the call; or
                values by tensor name. What is not given is made up.
            seed: What the made-up values and the seeds of random operations come from.

        Raises:
            OptionsError: The values do not fit the arguments, or the function captures something
                that cannot be taken to another process, such as a hash table.
        """
        item = GrapplerItem.from_concrete_function(function)
        constants, variables = captured_values(function, item)
        names = [tensor.name for tensor in function.graph.inputs]
        fed = _by_name(inputs, names[: len(names) - len(function.captured_inputs)])
        fed |= constants
        return cls.from_item(item, inputs=fed, variables=variables, seed=seed)

    @classmethod
    def from_item(
        cls,
        item: GrapplerItem,
        inputs: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        seed: int = 0,
        initializer: str | None = None,
    ) -> Program:
        """The step of an item; values that are not given are made up from the seed and the name.

        Args:
            item: The graph, what is fed and what is fetched.
            inputs: Values of fed tensors, by tensor name.
            variables: Values of variables, by node name.
            seed: What the made-up values and the seeds of random operations come from.
            initializer: Name of an operation that sets all variables. Those without a given value
                keep what it sets.

        Raises:
            OptionsError: A value is for something that does not exist, does not fit, or must be
                given because a dimension is not known; or nothing is fetched.
            InvalidGraphError: A fetch, a feed or the initializer is missing.
        """
        if not item.fetch:
            raise OptionsError("the step fetches nothing: name the tensors or operations to run")
        if initializer is not None:
            needed_nodes(item.graph_def, [initializer], ())
        step_variables = find_variables(item)
        found = {variable.name: variable.spec for variable in step_variables}
        given = _by_first_node(variables or {}, step_variables)
        roots = positive_variables(item.graph_def)
        positive = {v.name for v in step_variables if not roots.isdisjoint(v.nodes)}
        if initializer is not None:
            found = {name: spec for name, spec in found.items() if name in given}
        return cls(
            item=item,
            inputs=complete_values("input", fed_specs(item), inputs or {}, seed),
            variables=complete_values("variable", found, given, seed, positive),
            seed=seed,
            initializer=initializer,
        )

    @property
    def in_session(self) -> bool:
        """Whether it has to run in a TensorFlow 1 session instead of as a function."""
        if self.initializer is not None:
            return True
        return any(variable.kind == "reference" for variable in find_variables(self.item))

    def replace_graph(self, graph_def: GraphDef) -> Program:
        """The same step, values included, with another graph."""
        return dataclasses.replace(self, item=dataclasses.replace(self.item, graph_def=graph_def))

    def with_values(
        self,
        inputs: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Program:
        """The same step with some values replaced.

        Raises:
            OptionsError: A value is for something that does not exist, or does not fit.
        """
        return Program.from_item(
            self.item,
            inputs={**self.inputs, **(inputs or {})},
            variables={**self.variables, **(variables or {})},
            seed=self.seed if seed is None else seed,
            initializer=self.initializer,
        )

    def save(self, directory: Path) -> None:
        """Write everything into a directory, which must exist.

        Raises:
            FileError: A file cannot be written.
        """
        save_item(self.item, directory, {"seed": self.seed, "initializer": self.initializer})
        save_values(directory / _INPUTS_FILE, self.inputs)
        save_values(directory / _VARIABLES_FILE, self.variables)

    @classmethod
    def load(cls, directory: Path) -> Program:
        """The program that `save` wrote.

        Raises:
            FileError: A file is missing or not what it should be.
        """
        item, settings = load_item_and_more(directory)
        return cls(
            item=item,
            inputs=load_values(directory / _INPUTS_FILE),
            variables=load_values(directory / _VARIABLES_FILE),
            seed=settings["seed"],
            initializer=settings["initializer"],
        )


def captured_values(
    function: ConcreteFunction, item: GrapplerItem
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What a function captured, as it is now.

    Args:
        function: The function.
        item: What `GrapplerItem.from_concrete_function` made of it.

    Returns:
        Constants by tensor name, and the values of variables by node name.

    Raises:
        OptionsError: It captured something that cannot be taken to another process.
    """
    captured = function.captured_inputs
    names = [tensor.name for tensor in function.graph.inputs]
    constants: dict[str, Array] = {}
    variables: dict[str, Array] = {}
    for name, value in zip(names[len(names) - len(captured) :], captured, strict=True):
        node = name.partition(":")[0]
        if node in item.variables:
            variables[node] = _read_variable(value, item.variables[node])
        else:
            constants[name] = _captured_constant(name, value)
    return constants, variables


def _read_variable(handle: Any, spec: VariableSpec) -> Array:
    import tensorflow as tf

    # A copy: the array could otherwise change with the variable.
    return copy_of(tf.raw_ops.ReadVariableOp(resource=handle, dtype=spec.dtype))


def _captured_constant(name: str, value: Any) -> Array:
    import tensorflow as tf

    if value.dtype in {tf.resource, tf.variant}:
        raise OptionsError(
            f"the function captures {name}, which is no variable but another resource"
            " (a table, an iterator); it cannot be run in another process"
        )
    return copy_of(value)


def _by_name(
    values: Mapping[str, Any] | Sequence[Any] | None, names: Sequence[str]
) -> dict[str, Any]:
    if values is None:
        return {}
    if isinstance(values, Mapping):
        return dict(values)
    if len(values) != len(names):
        raise OptionsError(f"{len(names)} tensors are fed, but {len(values)} values were given")
    return dict(zip(names, values, strict=True))


def _by_first_node(values: Mapping[str, Any], variables: Iterable[StepVariable]) -> dict[str, Any]:
    first = {node: variable.name for variable in variables for node in variable.nodes}
    return {first.get(name, name): value for name, value in values.items()}
