"""Lists of tensors and loops: what they hold, turn after turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.total_order import program_order

from memopt.costs.buffer_graph import BufferGraph, MemoryTimeline, check_sequence, simulate
from memopt.costs.buffer_rules import Runtime
from memopt.costs.buffers import buffer_graph_of
from memopt.costs.list_buffers import LIST_BYTES
from memopt.costs.properties import Properties
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem

if TYPE_CHECKING:
    from collections.abc import Callable

ROW_BYTES = 400_000
"""A tensor of 100,000 numbers; handles and counters together do not come near."""


def simulated(function: Callable[..., Any]) -> tuple[BufferGraph, MemoryTimeline]:
    """A function of such a tensor, run in the order of its graph."""
    import tensorflow as tf

    signature = tf.TensorSpec((100_000,), tf.float32)
    concrete = tf.function(function, autograph=False).get_concrete_function(signature)
    item = GrapplerItem.from_concrete_function(concrete)
    graph = from_graph_def(item.graph_def)
    buffer_graph = buffer_graph_of(
        graph, Properties.of(item), fed=item.feed, fetched=item.fetch, runtime=Runtime(2)
    )
    sequence = program_order(graph)
    check_sequence(buffer_graph, sequence)
    return buffer_graph, simulate(buffer_graph, sequence)


def peak_rows(function: Callable[..., Any]) -> int:
    """The most of these tensors at any time on top of the input."""
    return simulated(function)[1].step_peak_bytes // ROW_BYTES


def push(rows: Any, row: Any) -> Any:
    import tensorflow as tf

    return tf.raw_ops.TensorListPushBack(input_handle=rows, tensor=row)


def pop(rows: Any) -> tuple[Any, Any]:
    import tensorflow as tf

    rows, row = tf.raw_ops.TensorListPopBack(
        input_handle=rows, element_shape=[100_000], element_dtype=tf.float32
    )
    return rows, row


def empty() -> Any:
    import tensorflow as tf

    return tf.raw_ops.EmptyTensorList(
        element_shape=[100_000], max_num_elements=99, element_dtype=tf.float32
    )


def test_a_list_holds_what_is_pushed_until_it_is_popped() -> None:
    import tensorflow as tf

    def kept(x: Any) -> Any:
        rows = push(push(empty(), tf.exp(x)), tf.sin(x))
        rows, _ = pop(rows)
        return tf.stack([tf.cos(x), pop(rows)[1]])

    def gone(x: Any) -> Any:
        rows = push(empty(), tf.exp(x))
        total = tf.reduce_sum(pop(rows)[1])
        return tf.sin(x) + total

    # The first element, the cosine, and the two of them once more; the second is gone by then.
    assert peak_rows(kept) == 4
    assert peak_rows(gone) == 1


def collect(turns: int) -> Callable[[Any], Any]:
    import tensorflow as tf

    def step(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, size=turns, element_shape=(100_000,))
        _, rows = tf.while_loop(
            lambda number, _: number < turns,
            lambda number, rows: (number + 1, rows.write(number, tf.exp(x))),
            (0, rows),
        )
        return tf.reduce_sum(tf.sin(rows.read(0)))

    return step


@pytest.mark.parametrize("turns", [1, 4, 7])
def test_a_loop_holds_what_its_turns_collect(turns: int) -> None:
    graph, timeline = simulated(collect(turns))
    loops = [n for n, node in enumerate(graph.nodes) if node.op in {"While", "StatelessWhile"}]
    assert len(loops) == 1
    made = [graph.size_bytes[buffer] for buffer in graph.made[loops[0]]]
    assert made.count(ROW_BYTES) == turns
    assert made.count(LIST_BYTES) == 1
    # And the sine of one of them; the list is no longer needed when it is computed.
    assert timeline.step_peak_bytes // ROW_BYTES == turns


def test_a_loop_that_replaces_its_state_does_not_grow() -> None:
    import tensorflow as tf

    def in_place(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 9, lambda n, v: (n + 1, tf.exp(v)), (0, x))[1]

    def by_copies(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 9, lambda n, v: (n + 1, tf.cumsum(v)), (0, x))[1]

    assert peak_rows(in_place) == 1
    assert peak_rows(by_copies) == 2


def test_what_a_loop_makes_on_the_way_is_scratch_memory() -> None:
    import tensorflow as tf

    def step(x: Any) -> Any:
        def turn(number: Any, total: Any) -> tuple[Any, Any]:
            return number + 1, total + tf.reduce_sum(tf.cumsum(x) * tf.cumsum(x, reverse=True))

        return tf.while_loop(lambda number, _: number < 5, turn, (0, 0.0))[1]

    graph, timeline = simulated(step)
    loop = next(n for n, node in enumerate(graph.nodes) if node.op in {"While", "StatelessWhile"})
    assert graph.scratch_bytes[loop] // ROW_BYTES == 2
    assert timeline.step_peak_bytes // ROW_BYTES == 2


def test_loops_in_loops_and_calls_count_once() -> None:
    import tensorflow as tf

    called = tf.function(lambda v: tf.cumsum(tf.cumsum(v)), autograph=False)

    def inner(v: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 3, lambda n, u: (n + 1, called(u)), (0, v))[1]

    def step(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 2, lambda n, v: (n + 1, inner(v)), (0, x))[1]

    _, timeline = simulated(step)
    # Only the input is there before, and at most two sums are at a time.
    assert timeline.held_bytes // ROW_BYTES == 1
    assert timeline.step_peak_bytes // ROW_BYTES == 2
