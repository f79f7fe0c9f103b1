"""The order in which a real run started its operations, from TensorFlow's step stats."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.buffers.buffer_graph import BufferGraph
    from memopt.sequencing.precedence import Precedence

_MICROSECOND_NS = 1000


def recorded_sequence(
    buffer_graph: BufferGraph, precedence: Precedence, run: RunMetadata
) -> list[int]:
    """The nodes that run, in the order in which a recorded run started them.

    A node that the run does not mention (one that was folded, or is new) comes as soon as all that
    it needs has run. Where the recorded order contradicts the precedence, the precedence holds. Of
    a node in a loop the first start counts.

    Args:
        buffer_graph: The graph.
        precedence: What runs, and what must come before what.
        run: What `tf.compat.v1.Session.run` or `memopt.simulation.run_metadata` recorded.
    """
    started_ns = _starts_ns(run)
    keys = [-1] * len(buffer_graph.nodes)
    for node in precedence.program:
        needed_ns = max((keys[producer] for producer in precedence.producers[node]), default=-1)
        keys[node] = started_ns.get(buffer_graph.nodes[node].name, needed_ns)
    return precedence.sorted_by(keys)


def _starts_ns(run: RunMetadata) -> dict[str, int]:
    """By node: when it started first, on whatever device."""
    started_ns: dict[str, int] = {}
    for device in run.step_stats.dev_stats:
        for stats in device.node_stats:
            start_ns = stats.all_start_nanos or stats.all_start_micros * _MICROSECOND_NS
            name = stats.node_name
            started_ns[name] = min(started_ns.get(name, start_ns), start_ns)
    return started_ns
