"""Keras models exported as SavedModels that train: as `fit` does, rewritten or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf
from support.commands import assert_one_line, run

import memopt
from memopt.errors import FileError, OptionsError
from memopt.saved_model.analysis import analyze_saved_model

if TYPE_CHECKING:
    from pathlib import Path

    import keras

WIDTH, CLASSES, BATCH = 32, 4, 512


def make_model(*, compiled: bool = True) -> keras.Model:
    """A network with statistics and chance, the same each time."""
    import keras

    keras.utils.set_random_seed(3)
    layers: list[Any] = [keras.Input((WIDTH,))]
    for _ in range(2):
        layers += [keras.layers.Dense(64, activation="relu"), keras.layers.BatchNormalization()]
        layers += [keras.layers.Dropout(0.1)]
    # The name of an application: no identifier of Python.
    model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)], name="net_1.00")
    if compiled:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    return model


def make_data(batch: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(11)
    samples = random.standard_normal((batch, WIDTH)).astype(np.float32)
    return samples, random.integers(0, CLASSES, batch).astype(np.int32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "model"
    memopt.export_training_step(make_model(), path, batch_size=BATCH)
    return path


@pytest.fixture(scope="module")
def leaner(exported: Path) -> Path:
    out = exported.with_name("leaner")
    ended = run("optimize", exported, "-o", out, "--budget", "60%")
    assert ended.status == 0
    assert "train_step (signature train_step): rewritten" in ended.output
    assert "1 of 2 functions rewritten" in ended.output
    return out


@pytest.mark.slow
@pytest.mark.parametrize("which", ["exported", "leaner"])
def test_it_trains_as_keras_does(which: str, request: pytest.FixtureRequest) -> None:
    import tensorflow as tf

    model, (x, y) = make_model(), make_data()
    loaded = tf.saved_model.load(str(request.getfixturevalue(which)))
    step, reset = loaded.signatures["train_step"], loaded.signatures["reset_metrics"]
    for _ in range(3):
        reset()
        logs = step(x=tf.constant(x), y=tf.constant(y))
        expected = model.train_on_batch(x, y, return_dict=True)
        assert {name: value.numpy() for name, value in logs.items()} == expected
    for role in ("weights", "optimizer_variables", "metrics_variables"):
        owner = model.optimizer if role == "optimizer_variables" else model
        name = "variables" if role == "optimizer_variables" else role
        kept = [variable.numpy() for variable in getattr(owner, name)]
        assert len(kept) == len(getattr(loaded, role))
        for mine, theirs in zip(getattr(loaded, role), kept, strict=True):
            assert mine.numpy().tobytes() == np.asarray(theirs).tobytes(), mine.name


@pytest.mark.slow
def test_metrics_add_up_until_they_are_reset(leaner: Path) -> None:
    import tensorflow as tf

    model, (x, y) = make_model(), make_data(3 * BATCH)
    loaded = tf.saved_model.load(str(leaner))
    step = loaded.signatures["train_step"]
    for start in range(0, 3 * BATCH, BATCH):
        part = slice(start, start + BATCH)
        logs = step(x=tf.constant(x[part]), y=tf.constant(y[part]))
    history = model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0).history
    for name, value in logs.items():
        assert history[name] == [value.numpy()]


def test_training_goes_on_from_a_checkpoint(leaner: Path, tmp_path: Path) -> None:
    """The variables of a loaded model are saved and restored like any others."""
    import tensorflow as tf

    x, y = map(tf.constant, make_data())
    first, second = (tf.saved_model.load(str(leaner)) for _ in range(2))
    first.signatures["train_step"](x=x, y=y)
    path = tf.train.Checkpoint(model=first).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=second).read(path).assert_existing_objects_matched()
    losses = [one.signatures["train_step"](x=x, y=y)["loss"].numpy() for one in (first, second)]
    assert losses[0] == losses[1]


def test_several_inputs_and_weights_have_names(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    left, right = keras.Input((3,), name="left"), keras.Input((3,), name="right")
    model = keras.Model([left, right], keras.layers.Dense(2)(keras.layers.add([left, right])))
    model.compile("sgd", "mse")
    before = model.get_weights()
    memopt.export_training_step(model, tmp_path / "model", batch_size=None, sample_weight=True)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))
    step = tf.saved_model.load(str(tmp_path / "model")).signatures["train_step"]
    assert set(step.structured_input_signature[1]) == {"x_left", "x_right", "y", "sample_weight"}
    ones = {"x_left": tf.ones((5, 3)), "x_right": tf.ones((5, 3)), "y": tf.ones((5, 2))}
    logs = step(**ones, sample_weight=tf.ones(5))
    expected = model.train_on_batch([np.ones((5, 3))] * 2, np.ones((5, 2)), np.ones(5))
    assert logs["loss"].numpy() == np.float32(expected)


def test_what_cannot_be_exported_is_told(exported: Path, tmp_path: Path) -> None:
    import keras

    with pytest.raises(OptionsError, match=r"is not compiled: model.compile\(optimizer, loss\)"):
        memopt.export_training_step(make_model(compiled=False), tmp_path / "out", batch_size=1)
    with pytest.raises(OptionsError, match="a list is no model of Keras"):
        memopt.export_training_step([], tmp_path / "out", batch_size=1)
    with pytest.raises(FileError, match="exists already"):
        memopt.export_training_step(make_model(), exported, batch_size=1)
    open_model = keras.Sequential([keras.Input((None, 3)), keras.layers.Dense(3)])
    open_model.compile("sgd", "mse")
    with pytest.raises(OptionsError, match=r"shape of x is not known, \(None, None, 3\)"):
        memopt.export_training_step(open_model, tmp_path / "out", batch_size=1)
    own = type("Own", (keras.Model,), {"call": lambda _, x: x})()
    own.compile("sgd", "mse")
    with pytest.raises(OptionsError, match="does not say what its inputs are like: give x="):
        memopt.export_training_step(own, tmp_path / "out", batch_size=1)
    assert not list(tmp_path.iterdir())


def test_a_model_without_gradients_is_told_how_to_be_rewritten(tmp_path: Path) -> None:
    make_model().export(str(tmp_path / "served"), verbose=False)
    ended = run("optimize", tmp_path / "served", "-o", tmp_path / "out")
    assert_one_line(ended, "computes no gradients .*give --all")


def make_model_with_captures() -> keras.Model:
    """A custom gradient, as that of silu, captures tensors of the step: loaders look for them."""
    import keras

    keras.utils.set_random_seed(3)
    dense = [keras.layers.Dense(64, activation="silu") for _ in range(4)]
    model = keras.Sequential([keras.Input((WIDTH,), name="x"), *dense, keras.layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    return model


@pytest.mark.parametrize("after_grappler", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_step_whose_tensors_others_capture_trains_on(
    tmp_path: Path, after_grappler: bool
) -> None:
    model, samples = tmp_path / "model", make_data()
    memopt.export_training_step(make_model_with_captures(), model, batch_size=BATCH)
    out = tmp_path / "out"
    report = memopt.optimize_saved_model(model, out, budget="80%", after_grappler=after_grappler)
    step = next(one for one in report.functions if one.called_as == "train_step")
    assert step.outcome == "rewritten"
    assert step.keeps_budget
    before, after = (tf.saved_model.load(str(path)) for path in (model, out))
    for _ in range(3):
        logs = [one.signatures["train_step"](x=samples[0], y=samples[1]) for one in (before, after)]
        assert logs[0]["loss"].numpy() == logs[1]["loss"].numpy()
    # What holds the captured tensors is none of the model's work.
    known = {one.called_as for one in analyze_saved_model(out).functions}
    assert known == {one.called_as for one in report.functions}


def test_a_function_that_programs_differentiate_keeps_what_is_captured_of_it(
    tmp_path: Path,
) -> None:
    make_model_with_captures().export(str(tmp_path / "served"), verbose=False)
    with pytest.raises(OptionsError, match="capture tensors inside of it"):
        memopt.optimize_saved_model(
            tmp_path / "served", tmp_path / "out", every=True, shapes={"x": (BATCH, WIDTH)}
        )
    assert not (tmp_path / "out").exists()
