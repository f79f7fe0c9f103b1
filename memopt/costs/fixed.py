"""FixedCosts: the costs of nodes and ops as a table says, which a file can hold."""

from __future__ import annotations

import json
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memopt.costs.cost_model import Cost
from memopt.errors import FileError, OptionsError
from memopt.files.whole_files import read_file, write_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.cluster import Device
    from memopt.costs.cost_model import CostModel
    from memopt.graph.graph import Node
    from memopt.shapes.properties import Properties

SIZE_LIMIT_BYTES = 256 * 2**20
"""The largest table that is read: millions of nodes."""

_SECTIONS = ("nodes", "ops")
_LONGEST_NS = (1 << 63) - 1


class FixedCosts:
    """A table of times: a node's own, else its op's, else what the fallback says.

    A file holds the table as JSON, `{"nodes": {"conv/Conv2D": 1500}, "ops": {"Relu": 20}}`, in
    whole nanoseconds of one execution, on whatever device. A time from the table is not split; all
    of it counts as arithmetic.

    Args:
        fallback: The costs of all other nodes.
        nodes: Nanoseconds by name of the node.
        ops: Nanoseconds by op.

    Raises:
        OptionsError: A time is no whole number of nanoseconds, or negative.
    """

    def __init__(
        self,
        fallback: CostModel,
        *,
        nodes: Mapping[str, int] | None = None,
        ops: Mapping[str, int] | None = None,
    ) -> None:
        self._fallback = fallback
        self.nodes: Mapping[str, int] = MappingProxyType(dict(nodes or {}))
        self.ops: Mapping[str, int] = MappingProxyType(dict(ops or {}))
        for section in _SECTIONS:
            for key, time_ns in getattr(self, section).items():
                _check_time(section, key, time_ns)

    @classmethod
    def load(cls, path: str | os.PathLike[str], fallback: CostModel) -> FixedCosts:
        """The table in a file; anywhere that `tf.io.gfile` or fsspec reaches.

        Raises:
            FileError: There is no such file, it is larger than `SIZE_LIMIT_BYTES`, or it holds no
                table; the message names the file and the key.
        """
        name = os.fspath(path)
        table = _parse(name, read_file(name, SIZE_LIMIT_BYTES))
        try:
            return cls(fallback, **table)
        except OptionsError as error:
            raise FileError(f"{name}: {error}") from None

    def cost(self, node: Node, device: Device, properties: Properties) -> Cost:
        """The cost of one execution; see `CostModel`."""
        time_ns = self.nodes.get(node.name)
        if time_ns is None:
            time_ns = self.ops.get(node.op)
        if time_ns is None:
            return self._fallback.cost(node, device, properties)
        return Cost(time_ns, time_ns, 0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table, without the fallback, as `load` reads it; whole or not at all.

        Raises:
            FileError: The place cannot be written to.
        """
        table = {"nodes": dict(self.nodes), "ops": dict(self.ops)}
        text = json.dumps(table, indent=1, sort_keys=True) + "\n"
        write_bytes(os.fspath(path), text.encode())


def _parse(path: str, content: bytes) -> dict[str, dict[str, int]]:
    """The sections of a table; the times in them are not looked at."""
    try:
        table = json.loads(content, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: is no table of costs in JSON: {error}") from error
    if not isinstance(table, dict):
        raise FileError(f'{path}: is no object such as {{"nodes": {{}}, "ops": {{}}}}')
    for section, times in table.items():
        if section not in _SECTIONS:
            raise FileError(f'{path}: has {section!r}; a table has "nodes" and "ops"')
        if not isinstance(times, dict):
            raise FileError(f"{path}: {section!r} is no object of names and nanoseconds")
    return table


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        found[key] = value
    return found


def _check_time(section: str, key: str, time_ns: object) -> None:
    if not isinstance(time_ns, int) or isinstance(time_ns, bool):
        raise OptionsError(f"{section}: {key!r} is {time_ns!r}, no whole number of nanoseconds")
    if not 0 <= time_ns <= _LONGEST_NS:
        raise OptionsError(f"{section}: {key!r} is {time_ns}, no possible number of nanoseconds")
