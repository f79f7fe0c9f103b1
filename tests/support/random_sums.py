"""Random graphs full of AddNs, and graphs of AddN stages for the loop and for benchmarks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

FLOAT, DOUBLE, INT32, INT64, BFLOAT16, HALF = 1, 2, 3, 9, 14, 19
DTYPES = (FLOAT, FLOAT, FLOAT, DOUBLE, HALF, INT64, INT32, BFLOAT16)
SHAPES = ((64, 64), (64, 64), (128, 128), (16, 8, 4), (1000,), ())
SINK = "train"
_PRODUCER = 1882
_GROWING_STAGES = 64


class _Family(NamedTuple):
    """Tensors that can be added: their type and shape, and whether all comes from what is fed."""

    dtype: int
    shape: tuple[int, ...]
    fed: bool


def random_sums_graph(seed: int, devices: Sequence[str], *, reuse: float = 1.0) -> GraphDef:
    """A random graph of 20 to 90 nodes, the same for the same seed; `train` ends it.

    It has AddNs and AccumulateNV2s of 1 to 12 inputs and several types, inputs that are repeated,
    that come from second outputs and from other devices, control inputs of all kinds, and shapes
    that depend on what is fed.

    Args:
        seed: What the graph is drawn from.
        devices: Device strings to place nodes on.
        reuse: How often a tensor that was read stays to be read again; at 0, each is read once.
    """
    choice = random.Random(seed)
    builder = _Builder(choice, devices, reuse)
    families = [
        _Family(choice.choice(DTYPES), choice.choice(SHAPES), choice.random() < 0.15)
        for _ in range(choice.randint(1, 3))
    ]
    for family in families:
        for _ in range(choice.randint(2, 5)):
            builder.add_source(family)
    for _ in range(choice.randint(10, 60)):
        builder.add_operation(choice.choice(families))
    builder.add_sink()
    return builder.finish()


class _Builder:
    def __init__(self, choice: random.Random, devices: Sequence[str], reuse: float) -> None:
        from tensorflow.core.framework import graph_pb2

        self._choice = choice
        self._reuse = reuse
        # Mostly one device, so that its memory fills up.
        self._devices = [devices[0]] * 4 + list(devices)
        self._graph_def: GraphDef = graph_pb2.GraphDef()
        self._graph_def.versions.producer = _PRODUCER
        self._tensors: dict[_Family, list[str]] = {}
        self._used: set[str] = set()

    def add_source(self, family: _Family) -> None:
        """A random tensor, a variable of either kind, or something fed."""
        kind = self._choice.random()
        if kind < 0.15 or family.fed:
            source = self._add("Placeholder", [], dtype=family.dtype, shape=family.shape)
        elif kind < 0.3:
            source = self._add("VariableV2", [], dtype=family.dtype, shape=family.shape)
        elif kind < 0.6 or family.dtype in (INT32, INT64):
            handle = self._add("VarHandleOp", [], dtype=family.dtype, shape=family.shape)
            handle.attr["shared_name"].s = handle.name.encode()
            source = self._add("ReadVariableOp", [handle.name], dtype=family.dtype)
        else:
            shape = self._add("Const", [])
            _set_integers(shape, family.shape)
            source = self._add("RandomStandardNormal", [shape.name], dtype=family.dtype)
            source.attr["T"].type = INT32
            source.attr["seed"].i = len(self._graph_def.node)
        self._tensors.setdefault(family, []).append(source.name)

    def add_operation(self, family: _Family) -> None:
        kind = self._choice.random()
        if kind < 0.45:
            node = self._add_sum(family)
        elif kind < 0.55:
            node = self._add("IdentityN", [self._pick(family), self._pick(family)])
            node.attr["T"].list.type.extend([family.dtype] * 2)
            self._tensors[family].append(f"{node.name}:1")
        elif kind < 0.75:
            op = self._choice.choice(("Neg", "Square", "Identity", "ZerosLike"))
            node = self._add(op, [self._pick(family)], T=family.dtype)
        else:
            op = self._choice.choice(("AddV2", "Mul", "Sub"))
            node = self._add(op, [self._pick(family), self._pick(family)], T=family.dtype)
        self._tensors[family].append(node.name)

    def add_sink(self) -> None:
        node = self._graph_def.node.add(name=SINK, op="NoOp", device=self._devices[0])
        names = [other.name for other in self._graph_def.node if other.name != SINK]
        node.input.extend(f"^{name}" for name in names if name not in self._used)

    def finish(self) -> GraphDef:
        """The nodes in another order in half of the graphs: files need not be sorted."""
        if self._choice.random() < 0.5:
            return self._graph_def
        nodes = list(self._graph_def.node)
        self._choice.shuffle(nodes)
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del self._graph_def.node[:]
        self._graph_def.node.extend(copies)
        return self._graph_def

    def _add_sum(self, family: _Family) -> NodeDef:
        choice = self._choice
        inputs = [self._pick(family) for _ in range(choice.choice((1, 2, 3, 3, 4, 4, 5, 7, 12)))]
        op = "AccumulateNV2" if choice.random() < 0.15 else "AddN"
        controls = self._controls(inputs)
        node = self._add(op, [*inputs, *controls], T=family.dtype)
        node.attr["N"].i = len(inputs)
        if op == "AccumulateNV2":
            _set_shape(node, family.shape)
        if choice.random() < 0.2:
            node.attr["_mark"].s = b"kept"
        return node

    def _controls(self, inputs: list[str]) -> list[str]:
        """Up to four: any earlier node, repeated ones and producers of inputs as well."""
        choice = self._choice
        if choice.random() < 0.5:
            return []
        earlier = [node.name for node in self._graph_def.node]
        producers = [name.partition(":")[0] for name in inputs]
        names = [
            choice.choice(producers if choice.random() < 0.2 else earlier)
            for _ in range(choice.randint(1, 4))
        ]
        if choice.random() < 0.3:
            names.append(choice.choice(names))
        return [f"^{name}" for name in names]

    def _add(self, op: str, inputs: list[str], **attributes: object) -> NodeDef:
        node = self._graph_def.node.add(name=f"{op.lower()}_{len(self._graph_def.node)}", op=op)
        node.input.extend(inputs)
        node.device = self._choice.choice(self._devices)
        self._used.update(text.removeprefix("^").partition(":")[0] for text in inputs)
        for key, value in attributes.items():
            if isinstance(value, tuple):
                _set_shape(node, value)
            else:
                node.attr[key].type = value
        return node

    def _pick(self, family: _Family) -> str:
        tensors = self._tensors[family]
        if not tensors:
            self.add_source(family)
        place = self._choice.randrange(len(tensors))
        return tensors[place] if self._choice.random() < self._reuse else tensors.pop(place)


def addn_stages(
    stages: int, *, inputs: int = 11, side: int = 256, padding: int = 0, device: str = ""
) -> GraphDef:
    """Sums one after another, of falling size, so that the peak moves from each to the next.

    The inputs of a sum arrive one by one, so that a stage needs little once its sum is an
    accumulator; then the peak is at the next stage. So Grappler's loop rewrites one stage in each
    iteration, until it has made 25. A stage has 3 nodes more than inputs: 45 stages make 631
    nodes, 500 make 7,001, 3,570 make 49,981. `train` ends the graph.

    Args:
        stages: How many sums.
        inputs: Inputs of each sum.
        side: Rows of the smallest tensors, which are square; the first 64 stages are larger.
        padding: Operations in each stage that only pass the sum on.
        device: The device string of all nodes.
    """
    from tensorflow.core.framework import graph_pb2

    graph_def: GraphDef = graph_pb2.GraphDef()
    graph_def.versions.producer = _PRODUCER
    end = ""
    for stage in range(stages):
        stage_side = side + 2 * max(_GROWING_STAGES - stage, 0)
        end = _add_stage(graph_def, f"s{stage}", end, inputs, stage_side, padding)
    graph_def.node.add(name=SINK, op="NoOp").input.append(f"^{end}")
    for node in graph_def.node:
        node.device = device
    return graph_def


def _add_stage(
    graph_def: GraphDef, scope: str, previous: str, inputs: int, side: int, padding: int
) -> str:
    """One stage, which waits for the node `previous`; returns the name of the node that ends it."""
    shape = graph_def.node.add(name=f"{scope}/shape", op="Const")
    _set_integers(shape, (side, side))
    total = graph_def.node.add(name=f"{scope}/sum", op="AddN")
    total.attr["N"].i = inputs
    for number in range(inputs):
        drawn = graph_def.node.add(name=f"{scope}/x{number}", op="RandomStandardNormal")
        drawn.input.append(shape.name)
        if previous:
            drawn.input.append(f"^{previous}")
        drawn.attr["dtype"].type = FLOAT
        drawn.attr["T"].type = INT32
        drawn.attr["seed"].i = number + 1
        total.input.append(drawn.name)
        previous = drawn.name
    # The square takes its time, so that the next stage does not begin while this one is in memory.
    end = graph_def.node.add(name=f"{scope}/square", op="Square", input=[total.name])
    passes = [end]
    for number in range(padding):
        passes.append(
            graph_def.node.add(name=f"{scope}/pass{number}", op="Identity", input=[passes[-1].name])
        )
    for node in (total, *passes):
        node.attr["T"].type = FLOAT
    name: str = passes[-1].name
    return name


def _set_integers(node: NodeDef, values: Sequence[int]) -> None:
    """Make a Const a vector of integers."""
    node.attr["dtype"].type = INT32
    tensor = node.attr["value"].tensor
    tensor.dtype = INT32
    tensor.tensor_shape.dim.add(size=len(values))
    tensor.int_val.extend(values)


def _set_shape(node: NodeDef, shape: Sequence[int]) -> None:
    message = node.attr["shape"].shape
    message.SetInParent()
    for size in shape:
        message.dim.add(size=size)
