"""Lists of tensors, loops, branches and calls: what they hold, turn after turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.total_order import program_order

from memopt.buffers import calls
from memopt.buffers.assignment import buffer_graph_of
from memopt.buffers.buffer_graph import BufferGraph, MemoryTimeline, check_sequence, simulate
from memopt.buffers.kernel_call import Runtime
from memopt.buffers.loop_extrapolation import skip_turns
from memopt.buffers.placed_tensors import LIST_BYTES
from memopt.graph.graphdef import from_graph_def
from memopt.item import GrapplerItem
from memopt.shapes.properties import Properties

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


@pytest.mark.parametrize("turns", [1, 4, 6])
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


def test_a_loop_may_take_over_what_others_read_before_it() -> None:
    import tensorflow as tf

    def loop(start: Any, value: Any) -> Any:
        return tf.while_loop(
            lambda n, _: n < 9.0, lambda n, v: (n + 1.0, tf.exp(v)), (start, value)
        )

    def before(x: Any) -> Any:
        y = tf.sin(x)
        return loop(tf.reduce_sum(y), y)[1]

    def perhaps_after(x: Any) -> Any:
        y = tf.sin(x)
        return loop(0.0, y)[1], tf.reduce_sum(y)

    assert peak_rows(before) == 1
    assert peak_rows(perhaps_after) == 2


def test_what_lies_in_memory_that_a_loop_is_given_is_in_use_beside_what_it_makes() -> None:
    import tensorflow as tf

    def step(x: Any) -> Any:
        def turn(number: Any, value: Any) -> tuple[Any, Any]:
            return number + 1, value + tf.reduce_sum(tf.cumsum(value))

        return tf.while_loop(lambda number, _: number < 1, turn, (0, tf.sin(x)))[1]

    assert peak_rows(step) == 2


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


def test_a_body_that_is_called_again_shares_its_constants() -> None:
    import tensorflow as tf

    def inner(v: Any) -> Any:
        def turn(number: Any, row: Any) -> tuple[Any, Any]:
            return number + 1, row * tf.constant(list(range(100_000)), tf.float32)

        return tf.while_loop(lambda n, _: n < 3, turn, (0, v))[1]

    def step(x: Any) -> Any:
        return tf.while_loop(lambda n, _: n < 4, lambda n, v: (n + 1, inner(v)), (0, x))[1]

    graph, timeline = simulated(step)
    # The input and the constant, and the result.
    assert timeline.held_bytes // ROW_BYTES == 2
    assert timeline.step_peak_bytes // ROW_BYTES == 1
    assert sum(size == ROW_BYTES for size in graph.size_bytes) == 3


# --- long loops -----------------------------------------------------------------------------------


def with_gradient(turns: int) -> Callable[[Any], Any]:
    """A loop that pushes what it computes and one that pops it."""
    import tensorflow as tf

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(
                lambda n, _: n < turns, lambda n, v: (n + 1, tf.cumsum(tf.sin(v)) * v), (0, x)
            )[1]
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, x)

    return step


def there_and_back(turns: int) -> Callable[[Any], Any]:
    """Loops that set elements upwards and get them downwards while they set others."""
    import tensorflow as tf

    def rows() -> Any:
        return tf.TensorArray(tf.float32, size=turns, element_shape=(100_000,))

    def step(x: Any) -> Any:
        _, there = tf.while_loop(
            lambda n, _: n < turns,
            lambda n, r: (n + 1, r.write(n, tf.exp(x))),
            (0, rows()),
        )
        _, back = tf.while_loop(
            lambda n, _: n >= 0,
            lambda n, r: (n - 1, r.write(n, tf.cumsum(there.read(n)))),
            (turns - 1, rows()),
        )
        return tf.reduce_sum(back.read(0)) + tf.reduce_sum(back.read(turns - 1))

    return step


def handed_over(turns: int) -> Callable[[Any], Any]:
    """A loop that gives the elements of one list to another, each at its place."""
    import tensorflow as tf

    def rows() -> Any:
        return tf.TensorArray(tf.float32, size=turns, element_shape=(100_000,))

    def step(x: Any) -> Any:
        _, there = tf.while_loop(
            lambda n, _: n < turns, lambda n, r: (n + 1, r.write(n, tf.exp(x))), (0, rows())
        )
        _, here = tf.while_loop(
            lambda n, _: n < turns, lambda n, r: (n + 1, r.write(n, there.read(n))), (0, rows())
        )
        # The first list is gone by then, unlike what it gave away.
        return tf.reduce_sum(tf.sin(here.read(0)) + here.read(turns - 1))

    return step


def loop_in_loop(turns: int) -> Callable[[Any], Any]:
    import tensorflow as tf

    def inner(v: Any) -> Any:
        return tf.while_loop(lambda n, _: n < turns, lambda n, u: (n + 1, tf.sin(u)), (0, v))[1]

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda n, _: n < 2, lambda n, v: (n + 1, inner(v)), (0, x))[1]
        return tape.gradient(y, x)

    return step


def shorter_at_first(turns: int) -> Callable[[Any], Any]:
    """A loop whose first turn has a loop of two turns in it, and each other one of three."""
    import tensorflow as tf

    def inner(rows: Any, row: Any, many: Any) -> Any:
        return tf.while_loop(
            lambda n, _: n < many, lambda n, r: (n + 1, r.write(row, tf.exp(r.read(0)))), (0, rows)
        )[1]

    def step(x: Any) -> Any:
        rows = tf.TensorArray(tf.float32, size=turns, element_shape=x.shape, clear_after_read=False)
        _, _, rows = tf.while_loop(
            lambda n, *_: n < turns,
            lambda n, many, r: (n + 1, tf.constant(3), inner(r, n, many)),
            (1, tf.constant(2), rows.write(0, x)),
        )
        return tf.reduce_sum(rows.stack())

    return step


@pytest.mark.parametrize("turns", [8, 13, 20])
@pytest.mark.parametrize(
    "make_step",
    [collect, with_gradient, there_and_back, handed_over, loop_in_loop, shorter_at_first],
)
def test_turns_that_are_skipped_count_like_those_that_are_followed(
    make_step: Callable[[int], Callable[[Any], Any]], turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = make_step(turns)
    monkeypatch.setattr(calls, "SOME_TURNS", turns)
    _, followed = simulated(step)
    monkeypatch.setattr(calls, "SOME_TURNS", 3)
    used = []

    def skip(*arguments: Any) -> bool:
        is_skipped = skip_turns(*arguments)
        if is_skipped:
            used.append(arguments)
        return is_skipped

    monkeypatch.setattr(calls, "skip_turns", skip)
    _, skipped = simulated(step)
    assert used
    assert skipped.usage_bytes == followed.usage_bytes
    assert skipped.held_bytes == followed.held_bytes


def test_a_model_with_loops_keeps_its_timeline_when_turns_are_skipped(
    tiny_item: Callable[[str], GrapplerItem], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = tiny_item("lstm")
    graph = from_graph_def(item.graph_def)
    timelines = []
    for some_turns in (1000, 2):
        monkeypatch.setattr(calls, "SOME_TURNS", some_turns)
        buffer_graph = buffer_graph_of(
            graph, Properties.of(item), fed=item.feed, fetched=item.fetch, runtime=Runtime(2)
        )
        timelines.append(simulate(buffer_graph, program_order(graph)))
    assert timelines[0].usage_bytes == timelines[1].usage_bytes


@pytest.mark.parametrize("make_step", [collect, with_gradient, there_and_back])
def test_a_loop_of_very_many_turns_grows_to_its_end(
    make_step: Callable[[int], Callable[[Any], Any]],
) -> None:
    """By the same from turn to turn, far beyond what is followed."""
    peaks = [simulated(make_step(turns))[1].step_peak_bytes for turns in (2000, 3000, 5000)]
    assert peaks[1] >= peaks[0] + 1000 * ROW_BYTES
    assert peaks[2] - peaks[1] == 2 * (peaks[1] - peaks[0])


# --- branches and calls ---------------------------------------------------------------------------


def node_of(graph: BufferGraph, *ops: str) -> int:
    """The only node of some op."""
    (place,) = (place for place, node in enumerate(graph.nodes) if node.op in ops)
    return place


@pytest.mark.parametrize("swapped", [False, True])
def test_a_branch_counts_as_the_larger_of_the_two(swapped: bool) -> None:
    import tensorflow as tf

    def step(x: Any) -> Any:
        sides = (
            lambda: tf.reduce_sum(tf.cumsum(x) * tf.cumsum(x, reverse=True)),
            lambda: tf.reduce_sum(tf.cumsum(x)),
        )
        return tf.cond(tf.reduce_sum(x) > 0.0, *(reversed(sides) if swapped else sides))

    graph, timeline = simulated(step)
    place = node_of(graph, "If", "StatelessIf")
    assert [graph.size_bytes[buffer] for buffer in graph.made[place]] == [4]
    assert graph.scratch_bytes[place] + 4 == 2 * ROW_BYTES
    assert timeline.step_peak_bytes // ROW_BYTES == 2
    assert timeline.held_bytes // ROW_BYTES == 1


def test_of_many_branches_the_largest_counts_unless_the_number_is_known() -> None:
    import tensorflow as tf

    def step(number: int | None) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            computed = tf.cast(tf.reduce_sum(x), tf.int32)
            return tf.raw_ops.Case(
                branch_index=computed if number is None else tf.constant(number),
                input=[x],
                Tout=[tf.float32],
                branches=[
                    concrete(lambda v: v[:1]),
                    concrete(lambda v: tf.concat([v, v, v], 0)[:1]),
                    concrete(lambda v: tf.cumsum(v)[:1]),
                ],
            )[0]

        return run

    def concrete(function: Callable[[Any], Any]) -> Any:
        signature = tf.TensorSpec((100_000,), tf.float32)
        return tf.function(function, autograph=False).get_concrete_function(signature)

    assert peak_rows(step(None)) == 3
    assert [peak_rows(step(number)) for number in (0, 1, 2, 9)] == [0, 3, 1, 1]


def test_what_a_branch_hands_on_is_held_by_who_reads_it() -> None:
    import tensorflow as tf

    def kept(x: Any) -> Any:
        y = tf.cumsum(x)
        z = tf.cond(tf.reduce_sum(x) > 0.0, lambda: y, lambda: tf.reverse(y, [0]))
        return tf.reduce_sum(tf.cumsum(z))

    graph, _ = simulated(kept)
    place = node_of(graph, "If", "StatelessIf")
    made = [graph.size_bytes[buffer] for buffer in graph.made[place]]
    # A result of its own is more to hold than what there is already.
    assert made == [ROW_BYTES]
    assert peak_rows(kept) == 2


def test_a_branch_with_the_higher_peak_counts_though_the_other_one_gives_more() -> None:
    import tensorflow as tf

    def step(x: Any) -> Any:
        y = tf.cond(
            tf.reduce_sum(x) > 0.0,
            lambda: tf.concat([x, x], 0),
            lambda: tf.cumsum(tf.concat([x, x, x, x], 0))[:1],
        )
        return tf.reduce_sum(y)

    graph, timeline = simulated(step)
    place = node_of(graph, "If", "StatelessIf")
    # That its shape is not known does not matter inside.
    assert sum(graph.size_bytes[buffer] for buffer in graph.made[place]) == 2 * ROW_BYTES
    assert graph.scratch_bytes[place] == 6 * ROW_BYTES
    assert timeline.peak_bytes >= timeline.held_bytes + 8 * ROW_BYTES


def test_a_variable_that_one_branch_updates_is_held_once() -> None:
    import tensorflow as tf

    variable = tf.Variable(tf.zeros(100_000))
    other = tf.Variable(tf.zeros(100_000))

    def update(x: Any) -> Any:
        with tf.control_dependencies([variable.assign_add(tf.sin(x)), other.assign(tf.cos(x))]):
            return tf.constant(1.0)

    def step(x: Any) -> Any:
        done = tf.cond(tf.reduce_sum(x) > 0.0, lambda: update(x), lambda: tf.constant(0.0))
        with tf.control_dependencies([done]):
            return tf.reduce_sum(variable.read_value() * other.read_value())

    graph, timeline = simulated(step)
    # The input and two variables; a new value for one, a sine for the other, and their product.
    assert timeline.held_bytes // ROW_BYTES == 3
    assert timeline.step_peak_bytes // ROW_BYTES in (1, 2)
    place = node_of(graph, "If")
    kept = [buffer for buffer in graph.made[place] if graph.size_bytes[buffer] == ROW_BYTES]
    assert len(kept) == 2
    assert all(graph.lasting[buffer] for buffer in kept)


def test_a_branch_in_a_loop_and_a_call_in_a_branch() -> None:
    import tensorflow as tf

    called = tf.function(lambda v: tf.cumsum(tf.cumsum(v)), autograph=False)

    def turn(number: Any, row: Any) -> tuple[Any, Any]:
        large = lambda: called(row) * tf.cumsum(row, reverse=True)  # noqa: E731
        return number + 1, tf.cond(tf.reduce_sum(row) > 0.0, large, lambda: tf.cumsum(row))

    def step(x: Any) -> Any:
        return tf.reduce_sum(tf.while_loop(lambda n, _: n < 5, turn, (0, x))[1])

    # The state, and in a turn two sums at a time.
    assert peak_rows(step) == 3


def test_what_a_call_does_not_read_of_its_arguments_goes_before_it() -> None:
    import tensorflow as tf

    called = tf.function(lambda v, _: tf.cumsum(tf.cumsum(v)), autograph=False)

    def step(x: Any) -> Any:
        return tf.reduce_sum(called(x, tf.sin(x)))

    assert peak_rows(step) == 2
