"""The registry: light to import, complete, and equal in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from memopt.models import MODELS, SESSION_MODELS, TINY

DIGESTS = """
import hashlib, sys
from memopt.models import MODELS, SESSION_MODELS, TINY

for name in sys.argv[1:]:
    if name in SESSION_MODELS:
        step = SESSION_MODELS[name](**TINY[name])
        graph_def, arrays = step.graph_def, step.inputs
    else:
        step = MODELS[name](**TINY[name])
        graph_def = step.function.graph.as_graph_def()
        arrays = (*step.inputs, *(variable.numpy() for variable in step.variables))
    parts = (graph_def.SerializeToString(deterministic=True), *(a.tobytes() for a in arrays))
    print(name, hashlib.sha256(b"".join(parts)).hexdigest())
"""


def run_python(*arguments: str, hash_seed: int = 0) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", *arguments]
    finished = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return finished.stdout


def test_import_is_light() -> None:
    loaded = run_python("import sys, memopt.models; print(*sys.modules)").split()
    assert "memopt.models.bert" in loaded
    assert not {"tensorflow", "keras"} & set(loaded)


def test_every_model_has_tiny_sizes() -> None:
    assert list(TINY) == [*MODELS, *SESSION_MODELS]


@pytest.mark.slow
def test_two_processes_build_the_same() -> None:
    names = ["lstm", "bert", "convnet_v1"]

    def run(hash_seed: int) -> str:
        return run_python(DIGESTS, *names, hash_seed=hash_seed)

    with ThreadPoolExecutor() as pool:
        one, other = pool.map(run, (1, 2))
    assert [line.split()[0] for line in one.splitlines()] == names
    assert other == one
