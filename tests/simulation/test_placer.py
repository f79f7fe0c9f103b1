"""Placement: the device that TensorFlow's simulation runs a node on, for every device string."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from support.native_simulation import simulate_native

from memopt.cluster import LOCAL_TASK, VirtualCluster
from memopt.simulation.placer import VirtualPlacer

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKER = "/job:worker/replica:0/task:"
PS = "/job:ps/replica:0/task:0"

CLUSTERS = {
    "GPU and CPU": ["GPU:0=GPU", "CPU:0=CPU"],
    "two GPUs": ["GPU:1=GPU", "GPU:0=GPU", "CPU:0=CPU"],
    "GPUs that start at 1": ["GPU:2=GPU", "GPU:1=GPU", "CPU:0=CPU"],
    "one CPU": ["CPU:0=CPU"],
    "two CPUs": ["CPU:1=CPU", "CPU:0=CPU"],
    "older spelling": [f"{LOCAL_TASK}/gpu:0=GPU", f"{LOCAL_TASK}/cpu:0=CPU"],
    "one job": [f"{WORKER}0/gpu:0=GPU", f"{WORKER}1/device:GPU:0=GPU", f"{WORKER}0/cpu:0=CPU"],
    "jobs": [f"{WORKER}0/gpu:0=GPU", f"{WORKER}1/device:GPU:1=GPU", f"{PS}/device:CPU:0=CPU"],
    "jobs and local": [f"{WORKER}1/gpu:0=GPU", f"{PS}/cpu:0=CPU", "CPU:0=CPU"],
    "one TPU": ["TPU:0=TPU"],
    "TPUs": ["TPU:0=TPU", "TPU:1=TPU", "TPU:2=TPU"],
    "XLA": ["XLA_GPU:0=XLA_GPU", "XLA_CPU:0=XLA_CPU", "GPU:0=GPU", "CPU:0=CPU"],
    "one device twice": [f"{LOCAL_TASK}/gpu:0=GPU", "GPU:0=GPU", "CPU:0=CPU"],
}

SPELLINGS = [
    *("", "/", "//", " ", "garbage", "garbage:0", "/garbage:0", "GPU", "cpu", "gpus", "GPU:0"),
    *("gpu:1", "CPU:0", "cpu:1", "XLA_GPU:0", "TPU:1", "gpu:", "gpu:x", "gpu:0/", "gpu:0x"),
    *("device:GPU:0", "/gpu:0", "/GPU:1", "/gPu:0", "/CPU:0", "/cpu:1", "/gpu:00", "/gpu:9"),
    *("/gpu:", "/gpu:*", "/gpu:0x", "/gpu:0/", "/GPU:0\n", " /gpu:0", "/tpu:1", "/xla_gpu:0"),
    *("/device:GPU:0", "/device:gpu:1", "/Device:GPU:0", "/device:GPU", "/device:GPU:*"),
    *("/device:*", "/device:*:1", "/device:CPU:*", "/device:GPU:0:1", "/device:GPU:"),
    *("/device:XLA_GPU:0", "/device:XLA_CPU:0", "/device:TPU:2", "/device:GPÜ:0", "/device:1:0"),
    *("/job:localhost", "/job:*", "/job:", "/job:1x/gpu:0", "/job:worker-1/gpu:0", "/job:ps"),
    *("/job:worker/gpu:0", "/job:WORKER/gpu:0", "/job:worker/task:1/device:GPU:0", "/job:ps/cpu:0"),
    *("/job:*/replica:*/task:*/device:GPU:*", "/job:*/device:CPU:*", "/task:1", "/task:x"),
    *("/replica:1/gpu:0", "/job:localhost/task:0/gpu:0", "/gpu:0/cpu:0", "/cpu:0/gpu:0"),
    *("/device:GPU:1/device:*", "/device:GPU:1/device:*:*", "/task:1/job:worker/gpu:1"),
    *(f"{LOCAL_TASK}/cpu:0", f"{LOCAL_TASK}/gpu:0", f"{LOCAL_TASK}/device:GPU:1"),
    *(f"{LOCAL_TASK}/device:CPU:0", f"{WORKER}1/device:GPU:0", f"{WORKER}1/gpu:1", PS),
    *("/gpu:18446744073709551616", "/gpu:4294967297", "/gpu:" + "0" * 5000, "/gpu:" + "1" * 5000),
]


def placed_natively(cluster: VirtualCluster, strings: Sequence[str]) -> list[str]:
    graph_def = tf.compat.v1.GraphDef()
    names = [f"node{number}" for number in range(len(strings))]
    for name, string in zip(names, strings, strict=True):
        graph_def.node.add(name=name, op="NoOp", device=string)
    simulation = simulate_native(graph_def, cluster, names)
    return [simulation.nodes[name].device for name in names]


@pytest.mark.parametrize("devices", CLUSTERS.values(), ids=CLUSTERS)
def test_every_spelling_means_the_device_that_tensorflow_takes(devices: list[str]) -> None:
    cluster = VirtualCluster(devices)
    strings = [*SPELLINGS, *(device.name for device in cluster)]
    placer = VirtualPlacer(cluster)
    ours = {string: placer.place(string) for string in strings}
    native = dict(zip(strings, placed_natively(cluster, strings), strict=True))
    assert ours == native
    assert len(set(native.values())) == len(cluster) or devices == CLUSTERS["one device twice"]


def test_many_jobs_share_nodes_as_in_tensorflow() -> None:
    """The default among equals depends on a hash table; 40 clusters of up to 70 devices."""
    source = random.Random(2)
    defaults = set()
    for size in (2, 3, 5, 8, 13, 14, 30, 70) * 5:
        names = [random_name(source) for _ in range(size)]
        cluster = VirtualCluster(f"{name}=GPU" for name in dict.fromkeys(names))
        placer = VirtualPlacer(cluster)
        strings = ["", *dict.fromkeys(names), "/gpu:0", "/job:worker/gpu:1", "/job:ps/task:1/cpu:2"]
        ours = [placer.place(string) for string in strings]
        assert ours == placed_natively(cluster, strings)
        defaults.add(list(dict.fromkeys(names)).index(placer.default))
    assert len(defaults) > 8


def random_name(source: random.Random) -> str:
    job = source.choice(["worker", "ps", "chief", "a"]) + source.choice(["", "1", "22"])
    kind = source.choice(["GPU", "CPU", "TPU"])
    return (
        f"/job:{job}/replica:{source.randint(0, 1)}/task:{source.randint(0, 3)}"
        f"/device:{kind}:{source.randint(0, 2)}"
    )


@given(st.text(alphabet="/:*job:task:devicegpucpu01 \n", max_size=40))
def test_any_text_is_placed_on_a_device_of_the_cluster(text: str) -> None:
    cluster = VirtualCluster(["GPU:0=GPU", "CPU:0=CPU"])
    assert cluster.find(VirtualPlacer(cluster).place(text)) is not None


def test_a_string_is_read_once() -> None:
    placer = VirtualPlacer(VirtualCluster(["GPU:0=GPU", "CPU:0=CPU"]))
    assert placer.place("/cpu:0") is placer.place("/cpu:0")
    assert placer.place("") is placer.default
