"""A compiled Keras model as a SavedModel that trains: `memopt.export_training_step`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import OptionsError
from memopt.saved_model.files import appearing

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import keras
    import tensorflow as tf

TRAIN_SIGNATURE, RESET_SIGNATURE = "train_step", "reset_metrics"
_INPUT, _TARGET, _WEIGHT = "x", "y", "sample_weight"


def export_training_step(
    model: keras.Model,
    path: str | os.PathLike[str],
    batch_size: int | None,
    *,
    x: Any = None,
    y: Any = None,
    sample_weight: bool = False,
) -> None:
    """Write a compiled Keras model as a SavedModel whose signature "train_step" trains it.

    Each call of the signature is one step as `fit` makes it: forward, loss, gradients, an update of
    weights, of the optimizer's variables and of the metrics, whose values it gives. It takes `x`
    and `y`, and where the model has several inputs or outputs `x_NAME` and `y_NAME` for each. The
    signature "reset_metrics" begins an epoch. All variables are saved with their values; what
    `tf.saved_model.load` gives has them as `weights`, `optimizer_variables`, `metrics_variables`
    and `other_variables` (states of random generators), in the order in which the model has them.

    Args:
        model: The model, compiled; what is written goes on from its state, and the model itself
            stays as it is but for being built.
        path: The folder that is to be; it must not exist.
        batch_size: How many samples a step takes; `None` for any number.
        x: What inputs are like, where the model does not say: an array, a tensor or a
            `tf.TensorSpec`, or a list or dictionary of those; their first dimension does not count.
        y: The same of targets. Without, they are like the outputs, but for losses that are called
            sparse: then they are int32 without the last dimension.
        sample_weight: Whether a step takes a weight for each sample as well, `sample_weight`.

    Raises:
        OptionsError: It is no compiled model of Keras on TensorFlow, it trains on several devices,
            or the shape of an input is not known.
        FileError: The folder exists, or cannot be written.
    """
    import tensorflow as tf

    _check(model)
    specs: dict[str, Any] = {
        _INPUT: _specs(
            _INPUT, _like(model, "input") if x is None else x, batch_size, _names(model, "input")
        ),
        _TARGET: _specs(
            _TARGET, _targets(model) if y is None else y, batch_size, _names(model, "output")
        ),
    }
    if sample_weight:
        specs[_WEIGHT] = tf.TensorSpec((batch_size,), tf.float32, _WEIGHT)
    with appearing(Path(path)) as part:
        _save(model, specs, part)


def _check(model: keras.Model) -> None:
    """Refuse what cannot be exported.

    Raises:
        OptionsError: It cannot.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise OptionsError(f"a {type(model).__name__} is no model of Keras")
    if keras.backend.backend() != "tensorflow":
        raise OptionsError(f"Keras runs on {keras.backend.backend()}, and not on TensorFlow")
    if not model.compiled or model.optimizer is None:
        raise OptionsError(f"model {model.name!r} is not compiled: model.compile(optimizer, loss)")
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is not None and strategy.num_replicas_in_sync > 1:
        raise OptionsError(f"model {model.name!r} trains on several devices")


def _save(model: keras.Model, specs: Mapping[str, Any], part: Path) -> None:
    import tensorflow as tf

    # Metrics, losses and the optimizer make their variables when they see a batch.
    model._symbolic_build(data_batch=_example(specs))  # noqa: SLF001 - as `train_on_batch` does
    structure = dict(specs)
    flat = tf.nest.flatten(structure)

    def train_step(**tensors: tf.Tensor) -> dict[str, tf.Tensor]:
        given = tf.nest.pack_sequence_as(structure, [tensors[spec.name] for spec in flat])
        data = tuple(given[role] for role in (_INPUT, _TARGET, _WEIGHT) if role in given)
        return _flat_logs(model.train_step(data))

    def reset_metrics() -> dict[str, tf.Tensor]:
        model.reset_metrics()
        return _flat_logs(model.get_metrics_result())

    module = tf.Module()
    step = tf.function(train_step, jit_compile=bool(model.jit_compile) or None)
    traced = step.get_concrete_function(**{spec.name: spec for spec in flat})
    reset = tf.function(reset_metrics)
    _track(module, model, traced.variables)
    signatures = {TRAIN_SIGNATURE: traced, RESET_SIGNATURE: reset.get_concrete_function()}
    tf.saved_model.save(module, str(part), signatures=signatures)


