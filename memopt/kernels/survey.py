"""Survey: the distinct kernels of a step, and those that cannot be run alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memopt.buffers.kernel_rules import is_known, memory_by_rule
from memopt.buffers.kernel_signature import is_compiled, relevant_attributes
from memopt.graph import op_types
from memopt.kernels.experiment import KernelCase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.function_pb2 import FunctionDefLibrary
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from memopt.buffers.kernel_call import KernelCall, KernelMemory
    from memopt.buffers.kernel_signature import KernelSignature, Signatures
    from memopt.graph.functiondef import Bodies
    from memopt.graph.graph import Node


@dataclass
class SurveyedKernel:
    """A kernel of a step.

    Attributes:
        signature: What it is known by.
        case: It, to be run alone.
        by_rule: What the rules say of its memory.
        is_known: Whether a rule knows it; to others the outputs are all there is.
        nodes: How many nodes run it.
        node: The name of one of them.
    """

    signature: KernelSignature
    case: KernelCase
    by_rule: KernelMemory
    is_known: bool
    nodes: int
    node: str


@dataclass
class NotAlone:
    """Kernels of an op that cannot be run alone.

    Attributes:
        op: The op.
        reason: Why.
        nodes: How many nodes run them.
        node: The name of one of them.
    """

    op: str
    reason: str
    nodes: int
    node: str


@dataclass
class Survey:
    """The kernels that the nodes of a step run; a `Measurements` that only takes notes.

    Attributes:
        signatures: Tells the signatures of the step's nodes.
        bodies: The functions that they call.
        kernels: Those that can be run alone, by key.
        not_alone: The others of which no rule knows anything either, by op and reason.
    """

    signatures: Signatures
    bodies: Bodies
    kernels: dict[str, SurveyedKernel] = field(default_factory=dict)
    not_alone: dict[tuple[str, str], NotAlone] = field(default_factory=dict)

    def find(self, call: KernelCall) -> KernelMemory | None:
        """Take note of a kernel; nothing is known of it."""
        signature = self.signatures.of(call)
        if signature is not None:
            self._take(call, signature)
        elif not (is_known(call) or _is_followed(call.node)):
            self._leave(call.node, self.signatures.why_not(call))
        return None

    def _take(self, call: KernelCall, signature: KernelSignature) -> None:
        known = self.kernels.get(signature.key)
        if known is not None:
            known.nodes += 1
            return
        self.kernels[signature.key] = SurveyedKernel(
            signature,
            KernelCase(
                _bare(call.node),
                signature.operands,
                tuple(tensor.least_bytes for tensor in call.outputs),
                signature.device,
                _functions(call.node, self.bodies),
            ),
            memory_by_rule(call),
            is_known(call),
            1,
            call.node.name,
        )

    def _leave(self, node: Node, reason: str) -> None:
        found = self.not_alone.setdefault(
            (node.op, reason), NotAlone(node.op, reason, 0, node.name)
        )
        found.nodes += 1


def _is_followed(node: Node) -> bool:
    """Whether what a node runs are operations that are kernels of their own."""
    known = op_types.signature(node.op)
    return not is_compiled(node) and (known is None or bool(known.function_attributes))


def _bare(node: Node) -> NodeDef:
    """The op of a node with what matters of its attributes."""
    from tensorflow.core.framework import node_def_pb2

    bare: NodeDef = node_def_pb2.NodeDef(op=node.op)
    for name, value in relevant_attributes(node):
        bare.attr[name].CopyFrom(value)
    return bare


def _functions(node: Node, bodies: Bodies) -> FunctionDefLibrary:
    """The functions that a node calls, directly or through others."""
    from tensorflow.core.framework import function_pb2

    library: FunctionDefLibrary = function_pb2.FunctionDefLibrary()
    pending = list(_called(_bare(node)))
    seen = set(pending)
    while pending:
        body = bodies(pending.pop())
        if body is None:
            continue
        library.function.add().CopyFrom(body)
        more = {name for inner in body.node_def for name in _called(inner)} - seen
        seen |= more
        pending += sorted(more)
    return library


def _called(node: NodeDef) -> Iterator[str]:
    for name in sorted(node.attr):
        value = node.attr[name]
        for function in (value.func, *value.list.func):
            if function.name:
                yield function.name
