"""Which functions a SavedModel has, who runs them, and what is known of their variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from memopt.errors import OptionsError
from memopt.item import COMPILED, VariableSpec
from memopt.saved_model.captures import captured_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.core.protobuf.saved_object_graph_pb2 import CapturedTensor

INIT_SIGNATURE = "__saved_model_init_op"
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_PASSED_ON = frozenset({"Identity", "NoOp"})
_TRACED = re.compile(r"__(?:inference|forward|backward)_(.+?)_[0-9]+(?:_memopt_[0-9a-f]+)?")
_CHECKPOINTING = ("__inference__traced_save_", "__inference__traced_restore_")
_MOST_NAMES = 20


@dataclass
class ModelFunction:
    """A function of a SavedModel that does some work itself, or a use of its main graph.

    Attributes:
        name: Its name in the library; of a use of the main graph what it is called, in brackets.
        called_as: What the program that saved it called it.
        signatures: Keys of the signatures that run it.
        variables: What is known of variables that are arguments, by name of the argument.
        objects: By name of an argument that is a variable its number in the object graph.
        refusal: Why it cannot be rewritten, whatever it computes; "" if it can.
        compiled: Whether XLA compiles it.
        captured: The tensors inside of it that other functions capture, in the object graph.
        fetch: Of a use of the main graph what is asked for; empty for a function.
        feed: Of a use of the main graph the tensors that are given, by what callers call them.
    """

    name: str
    called_as: str
    signatures: list[str] = field(default_factory=list)
    variables: dict[str, VariableSpec] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    refusal: str = ""
    compiled: bool = False
    captured: Sequence[CapturedTensor] = ()
    fetch: tuple[str, ...] = ()
    feed: Mapping[str, str] = field(default_factory=dict)


class _Variable(NamedTuple):
    """A variable that a function captures: what it is, and its number in the object graph."""

    spec: VariableSpec
    number: int


@dataclass(frozen=True)
class _Root:
    """A function that a loader gives to programs, or that a signature calls.

    Attributes:
        name: Its name in the library.
        variables: By name of an argument.
        signatures: Keys.
    """

    name: str
    variables: Mapping[str, _Variable]
    signatures: tuple[str, ...] = ()


def find_functions(meta_graph: MetaGraphDef) -> list[ModelFunction]:
    """The functions of a model that do work, in the order of their names.

    A function that only passes on what it is given to another, as those of signatures do, is seen
    through. None of the model's work is what saves and restores variables, and what others are
    differentiated by.
    """
    library = meta_graph.graph_def.library
    functions = {one.signature.name: one for one in library.function}
    gradients = {one.gradient_func for one in library.registered_gradients}
    captured = captured_tensors(meta_graph)
    found: dict[str, ModelFunction] = {}
    pending = list(_roots(meta_graph, functions))
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while pending:
        root = pending.pop()
        if root.name not in functions or (root.name, root.signatures) in seen:
            continue
        seen.add((root.name, root.signatures))
        function = functions[root.name]
        if root.name.startswith(_CHECKPOINTING) or root.name in gradients:
            continue
        call = _call_if_thin(function, functions)
        if call is not None and not _is_compiled(function):
            pending.append(_callee(call, root, functions))
            continue
        one = found.setdefault(root.name, ModelFunction(root.name, _called_as(root.name)))
        one.variables.update({name: known.spec for name, known in root.variables.items()})
        one.objects.update({name: known.number for name, known in root.variables.items()})
        one.signatures = sorted({*one.signatures, *root.signatures})
        one.compiled = _is_compiled(function)
        one.captured = captured.get(root.name, ())
    return [found[name] for name in sorted(found)]


def signatures_in_graph(meta_graph: MetaGraphDef) -> list[str]:
    """The keys of signatures whose operations stand in the main graph, as in TensorFlow 1."""
    functions = {one.signature.name for one in meta_graph.graph_def.library.function}
    return [
        key
        for key, calls in _signature_calls(meta_graph).items()
        if not any(_called_function(call) in functions for call in calls)
    ]


def choose(
    found: Sequence[ModelFunction], functions: Sequence[str], signatures: Sequence[str]
) -> list[ModelFunction]:
    """Those of a model's functions that are named; all if none is.

    Args:
        found: The functions.
        functions: Names, in the library or in the program that saved them.
        signatures: Keys of signatures.

    Raises:
        OptionsError: There is none of that name; the message has those that there are.
    """
    names = {name for one in found for name in (one.name, one.called_as)}
    keys = {key for one in found for key in one.signatures}
    for wanted, there, what in ((functions, names, "function"), (signatures, keys, "signature")):
        unknown = [name for name in wanted if name not in there]
        if unknown:
            known = sorted({one.called_as for one in found}) if what == "function" else sorted(keys)
            raise OptionsError(
                f"the SavedModel has no {what} {unknown[0]!r} that can be rewritten; it has: "
                f"{', '.join(known[:_MOST_NAMES]) or 'none'}"
            )
    if not functions and not signatures:
        return list(found)
    return [
        one
        for one in found
        if not {one.name, one.called_as}.isdisjoint(functions)
        or not set(one.signatures).isdisjoint(signatures)
    ]


def _roots(meta_graph: MetaGraphDef, functions: Mapping[str, FunctionDef]) -> Iterator[_Root]:
    variables = {
        name: _bound_variables(meta_graph, name, functions[name])
        for name in sorted(meta_graph.object_graph_def.concrete_functions)
        if name in functions
    }
    for name, known in variables.items():
        yield _Root(name, known)
    for key, calls in _signature_calls(meta_graph).items():
        for call in calls:
            name = _called_function(call)
            yield _Root(name, variables.get(name, {}), (key,))


def _signature_calls(meta_graph: MetaGraphDef) -> dict[str, list[NodeDef]]:
    """For each signature the nodes that make its outputs."""
    nodes = {node.name: node for node in meta_graph.graph_def.node}
    found: dict[str, list[NodeDef]] = {}
    for key in sorted(meta_graph.signature_def):
        if key == INIT_SIGNATURE:
            continue
        makers: dict[str, NodeDef] = {}
        for output in meta_graph.signature_def[key].outputs.values():
            node = _maker(nodes, output.name)
            if node is not None:
                makers[node.name] = node
        found[key] = [makers[name] for name in sorted(makers)]
    return found


def _maker(nodes: Mapping[str, NodeDef], name: str) -> NodeDef | None:
    """The node that makes what others pass on; `None` if there is none."""
    node = nodes.get(name.partition(":")[0])
    passed: set[str] = set()
    while node is not None and node.op in _PASSED_ON and node.input:
        if node.name in passed:
            # They pass it on to each other: a damaged graph.
            return None
        passed.add(node.name)
        node = nodes.get(node.input[0].removeprefix("^").partition(":")[0])
    return node


def _bound_variables(
    meta_graph: MetaGraphDef, name: str, function: FunctionDef
) -> dict[str, _Variable]:
    """The arguments that are variables: the last ones are what the function captures."""
    objects = meta_graph.object_graph_def
    bound = objects.concrete_functions[name].bound_inputs
    arguments = function.signature.input_arg
    if len(bound) > len(arguments):
        return {}
    found = {}
    for argument, number in zip(arguments[len(arguments) - len(bound) :], bound, strict=True):
        if not 0 <= number < len(objects.nodes):
            continue
        node = objects.nodes[number]
        if node.WhichOneof("kind") != "variable" or node.variable.shape.unknown_rank:
            continue
        shape = tuple(int(dimension.size) for dimension in node.variable.shape.dim)
        spec = VariableSpec(int(node.variable.dtype), shape)
        found[argument.name] = _Variable(spec, number)
    return found


def _call_if_thin(function: FunctionDef, functions: Mapping[str, FunctionDef]) -> NodeDef | None:
    """The call of a function that does nothing but call another; `None` if it does more."""
    calls = [node for node in function.node_def if node.op not in _PASSED_ON]
    if len(calls) != 1 or calls[0].op not in _CALLS or _called_function(calls[0]) not in functions:
        return None
    return calls[0]


def _callee(call: NodeDef, root: _Root, functions: Mapping[str, FunctionDef]) -> _Root:
    """What a thin function calls, with what is known of the variables that it passes on."""
    name = _called_function(call)
    passed: dict[str, str] = {}
    for node in functions[root.name].node_def:
        if node.op == "Identity":
            passed[f"{node.name}:output:0"] = node.input[0]
    variables = {}
    given = [source for source in call.input if not source.startswith("^")]
    for argument, source in zip(functions[name].signature.input_arg, given, strict=False):
        origin = source
        for _ in passed:
            origin = passed.get(origin, origin)
        if origin in root.variables:
            variables[argument.name] = root.variables[origin]
    return _Root(name, variables, root.signatures)


def _called_function(call: NodeDef) -> str:
    if call.op in _CALLS:
        return str(call.attr["f"].func.name) if "f" in call.attr else ""
    return str(call.op)


def _is_compiled(function: FunctionDef) -> bool:
    return COMPILED in function.attr and bool(function.attr[COMPILED].b)


def _called_as(name: str) -> str:
    """What a program called a function, whose name in the library has numbers behind it."""
    match = _TRACED.fullmatch(name)
    return match[1] if match else name
