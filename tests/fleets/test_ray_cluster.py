"""Fleets on a Ray cluster of three nodes: machines and drivers go, a task takes too much."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.layered_graphs import layered_graph
from support.ray_cluster import ray_cluster
from support.steps import save_open_step

import memopt
from memopt.fleets.manifest import JOURNAL
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytest.importorskip("ray", reason="needs Ray: pip install memopt[fleet]")
pytestmark = [pytest.mark.slow, pytest.mark.cluster]

BUDGETS = ",".join(f"{percent}%" for percent in range(61, 101))
WIDTHS = (16, 20, 24, 28, 32)
HUNGRY_BYTES = 400 << 20
OPTIONS: dict[str, Any] = {"budgets": BUDGETS, "algorithm": "standard"}
MEMORY = "2560MiB"
"""Of a task and of two processes in which it tries parts of operations, each with TensorFlow."""
LITTLE_MEMORY = "1GiB"
"""Of a task that tries nothing."""
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with ray_cluster(3) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five small steps, which are two hundred tasks."""
    folder = tmp_path_factory.mktemp("cluster")
    for width in WIDTHS:
        step = MODELS["mlp"](batch=64, width=width, layers=2)
        memopt.save(step.function, folder / f"step{width}.pb")
    return folder


@pytest.fixture(scope="module")
def steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step*.pb"))


@pytest.fixture(scope="module")
def hungry(folder: Path) -> Path:
    """A graph with a constant so large that a task takes more than it may."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef()
    node = graph_def.node.add(name="large", op="Const")
    node.attr["dtype"].type = tf.float32.as_datatype_enum
    tensor = node.attr["value"].tensor
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.tensor_shape.dim.add(size=HUNGRY_BYTES // 4)
    tensor.tensor_content = bytes(HUNGRY_BYTES)
    path = folder / "hungry.pb"
    path.write_bytes(graph_def.SerializeToString())
    return path


def results(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.pb")}


def journal(out: Path) -> list[bytes]:
    path = out / JOURNAL
    return path.read_bytes().splitlines() if path.exists() else []


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_nothing_is_lost_and_nothing_done_twice(
    cluster: Any, steps: list[Path], tmp_path: Path
) -> None:
    """A driver is killed, a second one goes on, and loses a node of three on the way."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "memopt", "fleet", *map(str, steps), "-o", str(out)]
    command += ["--budget", BUDGETS, "--algorithm", "standard", "--on", cluster.address]
    command += ["--memory-limit", MEMORY]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(journal(out)) > 20 or first.poll() is not None)
    first.kill()
    first.wait()
    before = len(journal(out))
    assert 20 < before < 200

    def lose_a_node() -> None:
        wait_for(lambda: len(journal(out)) > before + 30)
        cluster.remove_node(min(cluster.worker_nodes, key=id), allow_graceful=False)

    killer = threading.Thread(target=lose_a_node)
    killer.start()
    done = memopt.fleet(steps, out, on=cluster.address, memory_limit=MEMORY, **OPTIONS)
    killer.join()
    assert {task.kind for task in done.failed} <= {"budget"}
    assert sum(not task.is_new for task in done.tasks) in (before, before - 1)
    assert len({task.where for task in done.tasks if task.is_new}) >= 2

    # Each task has one record, whatever happened; one that was cut off was not counted as done.
    counts = Counter(line.partition(b'"task"')[2] for line in journal(out))
    assert sum(counts.values()) - len(counts) <= 1
    alone = memopt.fleet(steps, tmp_path / "alone", jobs=1, **OPTIONS)
    assert len(alone.tasks) == 200
    assert [one.functions for one in alone.tasks] == [one.functions for one in done.tasks]
    assert [one.reason for one in alone.tasks] == [one.reason for one in done.tasks]
    assert results(out) == results(tmp_path / "alone")


def test_one_that_takes_too_much_does_not_stop_others(
    cluster: Any, steps: list[Path], hungry: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = {"budgets": "80%", "on": cluster.address, "memory_limit": LITTLE_MEMORY}
    done = memopt.fleet([hungry, *steps], out, **options)
    assert [(task.model, task.kind) for task in done.failed] == [(str(hungry), "memory")]
    assert len(results(out)) == len(steps)


def test_there_is_no_cluster(tmp_path: Path, steps: list[Path]) -> None:
    with pytest.raises(memopt.MemoptError, match="no Ray cluster can be reached"):
        memopt.fleet(steps, tmp_path / "out", on="ray://127.0.0.1:1", **OPTIONS)


def test_plans_of_a_sweep_and_of_sizes_are_made_on_a_cluster(cluster: Any, folder: Path) -> None:
    graph = layered_graph(60, seed=2)
    here, there = (memopt.sweep(graph, budgets=6, on=on) for on in (None, cluster.address))
    assert [(one.sequence, one.cost) for one in here] == [(one.sequence, one.cost) for one in there]
    path = save_open_step(folder)
    options: dict[str, Any] = {"max_overhead": "40%", "run": False, "multiple_of": 256}
    alone, together = (memopt.fit(path, "8MiB", on=on, **options) for on in (None, cluster.address))
    assert alone.size == together.size
    assert alone.graph_def == together.graph_def
