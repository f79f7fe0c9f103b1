"""Random graphs in the shape of training steps: a forward part and gradients that read from it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

SIDE = 4
"""All tensors are square matrices of this many rows."""

UNARY_CHEAP = ("Relu", "Sigmoid", "Neg", "Square", "Reciprocal", "Relu6")
UNARY_COSTLY = ("Tanh", "Exp", "Identity", "Softplus")
BINARY_CHEAP = ("Add", "Mul", "Sub", "SquaredDifference")
BINARY_COSTLY = ("AddV2", "Maximum", "MatMul", "MatMul")
SCOPES = ("", "layer/", "tower/block/")
GRADIENT_SCOPES = ("gradients/", "tower/gradients/", "gradients/layer/")
DEVICES = ("", "", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0")


def random_training_graph(seed: int, *, gradients_share: float = 0.4) -> GraphDef:
    """A random graph of 20 to 100 nodes, the same for the same seed; `train` ends it.

    It has operations that are cheap and costly to recompute, hints, several outputs of one
    operation, control edges, devices, gradient scopes of different spelling, and gradients that
    read results of several groups.
    """
    choice = random.Random(seed)
    builder = _Builder(choice)
    for number in range(choice.randint(1, 3)):
        builder.add(f"x{number}", "Placeholder", [])
    count = choice.randint(15, 90)
    forward = int(count * (1 - gradients_share))
    for number in range(forward):
        builder.add_operation(f"{choice.choice(SCOPES)}f{number}")
    for number in range(count - forward):
        builder.add_operation(f"{choice.choice(GRADIENT_SCOPES)}g{number}")
    builder.add_sink("train")
    return builder.shuffled()


class _Builder:
    def __init__(self, choice: random.Random) -> None:
        from tensorflow.core.framework import graph_pb2

        self._choice = choice
        self._graph_def: GraphDef = graph_pb2.GraphDef()
        self._graph_def.versions.producer = 1882
        self._tensors: list[str] = []
        self._used: set[str] = set()

    def add(self, name: str, op: str, inputs: list[str]) -> NodeDef:
        node = self._graph_def.node.add(name=name, op=op)
        node.input.extend(inputs)
        node.device = self._choice.choice(DEVICES)
        self._used.update(text.partition(":")[0] for text in inputs)
        if op == "Placeholder":
            node.attr["dtype"].type = 1
            node.attr["shape"].shape.dim.add().size = SIDE
            node.attr["shape"].shape.dim.add().size = SIDE
        else:
            node.attr["T"].type = 1
        if op == "MatMul":
            node.attr["transpose_a"].b = self._choice.random() < 0.5
            node.attr["transpose_b"].b = False
        self._tensors.append(name)
        return node

    def add_operation(self, name: str) -> None:
        choice = self._choice
        kind = choice.random()
        if kind < 0.1:
            self._add_two_outputs(name)
            return
        if kind < 0.5:
            op = choice.choice(choice.choice((UNARY_CHEAP, UNARY_COSTLY)))
            inputs = [self._pick()]
        else:
            op = choice.choice(choice.choice((BINARY_CHEAP, BINARY_COSTLY)))
            inputs = [self._pick(), self._pick()]
        earlier = [node.name for node in self._graph_def.node]
        if choice.random() < 0.15:
            inputs.append(f"^{choice.choice(earlier)}")
        node = self.add(name, op, inputs)
        if choice.random() < 0.08:
            node.attr["_recompute_hint"].i = 0

    def _add_two_outputs(self, name: str) -> None:
        """An IdentityN, whose second output has a port of its own."""
        node = self._graph_def.node.add(name=name, op="IdentityN")
        node.input.extend([self._pick(), self._pick()])
        node.attr["T"].list.type.extend([1, 1])
        if self._choice.random() < 0.5:
            node.attr["_recompute_hint"].i = 0
        self._tensors.extend([name, f"{name}:1"])
        self._used.update(text.partition(":")[0] for text in node.input)

    def add_sink(self, name: str) -> None:
        node = self._graph_def.node.add(name=name, op="NoOp")
        node.input.extend(
            f"^{other.name}" for other in self._graph_def.node if other.name not in self._used
        )
        node.input.remove(f"^{name}")

    def shuffled(self) -> GraphDef:
        """The nodes in another order in half of the graphs: files need not be sorted."""
        if self._choice.random() < 0.5:
            return self._graph_def
        nodes = list(self._graph_def.node)
        self._choice.shuffle(nodes)
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del self._graph_def.node[:]
        self._graph_def.node.extend(copies)
        return self._graph_def

    def _pick(self) -> str:
        """A tensor, rather a recent one, so that graphs get deep."""
        last = len(self._tensors) - 1
        return self._tensors[min(last, int(last * self._choice.random() ** 0.5) + 1)]
