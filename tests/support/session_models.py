"""SavedModels of TensorFlow 1: a main graph with a train op, and programs that load them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 48
BATCH = 256
LAYERS = 6
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"


def save_session_model(
    path: Path, batch: int | None = BATCH, *, resources: bool = True, signature: bool = True
) -> Path:
    """Write a network whose training step stands in the main graph.

    Args:
        path: The folder that is to be.
        batch: How many samples; `None` for any number.
        resources: Whether variables are resources, and not references as in old programs.
        signature: Whether the signature "train" runs the train op, which is in the collection
            `train_op` anyway.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(3)
        x = v1.placeholder(tf.float32, (batch, WIDTH), "x")
        y = v1.placeholder(tf.float32, (batch, WIDTH), "y")
        hidden = x
        for number in range(LAYERS):
            weight = v1.get_variable(
                f"weight_{number}",
                (WIDTH, WIDTH),
                initializer=v1.random_normal_initializer(stddev=0.2, seed=number),
                use_resource=resources,
            )
            hidden = tf.nn.gelu(hidden @ weight)
        predicted = tf.identity(hidden, "predicted")
        loss = tf.reduce_mean(tf.square(predicted - y), name="loss")
        train_op = v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
        with tf.control_dependencies([train_op]):
            trained = tf.identity(loss, "trained")
        session.run(v1.global_variables_initializer())
        signature_def = v1.saved_model.signature_def_utils.predict_signature_def
        signatures = {"predict": signature_def({"x": x}, {"predicted": predicted})}
        if signature:
            signatures["train"] = signature_def({"x": x, "y": y}, {"loss": trained})
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["train"], signatures)
        builder.save()
    return path


def train_in_session(path: Path, steps: int = 3, batch: int = BATCH) -> dict[str, list[str]]:
    """Load a model in a fresh process, as a program of TensorFlow 1 does, and use it.

    Returns:
        The bits of losses, of a prediction, of the loss asked for alone, and of all variables.
    """
    command = [sys.executable, __file__, str(path), str(steps), str(batch)]
    # What tests set is not what a program has: TensorFlow's defaults count.
    environment = {key: value for key, value in os.environ.items() if key != ONEDNN}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def use(path: Path | str, steps: int = 3, batch: int = BATCH) -> dict[str, Any]:
    """The same in this process."""
    import numpy as np
    import tensorflow as tf

    v1 = tf.compat.v1
    random = np.random.default_rng(7)
    given = {f"{name}:0": random.standard_normal((batch, WIDTH), np.float32) for name in "xy"}
    with v1.Graph().as_default(), v1.Session() as session:
        v1.saved_model.loader.load(session, ["train"], str(path))
        names = [f"{one.name}" for one in v1.global_variables()]
        train_op = v1.get_collection("train_op")[0]

        def bits(tensor: str, feed: dict[str, Any]) -> str:
            return str(session.run(tensor, feed).tobytes().hex())

        def variables() -> list[str]:
            values = session.run(v1.global_variables())
            return [value.tobytes().hex() for value in values]

        found: dict[str, Any] = {"losses": [], "names": names}
        for _ in range(steps):
            _, loss = session.run([train_op, "loss:0"], given)
            found["losses"].append(loss.tobytes().hex())
        found["variables"] = variables()
        # What is asked for alone neither trains nor wants what it does not need.
        found["predicted"] = [bits("predicted:0", {"x:0": given["x:0"]})]
        found["loss"] = [bits("loss:0", given)]
        found["afterwards"] = variables()
        return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(use(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
