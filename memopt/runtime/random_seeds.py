"""Seeds for random operations that have none, so that two runs draw the same numbers."""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_LARGEST_SEED = 2**31 - 1


def seed_random_operations(graph_def: GraphDef, seed: int) -> GraphDef:
    """A copy in which every stateful random operation has a seed of its own.

    An operation whose `seed` and `seed2` are both 0 draws from the system's entropy. It gets seeds
    that depend on `seed` and its name alone, so a rewritten graph that keeps the name draws the
    same numbers. Operations with seeds stay as they are. Library functions are treated alike.

    Args:
        graph_def: The graph, which is not changed.
        seed: What distinguishes one sequence of numbers from another.
    """
    seeded = type(graph_def)()
    seeded.CopyFrom(graph_def)
    for node in _all_nodes(seeded):
        if _draws_from_entropy(node):
            node.attr["seed"].i = _derived_seed(seed, node.name, "seed")
            node.attr["seed2"].i = _derived_seed(seed, node.name, "seed2")
    return seeded


def _all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _draws_from_entropy(node: NodeDef) -> bool:
    if not _has_seeds(node.op):
        return False
    # An attribute that is missing has its default, which is 0.
    given = (node.attr[key].i for key in ("seed", "seed2") if key in node.attr)
    return not any(given)


@functools.cache
def _has_seeds(operation: str) -> bool:
    from tensorflow.python.framework import op_def_registry

    definition = op_def_registry.get(operation)
    if definition is None or not definition.is_stateful:
        return False
    return {"seed", "seed2"} <= {attribute.name for attribute in definition.attr}


def _derived_seed(seed: int, name: str, role: str) -> int:
    digest = hashlib.blake2b(f"{seed}:{role}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % _LARGEST_SEED + 1