def _track(module: tf.Module, model: keras.Model, used: Sequence[tf.Variable]) -> None:
    """Let a module know all variables of a model, which are saved with it."""
    roles = {
        "weights": model.weights,
        "optimizer_variables": model.optimizer.variables,
        "metrics_variables": model.metrics_variables,
    }
    known: set[int] = set()
    for role, variables in roles.items():
        values = [variable.value for variable in variables]
        known.update(map(id, values))
        setattr(module, role, values)
    module.other_variables = [value for value in used if id(value) not in known]


def _example(specs: Mapping[str, Any]) -> tuple[Any, ...]:
    """A batch of zeros, for what only looks at shapes."""
    import tensorflow as tf

    zeros = {
        role: tf.nest.map_structure(
            lambda spec: tf.zeros([spec.shape[0] or 1, *spec.shape[1:]], spec.dtype), specs[role]
        )
        for role in specs
    }
    return zeros[_INPUT], zeros[_TARGET], zeros.get(_WEIGHT)


def _flat_logs(logs: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    import tensorflow as tf

    found: dict[str, tf.Tensor] = {}
    for name, value in logs.items():
        parts = value.items() if isinstance(value, dict) else (("", value),)
        found.update((f"{name}_{part}".rstrip("_"), tf.identity(each)) for part, each in parts)
    return found


def _like(model: keras.Model, side: str) -> Any:
    """What a model's inputs or outputs are like.

    Raises:
        OptionsError: It does not say, as one that is a class of the user's does not.
    """
    tensors = getattr(model, f"{side}s", None)
    if tensors and len(tensors) == 1:
        return tensors[0]
    if tensors:
        return getattr(model, side)
    letter = _INPUT if side == "input" else _TARGET
    raise OptionsError(
        f"model {model.name!r} does not say what its {side}s are like: give {letter}=..., an array "
        "or a tf.TensorSpec"
    )


def _names(model: keras.Model, side: str) -> list[str]:
    """What a model calls its inputs or outputs, as far as it knows."""
    if side == "output":
        return list(getattr(model, "output_names", None) or ())
    return [str(tensor.name) for tensor in getattr(model, "inputs", None) or ()]


def _targets(model: keras.Model) -> Any:
    """What targets are like, by the outputs and the losses."""
    import tensorflow as tf

    losses, outputs = model.loss, _like(model, "output")
    if tf.nest.is_nested(losses):
        tf.nest.assert_same_structure(outputs, losses)
    else:
        losses = tf.nest.map_structure(lambda _: losses, outputs)
    return tf.nest.map_structure(_target, outputs, losses)


def _target(output: Any, loss: Any) -> tf.TensorSpec:
    import tensorflow as tf

    name = loss if isinstance(loss, str) else getattr(loss, "name", None) or type(loss).__name__
    if "sparse" in str(name).lower():
        return tf.TensorSpec(output.shape[:-1], tf.int32)
    return tf.TensorSpec(output.shape, output.dtype)


def _specs(role: str, like: Any, batch_size: int | None, names: Sequence[str]) -> Any:
    """Specifications of arguments, in the structure of what they are like, each with its name.

    Raises:
        OptionsError: A shape is not known, but for the batch.
    """
    import tensorflow as tf
    from tensorflow.python.util import nest

    flat = nest.flatten_with_joined_string_paths(like)
    found = []
    for number, (key, one) in enumerate(flat):
        name = role
        if len(flat) > 1:
            given = key if isinstance(like, dict) or number >= len(names) else names[number]
            name = f"{role}_{given.replace('/', '_')}"
        shape = list(one.shape[1:])
        if None in shape:
            raise OptionsError(
                f"the shape of {name} is not known, {tuple(one.shape)}: say what it is like, "
                f"{role}=tf.TensorSpec(...)"
            )
        found.append(tf.TensorSpec((batch_size, *shape), one.dtype, name))
    return tf.nest.pack_sequence_as(like, found)
