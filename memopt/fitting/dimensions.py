"""Open dimensions of what is fed: which they are, and the graph with sizes put in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from memopt.errors import OptionsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

    from memopt.item import GrapplerItem

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_HOW_TO_OPEN = (
    "trace the step with None for the batch, step.get_concrete_function(tf.TensorSpec((None, 784), "
    "tf.float32), ...), and save that with memopt.save"
)


class Dimension(NamedTuple):
    """One dimension of something that is fed.

    Attributes:
        node: The Placeholder.
        axis: Which of its dimensions, from 0.
        size: What it is to be; 0 for the size that is looked for.
    """

    node: str
    axis: int
    size: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """A dimension as people write it: `images:0`, or with its size, `tokens:1=64`.

        Raises:
            OptionsError: It is none.
        """
        place, has_size, size = text.strip().partition("=")
        node, _, axis = place.rpartition(":")
        if not node or not axis.isdecimal() or (has_size and not (size.isdecimal() and int(size))):
            raise OptionsError(
                f"{text!r} is no dimension, such as images:0 (the first one of what is fed to "
                "images) or tokens:1=64"
            )
        return cls(node, int(axis), int(size or 0))

    def __str__(self) -> str:
        return f"{self.node}:{self.axis}"


def find_dimensions(
    item: GrapplerItem, named: Sequence[Dimension | str] = ()
) -> tuple[Dimension, ...]:
    """The dimensions that get a size: those that are named, and where none is, the batch.

    The batch is the first open dimension of everything that is fed.

    Args:
        item: The step.
        named: What is looked for and what is known.

    Raises:
        OptionsError: Nothing is open; a dimension is not there or is not open; or a further one is
            open, so that sizes would not be known.
    """
    fed = _fed_placeholders(item)
    chosen = [Dimension.parse(one) if isinstance(one, str) else one for one in named]
    for dimension in chosen:
        _check_open(fed, dimension)
    found = {str(dimension): dimension for dimension in chosen}
    if len(found) < len(chosen):
        raise OptionsError("a dimension is named twice")
    if all(dimension.size for dimension in chosen):
        for node in fed.values():
            free = [d for d in _open_dimensions(node) if str(d) not in found]
            found.update((str(dimension), dimension) for dimension in free[:1])
    if all(dimension.size for dimension in found.values()):
        raise OptionsError(f"the step has no open dimension to find a size for: {_HOW_TO_OPEN}")
    for node in fed.values():
        for dimension in _open_dimensions(node):
            if str(dimension) not in found:
                raise OptionsError(
                    f"the size of {dimension} is open as well: name what has the size that is "
                    f"looked for (--dimension {dimension}), or give it (--dimension {dimension}=64)"
                )
    return tuple(found.values())


def with_size(item: GrapplerItem, dimensions: Sequence[Dimension], size: int) -> GrapplerItem:
    """The step with sizes in the place of open dimensions: a copy.

    What the graph says of shapes elsewhere stays: it says less, not something else.

    Args:
        item: The step.
        dimensions: What gets a size.
        size: What those get that have none of their own.
    """
    graph_def = type(item.graph_def)()
    graph_def.CopyFrom(item.graph_def)
    places: dict[str, list[Dimension]] = {}
    for dimension in dimensions:
        places.setdefault(dimension.node, []).append(dimension)
    for node in graph_def.node:
        for dimension in places.get(node.name, ()):
            for shape in _shapes(node):
                if not shape.unknown_rank and dimension.axis < len(shape.dim):
                    shape.dim[dimension.axis].size = dimension.size or size
    return replace(item, graph_def=graph_def)


def _fed_placeholders(item: GrapplerItem) -> Mapping[str, NodeDef]:
    """What is fed and says what shape it has, in the order in which it is fed.

    Raises:
        OptionsError: Nothing at all is known of a shape.
    """
    names = [tensor.partition(":")[0] for tensor in item.feed]
    nodes = {node.name: node for node in item.graph_def.node if node.op in _PLACEHOLDERS}
    fed = {name: nodes[name] for name in names if name in nodes}
    for name, node in fed.items():
        if "shape" not in node.attr or node.attr["shape"].shape.unknown_rank:
            raise OptionsError(
                f"not even the number of dimensions of {name} is known, so no size can be put in"
            )
    return fed


def _open_dimensions(node: NodeDef) -> list[Dimension]:
    sizes = [dimension.size for dimension in node.attr["shape"].shape.dim]
    return [Dimension(node.name, axis) for axis, size in enumerate(sizes) if size < 0]


def _check_open(fed: Mapping[str, NodeDef], dimension: Dimension) -> None:
    node = fed.get(dimension.node)
    if node is None:
        raise OptionsError(f"{dimension.node!r} is not fed; what is: {', '.join(fed) or 'nothing'}")
    sizes = [each.size for each in node.attr["shape"].shape.dim]
    if dimension.axis >= len(sizes):
        raise OptionsError(f"{dimension.node} has {len(sizes)} dimensions, none is {dimension}")
    if sizes[dimension.axis] >= 0:
        raise OptionsError(
            f"{dimension} is {sizes[dimension.axis]} in the graph, and other numbers in it may "
            f"rest on that: {_HOW_TO_OPEN}"
        )


def _shapes(node: NodeDef) -> Iterator[TensorShapeProto]:
    yield node.attr["shape"].shape
    if "_output_shapes" in node.attr:
        yield from node.attr["_output_shapes"].list.shape
