"""Graphs run as they are in a TensorFlow 1 session, without any optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from tensorflow.core.framework.graph_pb2 import GraphDef

    Array = npt.NDArray[Any]


def run_graph(
    graph_def: GraphDef,
    fetch: Sequence[str],
    feed: Mapping[str, Array],
    *,
    initializer: str | None = None,
    steps: int = 1,
) -> list[list[Array]]:
    """Run a graph in a session of its own; what is fetched, for each step.

    Neither Grappler nor the session's own optimizer runs: it would merge what was meant to be
    computed twice.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto, OptimizerOptions

    config = ConfigProto(inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = OptimizerOptions.L0
    with tf.Graph().as_default():
        tf.import_graph_def(graph_def, name="")
        with tf.compat.v1.Session(config=config) as session:
            if initializer is not None:
                session.run(initializer)
            return [session.run(list(fetch), dict(feed)) for _ in range(steps)]
