"""Constants as TensorFlow's own optimizer leaves them: folded, and equal ones once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from memopt.graph.attributes import attributes_key
from memopt.graph.op_types import is_stateful
from memopt.graph.traversal import Numbering

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from memopt.graph.graph import Graph, Node, Tensor
    from memopt.shapes.integer_evaluation import Array
    from memopt.shapes.properties import Properties

    Output = tuple[int, int]

_LARGEST_BYTES = 10 << 20
"""What is larger is not folded (`kMaxConstantSize`)."""

_CONSTANT = "Const"

_NOT_FOLDED = frozenset({"StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg"})
"""Ops without a state that TensorFlow computes in each step all the same, as a run showed."""

_MOST_WAITS = 64
"""A constant that waits for more nodes is taken to be like no other."""


class Folding(NamedTuple):
    """What a function's or session's own optimizer does to a graph's constants.

    TensorFlow's `ConstantFold` (tensorflow/core/common_runtime/constant_folding.cc), which is not
    Grappler's and runs without it. A node is folded whose data inputs are all constants or folded.
    A tensor of it that others than folded nodes read becomes a constant, for all its readers. The
    node still runs if another that runs waits for it by a control edge, or reads such a tensor of
    it as only folded nodes read. Of equal constants one is left, which all readers share
    (`OptimizeCSE` in tensorflow/core/graph/optimizer_cse.cc).

    Attributes:
        is_folded: By place of the node: whether it is folded.
        runs: By place: whether the node itself still runs: what is needed and neither folded nor a
            constant does.
        same: By place and port of a constant, the graph's or one that folding makes: the first that
            is equal to it, where that is another.
        values: By place and port of what is folded: its integers, where they are few and known.
    """

    is_folded: list[bool]
    runs: list[bool]
    same: dict[Output, Output]
    values: dict[Output, tuple[int, ...]]

    def replaces(self, numbering: Numbering, tensor: Tensor) -> bool:
        """Whether the readers of a tensor read a constant instead."""
        place = numbering.place(tensor.node)
        readers = (numbering.place(user) for user, _ in tensor.uses)
        return self.is_folded[place] and any(
            self.runs[reader] and not self.is_folded[reader] for reader in readers
        )

    @classmethod
    def of(
        cls,
        graph: Graph,
        properties: Properties | None,
        kept: Container[str] = (),
        is_needed: Sequence[bool] | None = None,
    ) -> Folding:
        """The folding of a graph; linear in nodes and edges.

        Args:
            graph: The graph.
            properties: The sizes of its tensors; `None` for a runtime that folds nothing.
            kept: Names of nodes that are fetched or fed, and so stay as they are.
            is_needed: By place: whether what is asked for needs the node; all are if not given.

        Raises:
            InvalidGraphError: TensorFlow refuses the graph; the message is TensorFlow's.
        """
        count = len(Numbering.of(graph).nodes)
        needed = [True] * count if is_needed is None else list(is_needed)
        if properties is None:
            return cls([False] * count, needed, {}, {})
        is_folded = _find_folded(graph, properties, kept)
        runs = _find_running(graph, is_folded, needed)
        found = _find_same(graph, properties, is_folded, kept)
        return cls(is_folded, runs, found.first, found.values)


def _find_folded(graph: Graph, properties: Properties, kept: Container[str]) -> list[bool]:
    numbering = Numbering.of(graph)
    constant = [node.op == _CONSTANT for node in numbering.nodes]
    is_folded = [False] * len(constant)
    for place in numbering.order:
        node = numbering.nodes[place]
        if not node.inputs or node.name in kept or node.op in _NOT_FOLDED:
            continue
        if not all(constant[numbering.place(tensor.node)] for tensor in node.inputs):
            continue
        outputs = properties.outputs(node.name)
        small = all(tensor.least_bytes <= _LARGEST_BYTES for tensor in outputs)
        if outputs and small and not is_stateful(node, graph.library):
            constant[place] = is_folded[place] = True
    return is_folded


def _find_running(graph: Graph, is_folded: list[bool], is_needed: list[bool]) -> list[bool]:
    """Constants and folded nodes run if a node that runs waits for them or reads them."""
    numbering = Numbering.of(graph)
    runs = list(is_needed)
    for place in reversed(numbering.order):
        node = numbering.nodes[place]
        if not is_folded[place] and node.op != _CONSTANT:
            continue
        users = [numbering.place(user) for user in node.control_users]
        for tensor in node.outputs:
            readers = [numbering.place(user) for user, _ in tensor.uses]
            readers = [reader for reader in readers if is_needed[reader]]
            if not is_folded[place] or all(is_folded[reader] for reader in readers):
                users += readers
        runs[place] = any(runs[user] for user in users)
    return runs


class _Same:
    """Finds equal constants among those of the graph, and among those that folding makes.

    Constants of the graph are equal by their attributes, as they are written. What folding makes is
    equal by its value where that is a few integers; else if the same is computed of equal inputs.
    Only with the first one that looks alike is each compared, and has to wait for the same nodes
    (the hash of `OptimizeCSE` knows no control edges). What folding makes waits for all that those
    nodes waited for that it is made of. Which is first TensorFlow tells by a depth-first order,
    this by a breadth-first one: of 1,400 constants that makes a difference for about three.

    Attributes:
        first: See `Folding.same`.
    """

    def __init__(self, graph: Graph, properties: Properties) -> None:
        # Here, since numpy is not light.
        from memopt.shapes import integer_evaluation

        self.first: dict[Output, Output] = {}
        self._arithmetic = integer_evaluation
        self._numbering = Numbering.of(graph)
        self._properties = properties
        self._waits: dict[int, frozenset[int]] = {}
        self._found: dict[tuple[object, ...], Output] = {}
        self._values: dict[Output, Array | None] = {}

    @property
    def values(self) -> dict[Output, tuple[int, ...]]:
        """See `Folding.values`."""
        return {
            output: tuple(int(number) for number in value.flat)
            for output, value in self._values.items()
            if value is not None
        }

    def add(self, place: int, *, stays: bool) -> None:
        """Add a constant or a folded node, after those that it reads; it may stay as it is."""
        waits = self._waits[place] = self._find_waits(place)
        if stays or len(waits) > _MOST_WAITS:
            return
        node = self._numbering.nodes[place]
        written = (node.op, node.device, attributes_key(node.attributes.items()))
        if node.op == _CONSTANT:
            self._note((place, 0), written)
            return
        inputs = [self._output(tensor) for tensor in node.inputs]
        computed = (*written, *(self.first.get(output, output) for output in inputs))
        values = self._evaluate(node, inputs)
        for tensor in node.outputs:
            value = values[tensor.port] if tensor.port < len(values) else None
            output = place, tensor.port
            self._values[output] = value
            if value is None:
                self._note(output, (*computed, tensor.port))
            else:
                dtype = self._properties.outputs(node.name)[tensor.port].dtype
                self._note(output, (dtype, value.shape, *value.flat))

    def _find_waits(self, place: int) -> frozenset[int]:
        """The nodes that a constant waits for; more than so many are never the same."""
        own = (self._numbering.place(n) for n in self._numbering.nodes[place].control_inputs)
        waits = frozenset(own)
        for producer in self._numbering.producers[place]:
            if len(waits) <= _MOST_WAITS:
                waits |= self._waits.get(producer, waits)
        return waits

    def _note(self, output: Output, key: tuple[object, ...]) -> None:
        first = self._found.setdefault(key, output)
        if first != output and self._waits[first[0]] == self._waits[output[0]]:
            self.first[output] = first

    def _evaluate(self, node: Node, inputs: list[Output]) -> tuple[Array, ...]:
        if node.op not in self._arithmetic.EVALUATORS:
            return ()
        values = [value for output in inputs if (value := self._value(output)) is not None]
        if len(values) < len(inputs):
            return ()
        found = self._arithmetic.evaluate(node, values) or ()
        dtypes = [tensor.dtype for tensor in self._properties.outputs(node.name)]
        return found if self._arithmetic.all_fit(found, dtypes) else ()

    def _value(self, output: Output) -> Array | None:
        place, _ = output
        if output not in self._values:
            node = self._numbering.nodes[place]
            self._values[output] = self._arithmetic.read_constant(node)
        return self._values[output]

    def _output(self, tensor: Tensor) -> Output:
        return self._numbering.place(tensor.node), tensor.port


def _find_same(
    graph: Graph, properties: Properties, is_folded: list[bool], kept: Container[str]
) -> _Same:
    """See `Folding.same`; what is fetched or fed stays as it is."""
    numbering = Numbering.of(graph)
    same = _Same(graph, properties)
    for place in numbering.order:
        node = numbering.nodes[place]
        if is_folded[place] or node.op == _CONSTANT:
            same.add(place, stays=node.name in kept)
    return same
