"""Functions as Grappler leaves them: what memopt rewrites where TensorFlow's defaults hold.

Grappler does other things to a rewritten graph than to the original: it fuses what it would not
have fused, and the last bits differ. So it works first, on the original, memopt rewrites what it
made, and the result runs with Grappler off.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from memopt.errors import PluginError
from memopt.graph.final import is_final, mark_final
from memopt.graph.functiondef import ARGUMENT, RESULT
from memopt.plugin.capture import capturing
from memopt.plugin.configs import tag_functions, untag_functions
from memopt.plugin.installing import install
from memopt.plugin.policy import Policy
from memopt.plugin.process import Process
from memopt.plugin.screening import calls_gradients, why_not
from memopt.runtime.function import (
    Interface,
    attributes_of,
    build_function,
    build_plain_function,
    interface_of,
)
from memopt.runtime.step_graph import node_name, renamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

_numbers = itertools.count(1)


def settle(function: ConcreteFunction) -> ConcreteFunction | None:
    """A function that runs what Grappler makes of a training step, with Grappler off.

    It computes the same bits, reads and updates the same variables, and is called alike. One that
    is of this kind already stays what it is.

    Args:
        function: The step; it does not run.

    Returns:
        The function. `None` where Grappler is off, or does not tell what it makes (of a function
        that XLA compiles, or of a few nodes), and where the function computes no gradients: it may
        have to be differentiated, and what Grappler fuses has no gradients.

    Raises:
        InvalidGraphError: What Grappler made cannot be built again.
        PluginError: Another plugin rewrites graphs in this process.
    """
    if is_final(function.graph.as_graph_def()):
        return function
    install()
    captured = _capture(function)
    if captured is None:
        return None
    # What is not inlined is in a function still.
    if why_not(captured, Policy(min_nodes=0, only_lower=False)) and not calls_gradients(
        function.graph.as_graph_def()
    ):
        return None
    return _built(captured, function)


def settle_any(function: ConcreteFunction) -> ConcreteFunction | None:
    """The same for a function of any kind, which cannot be differentiated after that."""
    captured = _capture(function)
    return None if captured is None else _built(captured, function)


def _built(captured: GraphDef, function: ConcreteFunction) -> ConcreteFunction:
    graph_def, interface = _as_body(captured, function)
    return build_function(graph_def, function, interface)


def _capture(function: ConcreteFunction) -> GraphDef | None:
    """What Grappler makes of a function; `None` if it makes nothing of it.

    TensorFlow optimizes a function when it is called first. So a copy is called that takes one more
    argument, first of all, and is given one of another type: TensorFlow optimizes it, and then
    refuses to run it.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context

    interface = interface_of(function)
    graph_def = function.graph.as_graph_def()
    taken = {node.name for node in graph_def.node}
    name = next(name for name in _guards() if name not in taken)
    guard = graph_def.node.add(name=name, op="Placeholder")
    guard.attr["dtype"].type = tf.float32.as_datatype_enum
    guarded = build_plain_function(
        graph_def,
        Interface(
            (f"{name}:0", *interface.arguments),
            interface.captures,
            interface.outputs,
            interface.control_outputs,
        ),
        attributes_of(function),
    )
    captures = [outside for _, outside in interface.captures]
    wrong = [tf.constant(0, tf.int32)] * (1 + len(interface.arguments))
    tag = tag_functions(Process().number_of(f"capture {next(_numbers)}"), disable_fusions=False)
    try:
        with capturing() as capture:
            context.context().call_function(
                guarded.inference_fn.name, [*wrong, *captures], len(guarded.outputs)
            )
    except tf.errors.InvalidArgumentError:
        return capture.result()
    finally:
        untag_functions(tag)
    raise PluginError(f"TensorFlow called function {function.graph.name} with a wrong argument")


def _guards() -> Iterator[str]:
    """Names for an argument that no call can satisfy."""
    return (f"memopt_guard{number}" for number in itertools.count())


def _as_body(captured: GraphDef, function: ConcreteFunction) -> tuple[GraphDef, Interface]:
    """A captured graph as the body of a function, and what that takes and gives.

    Every node runs, as in the function: TensorFlow has taken out what need not.
    """
    given = interface_of(function)
    inputs = [tensor.op for tensor in function.graph.inputs]
    new_names = _input_names(captured, [operation.name for operation in inputs])
    body = type(captured)()
    body.versions.CopyFrom(captured.versions)
    body.library.CopyFrom(function.graph.as_graph_def().library)
    results: dict[int, str] = {}
    read: set[str] = set()
    for node in captured.node:
        sources = [renamed(source, new_names) for source in node.input]
        if node.op == RESULT:
            results[node.attr["index"].i] = sources[0]
            continue
        read.update(node_name(source) for source in sources)
        if node.op == ARGUMENT and node.name not in new_names:
            continue
        added = body.node.add()
        added.CopyFrom(node)
        if node.op == ARGUMENT:
            added.CopyFrom(inputs[node.attr["index"].i - 1].node_def)
            added.name, added.device = new_names[node.name], node.device
        added.input[:] = sources
    outputs = _named_as_before(body, function, [results[number] for number in range(len(results))])
    read.update(node_name(source) for source in results.values())
    made = {node_name(name) for name in outputs}
    arguments = frozenset(new_names.values())
    last = [node.name for node in body.node if node.name not in read | made | arguments]
    last += _end_as_before(body, given, last)
    mark_final(body, (*made, *last))
    by_place = list(new_names.values())
    first_capture = len(given.arguments)
    return body, Interface(
        [_tensor_name(name) for name in by_place[:first_capture]],
        [
            (_tensor_name(name), outside)
            for name, (_, outside) in zip(by_place[first_capture:], given.captures, strict=True)
        ],
        outputs,
        last,
    )


def _named_as_before(
    body: GraphDef, function: ConcreteFunction, results: Sequence[str]
) -> list[str]:
    """The outputs of a function under the names that they have in it, as far as those are free."""
    nodes = {node.name: node for node in body.node}
    outputs = []
    for tensor, source in zip(function.graph.outputs, results, strict=True):
        name = tensor.op.name
        if _tensor_name(source) == tensor.name or name in nodes or tensor.value_index:
            outputs.append(_tensor_name(source))
            continue
        maker = nodes[node_name(source)]
        nodes[name] = body.node.add(name=name, op="Identity", input=[source], device=maker.device)
        nodes[name].attr["T"].type = tensor.dtype.as_datatype_enum
        outputs.append(tensor.name)
    return outputs


def _end_as_before(body: GraphDef, given: Interface, last: Sequence[str]) -> list[str]:
    """Names by which all of a function's effects are known in it, where they are no more."""
    present = {node.name for node in body.node}
    missing = [name for name in dict.fromkeys(given.control_outputs) if name not in present]
    for name in missing:
        waits = [f"^{node}" for node in last]
        body.node.add(name=name, op="NoOp", input=waits, device=body.node[0].device)
    return missing


def _input_names(captured: GraphDef, names: Sequence[str]) -> dict[str, str]:
    """By name of a captured argument, but for the guard, the one that it has in the function.

    In the order of the arguments. One whose name something else has keeps its own.
    """
    arguments = {node.attr["index"].i: node.name for node in captured.node if node.op == ARGUMENT}
    taken = {node.name for node in captured.node if node.op != ARGUMENT}
    return {
        arguments[number]: arguments[number] if name in taken else name
        for number, name in enumerate(names, start=1)
    }


def _tensor_name(source: str) -> str:
    return source if ":" in source else f"{source}:0"
