"""An item as files: its graph, and how that is used."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memopt.errors import FileError
from memopt.item import GrapplerItem, VariableSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_GRAPH_FILE = "graph.pb"
_USE_FILE = "step.json"


def save_item(item: GrapplerItem, directory: Path, more: Mapping[str, Any] | None = None) -> None:
    """Write an item into a directory, which must exist.

    Args:
        item: The item.
        directory: Where the files go.
        more: Plain data that is kept beside it, under other names than an item's attributes.

    Raises:
        FileError: A file cannot be written.
    """
    use = {
        "feed": item.feed,
        "fetch": item.fetch,
        "keep": item.keep,
        "compiled": item.compiled,
        "in_function": item.in_function,
        "variables": {n: [s.dtype, s.shape] for n, s in item.variables.items()},
        **(more or {}),
    }
    try:
        (directory / _GRAPH_FILE).write_bytes(item.graph_def.SerializeToString())
        (directory / _USE_FILE).write_text(json.dumps(use), encoding="utf-8")
    except OSError as error:
        raise FileError(f"cannot write to {directory}: {error}") from error


def load_item(directory: Path) -> GrapplerItem:
    """The item that `save_item` wrote.

    Raises:
        FileError: A file is missing or not what it should be.
    """
    return load_item_and_more(directory)[0]


def load_item_and_more(directory: Path) -> tuple[GrapplerItem, dict[str, Any]]:
    """The item that `save_item` wrote, and all that stands beside its graph.

    Raises:
        FileError: A file is missing or not what it should be.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework.graph_pb2 import GraphDef

    try:
        graph_def = GraphDef.FromString((directory / _GRAPH_FILE).read_bytes())
        use = json.loads((directory / _USE_FILE).read_text(encoding="utf-8"))
        item = GrapplerItem(
            graph_def=graph_def,
            feed=tuple(use["feed"]),
            fetch=tuple(use["fetch"]),
            keep=tuple(use["keep"]),
            compiled=bool(use["compiled"]),
            in_function=bool(use["in_function"]),
            variables=MappingProxyType(
                {
                    name: VariableSpec(dtype, tuple(shape))
                    for name, (dtype, shape) in use["variables"].items()
                }
            ),
        )
    except (OSError, DecodeError, ValueError, KeyError) as error:
        raise FileError(f"cannot read a step from {directory}: {error}") from error
    return item, use
