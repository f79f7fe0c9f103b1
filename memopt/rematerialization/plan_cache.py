"""Plans that were made before, in the cache folder, for whoever plans the same again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from memopt.errors import FileError
from memopt.files.kept_files import KeptFiles
from memopt.rematerialization.plan_choice import make_plan
from memopt.rematerialization.stored_plans import by_name, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.rematerialization.limits import Limits, Plan
    from memopt.rematerialization.network import Network
    from memopt.rematerialization.rematerialized import Rematerialized

_MOST_BYTES = 64 << 20
_MAKE_PLANS = ("planning", "rematerialization")
_NOTHING = b"nothing"
"""What is kept where the best plan is to compute nothing again."""


@dataclass(frozen=True)
class PlanCache:
    """A folder of plans, each under the digest of what it is for.

    What is found is used only if it is a plan for the graph at hand (see `decode`), and counts for
    what it needs there. A folder that cannot be read or written is as good as none.

    Attributes:
        options: How plans are made, in words: with others there are others.
        most_bytes: What the folder may hold; plans that were not used for longest go first.
    """

    options: str
    most_bytes: int = _MOST_BYTES

    def plan(
        self, algorithm: str, network: Network, limits: Limits, near: Sequence[Rematerialized] = ()
    ) -> Plan:
        """The plan that was made before, or else a new one; see `make_plan`."""
        nothing = limits.nothing(network)
        if nothing.keeps(limits.limit_bytes):
            return nothing
        digest = self._digest(network, limits, near)
        found = self._find(digest, network, limits)
        if found is not None:
            return found
        plan = make_plan(algorithm, network, limits, near)
        self._kept.keep(digest, _NOTHING if plan.done is None else encode(plan.done))
        return plan

    def _digest(self, network: Network, limits: Limits, near: Sequence[Rematerialized]) -> str:
        """The same for the same graph, costs, limit, options and start, in every process."""
        digest = hashlib.sha256(b"".join(map(encode, near)))
        facts = (_planners(), self.options, limits.limit_bytes, network.buffer_graph.held_bytes)
        for line in (facts, *_described(network)):
            digest.update(json.dumps(line).encode())
        return digest.hexdigest()

    def _find(self, digest: str, network: Network, limits: Limits) -> Plan | None:
        data = self._kept.find(digest)
        if data is None:
            return None
        if data == _NOTHING:
            return limits.nothing(network)
        try:
            return limits.measure(decode(data, network))
        except FileError:
            return None

    @property
    def _kept(self) -> KeptFiles:
        return KeptFiles("plans", self.most_bytes)


def _described(network: Network) -> Iterator[object]:
    """What a plan depends on, node by node, in the order of their names."""
    graph = network.buffer_graph
    nodes, order = graph.nodes, by_name(network)
    maker = graph.makers
    rank = {b: at for made in graph.made for at, b in enumerate(made)}

    def name_of(buffer: int) -> tuple[str, int]:
        is_made = maker[buffer] >= 0
        return (nodes[maker[buffer]].name, rank[buffer]) if is_made else ("", buffer)

    position = {node: at for at, node in enumerate(network.sequence)}
    for node in order:
        made = graph.made[node]
        yield (
            nodes[node].name,
            nodes[node].op,
            position[node],
            [nodes[source].name for source in network.inputs[node]],
            sorted(nodes[follower].name for follower in network.followers[node]),
            [(graph.size_bytes[b], graph.lasting[b]) for b in made],
            [[name_of(source) for source in graph.reusable[b]] for b in made],
            graph.scratch_bytes[node],
            network.recomputable[node],
            network.weights[node],
        )


@cache
def _planners() -> str:
    """A digest of the sources that make plans: what others found is looked for anew."""
    digest = hashlib.sha256()
    for folder in _MAKE_PLANS:
        for path in sorted((Path(__file__).parents[1] / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
