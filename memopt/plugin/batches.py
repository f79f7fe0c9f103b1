"""How many samples a batch has of an iterator whose elements leave that open."""

from __future__ import annotations

import sys
from typing import Any

_MOST_DATA_SETS = 100


def is_iterator(value: object) -> bool:
    """Whether it is an iterator of tf.data's that functions can be given."""
    return hasattr(value, "element_spec") and hasattr(value, "_dataset")


def is_epoch_iterator(value: object) -> bool:
    """Whether it is what Keras' `fit`, `evaluate` and `predict` take batches from."""
    module = sys.modules.get("keras.src.trainers.epoch_iterator")
    return module is not None and isinstance(value, module.EpochIterator)


def batch_size_of(value: Any) -> int | None:
    """The samples of a full batch for one replica; `None` where nothing tells.

    Args:
        value: An iterator: see `is_iterator` and `is_epoch_iterator`.
    """
    if is_iterator(value):
        return _of_data_set(value._dataset)  # noqa: SLF001 - it has no other way to its data set
    adapter = getattr(value, "data_adapter", None)
    size = _of_adapter(adapter)
    if size is None:
        return None
    strategy = getattr(value, "_distribute_strategy", None)
    replicas = 1 if strategy is None else strategy.num_replicas_in_sync
    return -(-size // max(replicas, 1))


def _of_adapter(adapter: Any) -> int | None:
    """The size of batches that Keras was told, or that it has seen."""
    size = getattr(adapter, "batch_size", None)
    if isinstance(size, int):
        return size
    if (first := getattr(adapter, "_first_batches", None)) is not None:
        return _first_dimension(first)
    if (data_set := getattr(adapter, "_dataset", None)) is not None:
        return _of_data_set(data_set)
    # By custom the samples of an element of who gives one after the other by number.
    size = getattr(getattr(adapter, "py_dataset", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _first_dimension(batches: Any) -> int | None:
    import tensorflow as tf

    shapes = (getattr(each, "shape", None) for each in tf.nest.flatten(list(batches)[:1]))
    return next((int(shape[0]) for shape in shapes if shape is not None and len(shape)), None)


def _of_data_set(data_set: Any) -> int | None:
    """The size of the last batches that are made on the way to a data set's elements."""
    from tensorflow.python.framework import tensor_util

    pending = [data_set]
    for each in pending:
        size = getattr(each, "_batch_size", None)
        known = None if size is None else tensor_util.constant_value(size)
        if known is not None:
            return int(known)
        if "Unbatch" not in type(each).__name__ and len(pending) < _MOST_DATA_SETS:
            pending += each._inputs()  # noqa: SLF001 - what it is made of is told nowhere else
    return None
