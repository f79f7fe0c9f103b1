"""How large batches are, from what an iterator is made of; what comes of graphs that come again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from memopt.graph.graphdef import to_graph_def
from memopt.graph.text import parse_graph
from memopt.plugin.batches import batch_size_of, is_epoch_iterator, is_iterator
from memopt.plugin.records import GraphRecord
from memopt.plugin.repeated import Repeated, Rewriting, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

NUMBERS = tf.data.Dataset.range(10)
DATA_SETS: dict[str, tuple[Callable[[], Any], int | None]] = {
    "batches": (lambda: NUMBERS.batch(4), 4),
    "changed after": (lambda: NUMBERS.batch(4).map(lambda x: x + 1).prefetch(2).repeat(), 4),
    "shuffled before": (lambda: NUMBERS.shuffle(10).batch(3).take(2), 3),
    "padded": (lambda: NUMBERS.map(tf.range).padded_batch(5), 5),
    "of batches": (lambda: NUMBERS.batch(2).unbatch().batch(6), 6),
    "side by side": (lambda: tf.data.Dataset.zip((NUMBERS.batch(4), NUMBERS.batch(4))), 4),
    "no batches": (lambda: NUMBERS, None),
    "no batches any more": (lambda: NUMBERS.batch(2).unbatch(), None),
    "from Python": (
        lambda: tf.data.Dataset.from_generator(
            lambda: iter([np.zeros(3)]), output_signature=tf.TensorSpec((None,))
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_batch_of_a_data_set(name: str) -> None:
    build, size = DATA_SETS[name]
    iterator = iter(build())
    assert is_iterator(iterator)
    assert not is_epoch_iterator(iterator)
    assert batch_size_of(iterator) == size


def test_the_batch_of_what_keras_takes_batches_from() -> None:
    import keras
    from keras.src.trainers.epoch_iterator import EpochIterator

    features = np.zeros((10, 3), np.float32)

    class Elements(keras.utils.PyDataset):  # type: ignore[misc]
        batch_size = 7

        def __len__(self) -> int:
            return 2

        def __getitem__(self, _: int) -> tuple[Any, Any]:
            return features[:7], features[:7]

    def elements() -> Any:
        yield features[:6], features[:6]

    sources = {
        4: EpochIterator(features, features, batch_size=4),
        5: EpochIterator(tf.data.Dataset.from_tensor_slices((features, features)).batch(5)),
        6: EpochIterator(elements()),
        7: EpochIterator(Elements()),
    }
    for size, source in sources.items():
        assert is_epoch_iterator(source)
        assert batch_size_of(source) == size


def record(name: str) -> GraphRecord:
    return GraphRecord(name, "function", "rewritten", "")


def test_what_was_not_used_for_longest_is_forgotten_first() -> None:
    repeated = Repeated(most_bytes=20)
    for name in ("first", "second"):
        repeated.keep(name, Rewriting(b"12345678", record(name)))
    assert repeated.find("first") is not None
    repeated.keep("third", Rewriting(b"12345678", record("third")))
    assert repeated.find("second") is None
    assert repeated.find("first") == Rewriting(b"12345678", record("first"))
    repeated.clear()
    assert repeated.find("third") is None


def test_the_same_graph_and_facts_have_the_same_key() -> None:
    text = "x = Placeholder() {dtype=float}\ny = Neg(x) {T=float}\n"
    graph_def, again = (to_graph_def(parse_graph(text)) for _ in range(2))
    assert key_of(graph_def, (1, "a")) == key_of(again, (1, "a"))
    assert key_of(graph_def, (1, "a")) != key_of(again, (1, "b"))
    again.node[1].op = "Abs"
    assert key_of(graph_def, (1, "a")) != key_of(again, (1, "a"))
