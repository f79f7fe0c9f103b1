"""FunctionBody: a function that is made from another, with other arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from memopt.graph.copy_names import free_name, take_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tensorflow.core.framework.attr_value_pb2 import AttrValue
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

Shape: TypeAlias = "tuple[int, ...] | None"
"""Dimensions in elements, -1 for one that is not known; `None` if the rank is not."""


class Value(NamedTuple):
    """A tensor in a body: how it is spelled there, and what is known of it."""

    spelling: str
    dtype: int
    shape: Shape = None


class FunctionBody:
    """A function in the making: arguments, operations, results.

    Tensors are spelled as in a FunctionDef: an argument by its name, what an operation makes as
    `node:output:number`.

    Args:
        like: The function that it begins as; empty if not given.
    """

    def __init__(self, like: FunctionDef | None = None) -> None:
        from tensorflow.core.framework import function_pb2

        self._function: FunctionDef = function_pb2.FunctionDef()
        if like is not None:
            self._function.CopyFrom(like)
            # Python says it of all arguments, in order, and looks for it again.
            self._function.attr.pop("_input_shapes", None)
        self._names = {node.name for node in self._function.node_def}
        self._names.update(argument.name for argument in self._function.signature.input_arg)

    @property
    def results(self) -> tuple[Value, ...]:
        """What it gives, in order."""
        declared, spelled = self._function.signature.output_arg, self._function.ret
        return tuple(Value(spelled[result.name], result.type) for result in declared)

    def add_argument(self, name: str, dtype: int, shape: Shape = None) -> Value:
        """One more argument, the last."""
        declared = self._function.signature.input_arg.add(
            name=take_name(name, self._names), type=dtype
        )
        return Value(declared.name, dtype, shape)

    def be_given_values(self, position: int, dtype: int) -> None:
        """Let an argument that is a resource be the value that is read from it.

        Args:
            position: That of the argument. Nothing but ReadVariableOps uses it.
            dtype: The type of the value.
        """
        argument = self._function.signature.input_arg[position]
        argument.type = dtype
        self._function.arg_attr.pop(position, None)
        reads = [
            node.name
            for node in self._function.node_def
            if node.op == "ReadVariableOp" and self._source(node.input[0]) == argument.name
        ]
        handed_on = [
            node.name
            for node in self._function.node_def
            if node.op == "Identity" and self._source(node.input[0]) == argument.name
        ]
        self.replace({f"{name}:value:0": argument.name for name in reads}, [*reads, *handed_on])
        for result in self._function.signature.output_arg:
            if self._source(self._function.ret[result.name]) == argument.name:
                self._function.ret[result.name] = argument.name
                result.type = dtype

    def set_result(self, position: int, value: Value) -> None:
        """Give something else of the same type."""
        name = self._function.signature.output_arg[position].name
        self._function.ret[name] = value.spelling

    def add_result(self, value: Value) -> None:
        """One more result, the last."""
        signature = self._function.signature
        taken = {result.name for result in signature.output_arg}
        name = free_name(f"result_{len(taken)}", taken, "_")
        signature.output_arg.add(name=name, type=value.dtype)
        self._function.ret[name] = value.spelling

    def add(
        self,
        op: str,
        name: str,
        inputs: Iterable[str] = (),
        attributes: Mapping[str, AttrValue] | None = None,
    ) -> str:
        """One more operation; its name."""
        node = self._function.node_def.add(name=take_name(name, self._names), op=op)
        node.input.extend(inputs)
        for key, value in (attributes or {}).items():
            node.attr[key].CopyFrom(value)
        return str(node.name)

    def replace(self, spelling: Mapping[str, str], nodes: Collection[str]) -> None:
        """Let tensors be read from elsewhere, and nobody wait for nodes any more.

        Args:
            spelling: How a tensor was spelled, and how it is to be.
            nodes: Names of operations.
        """
        waits = {f"^{name}" for name in nodes}
        for node in self._function.node_def:
            if any(name in spelling or name in waits for name in node.input):
                inputs = [spelling.get(name, name) for name in node.input if name not in waits]
                node.ClearField("input")
                node.input.extend(inputs)
        for name, value in self._function.ret.items():
            self._function.ret[name] = spelling.get(value, value)
        for name in [name for name, node in self._function.control_ret.items() if node in nodes]:
            del self._function.control_ret[name]
            self._function.signature.control_output.remove(name)

    def keep(self, arguments: Sequence[int], results: Sequence[int], *, effects: bool) -> None:
        """Keep some arguments and results, in order, and the operations that they need.

        Args:
            arguments: Their positions. Nothing that is needed reads another one.
            results: Their positions.
            effects: Whether what runs for its effects stays too.
        """
        signature = self._function.signature
        inputs = [signature.input_arg[position] for position in arguments]
        outputs = [signature.output_arg[position] for position in results]
        attributes = [self._function.arg_attr.get(position) for position in arguments]
        kept = {result.name: self._function.ret[result.name] for result in outputs}
        del signature.input_arg[:]
        del signature.output_arg[:]
        signature.input_arg.extend(inputs)
        signature.output_arg.extend(outputs)
        self._function.arg_attr.clear()
        for position, attribute in enumerate(attributes):
            if attribute is not None:
                self._function.arg_attr[position].CopyFrom(attribute)
        self._function.resource_arg_unique_id.clear()
        self._function.ret.clear()
        self._function.ret.update(kept)
        if not effects:
            self._function.control_ret.clear()
            del signature.control_output[:]
        self._remove_dead()

    def named(self, name: str) -> FunctionDef:
        """The function, by a name of its own."""
        self._function.signature.name = name
        return self._function

    def _source(self, spelling: str) -> str:
        """What a tensor is handed on from."""
        nodes = {node.name: node for node in self._function.node_def}
        while (node := nodes.get(_node_of(spelling))) is not None and node.op == "Identity":
            spelling = node.input[0]
        return spelling

    def _remove_dead(self) -> None:
        nodes = {node.name: node for node in self._function.node_def}
        pending = [_node_of(spelling) for spelling in self._function.ret.values()]
        pending += self._function.control_ret.values()
        needed: set[str] = set()
        while pending:
            name = pending.pop()
            if name in nodes and name not in needed:
                needed.add(name)
                pending += map(_node_of, nodes[name].input)
        kept: list[NodeDef] = [node for node in self._function.node_def if node.name in needed]
        del self._function.node_def[:]
        self._function.node_def.extend(kept)


def _node_of(spelling: str) -> str:
    return spelling.removeprefix("^").partition(":")[0]
