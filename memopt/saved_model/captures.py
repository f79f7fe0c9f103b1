"""Tensors inside of functions that other functions of a model capture, as custom gradients do.

What captures them is the gradient function of an operation inside that function, such as silu's.
The object graph names them by function and tensor, and Python's loader looks each of them up, used
or not. In a training step that is rewritten with its gradients nobody asks for those of the
operation again, but the names have to be found: they move to a function that holds nothing but what
makes them, as it was, and that nothing runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.errors import InvalidGraphError
from memopt.shapes.function_calls import unused_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
    from tensorflow.core.protobuf.saved_object_graph_pb2 import CapturedTensor


def captured_tensors(meta_graph: MetaGraphDef) -> dict[str, list[CapturedTensor]]:
    """The tensors that other functions capture, by name of the function that they are inside of."""
    found: dict[str, list[CapturedTensor]] = {}
    for node in meta_graph.object_graph_def.nodes:
        if node.HasField("captured_tensor"):
            inside_of = node.captured_tensor.concrete_function
            found.setdefault(inside_of, []).append(node.captured_tensor)
    return found


def keep_captured(
    function: FunctionDef, captured: Sequence[CapturedTensor], taken: Collection[str]
) -> FunctionDef:
    """Let tensors be captured from a function made for that, instead of one that is replaced.

    Args:
        function: The function that they are inside of, as it was.
        captured: The tensors; they get to name the other function.
        taken: Names of functions that there are.

    Returns:
        The other function: the arguments, and the operations that make the tensors.

    Raises:
        InvalidGraphError: The function has no such tensor; nothing is changed.
    """
    arguments = {argument.name for argument in function.signature.input_arg}
    makers = [one.name.partition(":")[0] for one in captured]
    unknown = sorted(set(makers) - arguments - {node.name for node in function.node_def})
    if unknown:
        raise InvalidGraphError(
            f"a function captures tensor {unknown[0]!r} of {function.signature.name!r}, which has "
            "no such operation"
        )
    part = _with_makers(function, makers)
    part.signature.name = unused_name(taken, f"{function.signature.name}_captured")
    for one in captured:
        one.concrete_function = part.signature.name
    return part


def _with_makers(function: FunctionDef, names: Iterable[str]) -> FunctionDef:
    """A function of the same arguments, without results, that holds what nodes are made from."""
    part = type(function)()
    part.CopyFrom(function)
    for emptied in ("node_def", "ret", "control_ret"):
        part.ClearField(emptied)
    part.signature.ClearField("output_arg")
    part.signature.ClearField("control_output")
    nodes = {node.name: node for node in function.node_def}
    needed: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name in needed or name not in nodes:
            continue
        needed.add(name)
        pending += [source.removeprefix("^").partition(":")[0] for source in nodes[name].input]
    part.node_def.extend(node for node in function.node_def if node.name in needed)
    return part
