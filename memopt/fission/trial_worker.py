"""The process that tries kernels: `python -m memopt.fission.trial_worker THREADS`."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memopt.fission.trial_records import Trial, TrialInput

_DRAWS = 2
_FIRST_TO_GO = Path("/proc/self/oom_score_adj")


def serve(threads: int) -> None:
    """Say when TensorFlow is there; answer questions on the standard input until that ends."""
    # What libraries print must not get into the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):
        # Where memory runs out, this process goes and not the one that waits for it.
        _FIRST_TO_GO.write_text("1000", encoding="ascii")
    import tensorflow  # noqa: F401, ICN001 - its start is no trial

    _answer(answers, True)
    while True:
        try:
            trial: Trial = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own parent
        except EOFError:
            return
        _answer(answers, is_equal(trial, threads))


def _answer(answers: IO[bytes], what: bool) -> None:
    pickle.dump(what, answers)
    answers.flush()


def is_equal(trial: Trial, threads: int) -> bool:
    """Whether a kernel gives the same bits in parts as at once, for numbers drawn at random."""
    import tensorflow as tf

    try:
        return all(
            whole.tobytes() == together.tobytes() for whole, together in results(trial, threads)
        )
    except (tf.errors.OpError, ValueError, TypeError, MemoryError):
        return False


def results(trial: Trial, threads: int) -> Iterator[tuple[Any, Any]]:
    """For each draw and output what is computed at once, and in parts put together or otherwise."""
    import numpy as np

    rng = np.random.default_rng(0)
    whole = sum(trial.shares)
    sessions = {units: _session(graph, threads) for units, graph in trial.graphs}
    other = _session(trial.otherwise, threads) if trial.otherwise else None
    for draw in range(_DRAWS):
        feeds = [_draw(rng, given, draw) for given in trial.inputs]
        expected = _run(sessions[whole], trial, feeds, 0, whole, whole)
        if other is not None:
            yield from zip(expected, _run(other, trial, feeds, 0, whole, whole), strict=True)
            continue
        found = []
        start = 0
        for share in trial.shares:
            found.append(_run(sessions[share], trial, feeds, start, share, whole))
            start += share
        for number, output in enumerate(expected):
            yield output, np.concatenate([part[number] for part in found])


def _session(serialized: bytes, threads: int) -> Any:
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(serialized)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf.compat.v1.Session(graph=graph, config=config)


def _draw(rng: Any, given: TrialInput, draw: int) -> Any:
    """Numbers of a type: around 0 first, then positive ones, since logarithms want those."""
    import numpy as np
    import tensorflow as tf

    dtype = tf.as_dtype(given.dtype)
    if dtype.is_bool:
        return rng.integers(0, 2, given.shape).astype(bool)
    if dtype.is_integer:
        return rng.integers(0, 2, given.shape).astype(dtype.as_numpy_dtype)
    if draw:
        numbers = rng.random(given.shape, np.float32) + np.float32(0.01)
    else:
        numbers = rng.standard_normal(given.shape, np.float32)
    return numbers.astype(dtype.as_numpy_dtype)


def _run(session: Any, trial: Trial, feeds: list[Any], start: int, share: int, whole: int) -> Any:
    given = {}
    for each, numbers in zip(trial.inputs, feeds, strict=True):
        rows = numbers.shape[0] // whole if each.is_split else 0
        part = numbers[start * rows : (start + share) * rows] if each.is_split else numbers
        given[f"{each.name}:0"] = part
    return session.run(list(trial.outputs), given)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
