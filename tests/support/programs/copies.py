"""Counts the operations that run, to see that copies made on purpose are not merged again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

import memopt

if TYPE_CHECKING:
    from collections.abc import Callable

_LAYERS = 6


def main() -> dict[str, Any]:
    """Executed copies as memopt makes them; and without triggers, marked and not."""
    from memopt.plugin import marks
    from memopt.plugin.repeated import REPEATED

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
            # It is the same graph each time.
            REPEATED.clear()
            found["marked" if is_marked else "unmarked"] = _executed_copies()
    return {**found, "fused": _executed_fused_copies()}


def _executed_copies() -> int:
    import tensorflow as tf

    def layer(hidden: Any, weight: Any) -> Any:
        return tf.sqrt(tf.nn.sigmoid(tf.nn.relu(hidden @ weight) + 1.0))

    ran = _operations_of_a_step(layer, level="recomputation_heuristics")
    return sum("Recomputed/" in name for name, _ in ran)


def _executed_fused_copies() -> int:
    """Of what arrives in memopt as one operation made of three."""
    import tensorflow as tf

    def layer(hidden: Any, weight: Any) -> Any:
        return tf.nn.relu(tf.nn.bias_add(hidden @ weight, weight[0]))

    ran = _operations_of_a_step(layer, budget="50%")
    names = {name for name, op in ran if "FusedMatMul" in op}
    return len(names) - _LAYERS


def _operations_of_a_step(
    layer: Callable[[Any, Any], Any], **options: Any
) -> list[tuple[str, str]]:
    """Names of the operations that ran in a rewritten training step, and what each was."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), memopt.enabled(min_nodes=4, **options):
        samples = v1.placeholder(tf.float32, (64, 64))
        hidden = samples
        for number in range(_LAYERS):
            hidden = layer(hidden, v1.get_variable(f"w{number}", (64, 64)))
        train = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(hidden))
        metadata = v1.RunMetadata()
        trace = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            feed = {samples: np.ones((64, 64), np.float32)}
            session.run(train, feed, options=trace, run_metadata=metadata)
    assert memopt.last_reports()[-1].outcome == "rewritten"
    return [
        (node.node_name, node.timeline_label)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    ]
