"""Counts the operations that run, to see that copies made on purpose are not merged again."""

from __future__ import annotations

from typing import Any
from unittest import mock

import memopt


def main() -> dict[str, Any]:
    """Executed copies as memopt makes them; and without triggers, marked and not."""
    from memopt.plugin import marks

    mark = marks.mark_added
    found = {"as made": _executed_copies()}

    def without_triggers(graph_def: Any, before: Any) -> None:
        for node in graph_def.node:
            if node.name.startswith("Recomputed/"):
                kept = [name for name in node.input if not name.startswith("^")]
                del node.input[:]
                node.input.extend(kept)
        if is_marked:
            mark(graph_def, before)

    with mock.patch.object(marks, "mark_added", without_triggers):
        for is_marked in (True, False):
            found["marked" if is_marked else "unmarked"] = _executed_copies()
    return found


def _executed_copies() -> int:
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), memopt.enabled(level="recomputation_heuristics", min_nodes=4):
        samples = v1.placeholder(tf.float32, (64, 64))
        weights = [v1.get_variable(f"w{k}", (64, 64)) for k in range(6)]
        hidden = samples
        for weight in weights:
            hidden = tf.sqrt(tf.nn.sigmoid(tf.nn.relu(hidden @ weight) + 1.0))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(hidden))
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feed = {samples: np.ones((64, 64), np.float32)}
            session.run(train, feed, options=options, run_metadata=metadata)
    assert memopt.last_reports()[-1].outcome == "rewritten"
    return sum(
        "Recomputed/" in node.node_name
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    )
