"""A Ray cluster on this machine, of several nodes, for tests and benchmarks."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ray_cluster(nodes: int) -> Iterator[Any]:
    """A cluster with so many nodes, each of one CPU."""
    from ray.cluster_utils import Cluster

    # Ray's processes stand behind all others of the machine unless they are told not to.
    with mock.patch.dict(os.environ, {"RAY_worker_niceness": "0"}):
        head = {"num_cpus": 1, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(nodes - 1):
                made.add_node(num_cpus=1)
            yield made
        finally:
            made.shutdown()
