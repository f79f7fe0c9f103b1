"""Random operations without seeds get some that depend on their name."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from memopt.runtime.random_seeds import seed_random_operations


def _seeds(graph_def: Any) -> dict[str, tuple[int, int]]:
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes += function.node_def
    return {n.name: (n.attr["seed"].i, n.attr["seed2"].i) for n in nodes if "Random" in n.op}


def _graph_def() -> Any:
    @tf.function  # type: ignore[untyped-decorator] # TensorFlow has no types
    def inner() -> Any:
        return tf.raw_ops.RandomStandardNormal(shape=[2], dtype=tf.float32, name="in_library")

    with tf.Graph().as_default() as graph:
        tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32, name="free")
        tf.raw_ops.RandomUniform(shape=[2], dtype=tf.float32, seed2=7, name="seeded")
        inner()
    return graph.as_graph_def()


def test_only_operations_without_seeds_get_some() -> None:
    graph_def = _graph_def()
    before = graph_def.SerializeToString(deterministic=True)

    seeds = _seeds(seed_random_operations(graph_def, 0))

    assert before == graph_def.SerializeToString(deterministic=True)
    assert seeds["seeded"] == (0, 7)
    assert all(seeds["free"])
    assert all(seeds["in_library"])
    assert seeds["free"] != seeds["in_library"]


def test_seeds_depend_on_the_seed_and_the_name_alone() -> None:
    graph_def = _graph_def()
    first = _seeds(seed_random_operations(graph_def, 0))
    del graph_def.library.function[:]
    graph_def.node.add(name="another", op="NoOp")

    assert first["free"] == _seeds(seed_random_operations(graph_def, 0))["free"]
    assert first["free"] != _seeds(seed_random_operations(graph_def, 1))["free"]
