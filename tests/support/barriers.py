"""Random steps whose uses of variables are kept in order by barriers, among other things."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

SIDE = 4
SINK = "train"
_FLOAT = 1
_PRODUCER = 1882


def barrier_graph(seed: int, kind: str) -> GraphDef:
    """A random step in phases, the same for the same seed; `train` ends it, `x` is fed.

    In each phase variables are read, something is computed from them, all of that passes a barrier
    (an IdentityN, or a NoOp as of `tf.tuple`), and all variables are updated with what comes out.
    Reads of the next phase wait for the updates, and so the step has one result, with any number
    of threads.

    Args:
        seed: What the graph is drawn from.
        kind: The variables: "VarHandleOp" or "VariableV2".
    """
    return _Builder(random.Random(seed), kind).build()


class _Builder:
    def __init__(self, choice: random.Random, kind: str) -> None:
        from tensorflow.core.framework import graph_pb2

        self._choice = choice
        self._kind = kind
        self._graph_def: GraphDef = graph_pb2.GraphDef()
        self._graph_def.versions.producer = _PRODUCER
        self._variables: list[str] = []
        self._writes: dict[str, str] = {}
        self._ends: list[str] = []

    def build(self) -> GraphDef:
        choice = self._choice
        self._add("x", "Placeholder", [], dtype=_FLOAT, shape=True)
        for number in range(choice.randint(1, 3)):
            name = f"variable{number}"
            node = self._add(name, self._kind, [], dtype=_FLOAT, shape=True)
            if self._kind == "VarHandleOp":
                node.attr["shared_name"].s = name.encode()
            self._variables.append(name)
        for phase in range(choice.randint(1, 4)):
            self._add_phase(f"phase{phase}")
        self._add(SINK, "NoOp", [f"^{name}" for name in dict.fromkeys(self._ends)])
        return self._graph_def

    def _add_phase(self, scope: str) -> None:
        choice = self._choice
        reads = [self._add_read(scope, name) for name in self._variables]
        tensors = []
        for number, read in enumerate(reads):
            # What passes the barrier is none of the buffers that are updated in place.
            self._add(f"{scope}/used{number}", "Sin", [read], T=_FLOAT)
            tensors.append(f"{scope}/used{number}")
        for number in range(choice.randint(1, 5)):
            tensors.append(self._add_operation(f"{scope}/op{number}", reads + tensors))
        # Everything that reads is in the barrier or leads to something in it.
        consumed = {name for node in self._graph_def.node for name in node.input}
        open_ends = [name for name in tensors if name not in consumed]
        inputs = open_ends + choice.choices(tensors, k=2)
        choice.shuffle(inputs)
        outputs = self._add_barrier(f"{scope}/barrier", inputs)
        later = list(outputs)
        for number in range(choice.randint(0, 3)):
            later.append(self._add_operation(f"{scope}/later{number}", later))
        self._ends.extend(name.partition(":")[0] for name in later)
        for name in self._variables:
            self._add_write(scope, name, choice.choice(later))

    def _add_read(self, scope: str, variable: str) -> str:
        controls = [f"^{self._writes[variable]}"] if variable in self._writes else []
        name = f"{scope}/read_{variable}"
        if self._kind == "VarHandleOp":
            self._add(name, "ReadVariableOp", [variable, *controls], dtype=_FLOAT)
        else:
            self._add(name, "Identity", [variable, *controls], T=_FLOAT)
        return name

    def _add_write(self, scope: str, variable: str, value: str) -> None:
        name = f"{scope}/write_{variable}"
        if self._kind == "VarHandleOp":
            self._add(name, "AssignSubVariableOp", [variable, value], dtype=_FLOAT)
        else:
            self._add(name, "AssignSub", [variable, value], T=_FLOAT)
        self._writes[variable] = name
        self._ends.append(name)

    def _add_operation(self, name: str, tensors: list[str]) -> str:
        choice = self._choice
        # Small steps, so that numbers stay in range.
        op = choice.choice(("Mul", "Sub", "Tanh", "Sin", "Maximum"))
        count = 1 if op in ("Tanh", "Sin") else 2
        inputs = [choice.choice(tensors) for _ in range(count)]
        if choice.random() < 0.2:
            inputs.append(f"^{choice.choice(tensors).partition(':')[0]}")
        self._add(name, op, inputs, T=_FLOAT)
        return name

    def _add_barrier(self, name: str, inputs: list[str]) -> list[str]:
        choice = self._choice
        if choice.random() < 0.3:
            controls = [f"^{text.partition(':')[0]}" for text in dict.fromkeys(inputs)]
            self._add(name, "NoOp", controls)
            for number, tensor in enumerate(inputs):
                self._add(f"{name}/out{number}", "Identity", [tensor, f"^{name}"], T=_FLOAT)
            return [f"{name}/out{number}" for number in range(len(inputs))]
        controls = [f"^{choice.choice(inputs).partition(':')[0]}"] * (choice.random() < 0.3)
        node = self._add(name, "IdentityN", [*inputs, *controls])
        node.attr["T"].list.type.extend([_FLOAT] * len(inputs))
        if choice.random() < 0.3:
            self._add(f"{name}/after", "NoOp", [f"^{name}"])
            self._ends.append(f"{name}/after")
        return [name] + [f"{name}:{port}" for port in range(1, len(inputs))]

    def _add(self, name: str, op: str, inputs: list[str], **attributes: int) -> NodeDef:
        node = self._graph_def.node.add(name=name, op=op)
        node.input.extend(inputs)
        for key, value in attributes.items():
            if key == "shape":
                for _ in range(2):
                    node.attr[key].shape.dim.add().size = SIDE
            else:
                node.attr[key].type = value
        return node
