"""Ways to train a Keras model step by step: `train_on_batch`, and `fit` as people call it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_models import KerasTraining

_MEASURED_STEPS = 3
_FULL_BATCHES = 2
_PART = 3
"""The last batch of `fit` is this part of a full one."""


class Batches:
    """One batch again and again, each time by `train_on_batch`.

    Args:
        training: The model, and the batch.

    Attributes:
        losses: Of all steps so far.
    """

    def __init__(self, training: KerasTraining) -> None:
        import tensorflow as tf

        self.losses: list[float] = []
        self._model = training.model
        # Whoever makes batches holds them, not the step: they are there before it begins.
        self._batch = tf.nest.map_structure(
            tf.convert_to_tensor, (training.features, training.labels)
        )

    def step(self) -> float:
        """Train, and return the seconds that it took."""
        started = time.perf_counter()
        told = self._model.train_on_batch(*self._batch, return_dict=True)
        self.losses.append(float(told["loss"]))
        return time.perf_counter() - started

    def marked_steps(self) -> None:
        """Some steps, marked for who records what the allocator does."""
        from memopt.runtime.trace import step_marker

        for number in range(_MEASURED_STEPS):
            with step_marker(number):
                self.step()


class Fit:
    """Calls of `fit`, of two full batches and a smaller one each: the graph leaves the batch open.

    Args:
        training: The model, and one batch, of which the samples are.

    Attributes:
        losses: Of all calls so far.
    """

    def __init__(self, training: KerasTraining) -> None:
        import keras
        import numpy as np
        import tensorflow as tf

        def repeated(batch: Any) -> Any:
            return np.concatenate([*[batch] * _FULL_BATCHES, batch[: max(1, len(batch) // _PART)]])

        self.losses: list[float] = []
        self._model = training.model
        self._batch_size = len(tf.nest.flatten(training.labels)[0])
        self._data = tf.nest.map_structure(repeated, (training.features, training.labels))
        self._seconds: list[float] = []
        self._is_marked = False
        self._marker: Any = None
        self._began_s = 0.0
        self._callback = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: self._begin(batch),  # noqa: ARG005
            on_train_batch_end=lambda batch, logs: self._end(),  # noqa: ARG005
        )

    def step(self) -> float:
        """Train, and return the seconds that the quickest full batch took."""
        self._seconds.clear()
        fitted = self._model.fit(
            *self._data,
            batch_size=self._batch_size,
            shuffle=False,
            verbose=0,
            callbacks=[self._callback],
        )
        self.losses.append(float(fitted.history["loss"][0]))
        return min(self._seconds[:_FULL_BATCHES])

    def marked_steps(self) -> None:
        """One call of which each batch is marked, for who records what the allocator does."""
        self._is_marked = True
        self.step()
        self._is_marked = False

    def _begin(self, number: int) -> None:
        from memopt.runtime.trace import step_marker

        if self._is_marked:
            self._marker = step_marker(number)
            self._marker.__enter__()
        self._began_s = time.perf_counter()

    def _end(self) -> None:
        self._seconds.append(time.perf_counter() - self._began_s)
        if self._is_marked:
            self._marker.__exit__(None, None, None)
