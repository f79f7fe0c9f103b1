"""Which gradients can be computed as products, and what writes those; see `gradients`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memopt.fission.column_products import ColumnProducts
from memopt.fission.columns import Columns, columns_of
from memopt.fission.operations import Operations
from memopt.fission.patch_products import PatchProducts
from memopt.fission.patches import Patches, patches_of
from memopt.rematerialization.rewriting.node_builder import NodeBuilder

if TYPE_CHECKING:
    from memopt.context import Context
    from memopt.fission.gradients import Gradient
    from memopt.graph.graph import Node
    from memopt.graph.rewriter import Rewriter
    from memopt.shapes.properties import Properties

OF_FILTERS = "Conv2DBackpropFilter"
OF_IMAGES = "Conv2DBackpropInput"
GRADIENTS = frozenset({OF_FILTERS, OF_IMAGES})


def products_of(node: Node, properties: Properties, threads: int) -> Gradient | str:
    """How a gradient can be computed as products, or why it stays as it is.

    Args:
        node: One of `GRADIENTS`.
        properties: What is certain of its graph.
        threads: How many share the work of a kernel.
    """
    if node.op == OF_FILTERS:
        return patches_of(node, properties)
    return columns_of(node, properties, threads)


def write_products(rewriter: Rewriter, context: Context, node: Node, way: Gradient) -> None:
    """Compute a gradient as products; it becomes a Reshape of what they make.

    Args:
        rewriter: The graph's; an edit has to be open.
        context: What the pass knows.
        node: The gradient.
        way: In what way.
    """
    if isinstance(way, Patches):
        operations = Operations(NodeBuilder(rewriter, context, "Patches/"), node)
        PatchProducts(operations, way).write(*node.inputs)
    if isinstance(way, Columns):
        operations = Operations(NodeBuilder(rewriter, context, "Columns/"), node)
        ColumnProducts(operations, way).write(*node.inputs)
