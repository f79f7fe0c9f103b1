"""Trains in ways that have to be set up before TensorFlow starts, with and without memopt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.programs.pairs import train_pairs
from support.programs.steps import Net, fit, make_data, make_keras

if TYPE_CHECKING:
    from collections.abc import Callable


def main(*names: str) -> dict[str, Any]:
    """For each way: what came of it without and with memopt, and the records."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return train_pairs({name: WAYS[name] for name in names})


def mirrored() -> str:
    """Two replicas, each on a CPU of its own."""
    import tensorflow as tf

    return _fit(make_keras(scope=tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()))


def mixed_precision() -> str:
    """Half of the bits in between."""
    return _fit_with("mixed_bfloat16")


def scaled_loss() -> str:
    """Sixteen bits, and a loss that is scaled as long as nothing overflows."""
    return _fit_with("mixed_float16")


def accumulated() -> str:
    """Gradients of two steps are one update."""
    import keras

    return _fit(make_keras(optimizer=keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)))


def pipeline() -> str:
    """Data that come from a pipeline with threads of its own."""
    import tensorflow as tf

    samples = tf.data.Dataset.from_tensor_slices(make_data()).shuffle(32, seed=1)
    return fit(make_keras(), samples.map(lambda x, y: (x * 2.0, y)).batch(8).prefetch(2))


def asynchronous() -> str:
    """Calls return before they are done."""
    import tensorflow as tf

    net = Net()
    tf.config.experimental.set_synchronous_execution(False)
    try:
        return net.outcome(tf.function(net.train))
    finally:
        tf.config.experimental.set_synchronous_execution(True)


def eager() -> str:
    """Nothing is compiled, so there is nothing to rewrite."""
    net = Net()
    return net.outcome(net.train)


def _fit(model: Any) -> str:
    return fit(model, *make_data(), batch_size=8, epochs=2, shuffle=False)


def _fit_with(policy: str) -> str:
    import keras

    keras.config.set_dtype_policy(policy)
    try:
        return _fit(make_keras())
    finally:
        keras.config.set_dtype_policy("float32")


WAYS: dict[str, Callable[[], str]] = {
    "mirrored": mirrored,
    "mixed_precision": mixed_precision,
    "scaled_loss": scaled_loss,
    "accumulated": accumulated,
    "pipeline": pipeline,
    "asynchronous": asynchronous,
    "eager": eager,
}
