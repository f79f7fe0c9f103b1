"""Devices from options, messages and this machine, and clusters of them."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memopt.cluster
from memopt.cluster import LOCAL_TASK, Device, VirtualCluster, full_name
from memopt.errors import OptionsError

GPU = f"{LOCAL_TASK}/device:GPU:0"
CPU = f"{LOCAL_TASK}/device:CPU:0"
SETTINGS = "bandwidth=900GB/s,link=25GB/s,latency=10us,frequency=1.41GHz,cores=108,architecture=8.0"


def test_a_device_described_by_its_type_has_typical_rates() -> None:
    assert Device.parse("GPU:0=GPU:16GiB") == Device(
        GPU, "GPU", 16 * 2**30, 1500, 60, 500_000_000, "7", 16_000_000_000, 0
    )
    assert Device.parse("CPU:0=CPU") == Device(CPU, "CPU", 0, 2000, 4, 32_000_000)
    assert Device.parse("TPU:3=TPU:8GB") == Device("TPU:3", "TPU", 8 * 10**9)


def test_settings_replace_what_is_typical() -> None:
    assert Device.parse(f"GPU:0=GPU:40GiB,{SETTINGS}") == Device(
        GPU, "GPU", 40 * 2**30, 1410, 108, 900_000_000, "8.0", 25_000_000_000, 10_000
    )


def test_spaces_and_case_of_a_type_do_not_matter() -> None:
    spaced = Device.parse(" GPU:0=gpu:16 GiB , link = 25 GB/s ")
    assert spaced == Device.parse("GPU:0=GPU:16GiB,link=25GB/s")


def test_settings_need_no_memory() -> None:
    device = Device.parse("GPU:0=GPU,cores=108")
    assert (device.memory_bytes, device.num_cores) == (0, 108)


@pytest.mark.parametrize(
    ("duration", "latency_ns"), [("0ns", 0), ("15ns", 15), ("1.5us", 1500), ("2ms", 2 * 10**6)]
)
def test_durations_have_units(duration: str, latency_ns: int) -> None:
    assert Device.parse(f"GPU:0=GPU,latency={duration}").link_latency_ns == latency_ns


@pytest.mark.parametrize(
    "text",
    ["", "GPU:0", "=GPU", "GPU:0=", "GPU:0=GPU:", "GPU:0=:4GiB", "GPU=GPU", "a=b=c", "0=GPU",
     "/job:worker=GPU", "GPU:x=GPU", "GPU:0=GPU 4GiB", ",cores=4", "GPU:0,cores=4"],
)  # fmt: skip
def test_what_is_no_device_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Device.parse(text)
    assert str(caught.value).startswith(f"{text!r} is no device; write NAME=TYPE:MEMORY, such as ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("GPU:0=GPU:much", "'much' is no number of bytes, such as 512MiB"),
        ("GPU:0=GPU:0", "'0' is no number of bytes, such as 512MiB"),
        ("GPU:0=GPU,", "there is no setting ''; the settings: bandwidth, link, latency, frequency"),
        ("GPU:0=GPU,speed=4", "there is no setting 'speed'; the settings: bandwidth, link"),
        ("GPU:0=GPU,cores=4,cores=5", "cores is set twice"),
        ("GPU:0=GPU,cores=-4", "cores: '-4' is no whole number"),
        ("GPU:0=GPU,cores=²", "cores: '²' is no whole number"),
        (f"GPU:0=GPU,cores={2**63}", "cores: 9223372036854775808 is too large"),
        ("GPU:0=GPU,link=25GB", "link: '25GB' is no number of bytes per second, such as 900GB/s"),
        ("GPU:0=GPU,link=0/s", "link: '0' is no number of bytes"),
        ("GPU:0=GPU,bandwidth=fast/s", "bandwidth: 'fast' is no number of bytes"),
        ("GPU:0=GPU,latency=10", "latency: '10' is no duration, such as 10us"),
        ("GPU:0=GPU,latency=10GHz", "latency: '10GHz' is no duration"),
        ("GPU:0=GPU,frequency=1", "frequency: '1' is no frequency, such as 1500MHz"),
        ("GPU:0=GPU,architecture=", "architecture: it is empty; give a compute capability"),
    ],
)
def test_what_is_wrong_with_a_device_is_said(text: str, reason: str) -> None:
    with pytest.raises(OptionsError) as caught:
        Device.parse(text)
    assert str(caught.value).startswith(f"device {text!r}: {reason}")


@given(st.text(max_size=40))
def test_any_text_is_a_device_or_refused(text: str) -> None:
    try:
        device = Device.parse(text)
    except OptionsError:
        return
    assert device.name.startswith("/job:")


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("GPU:0", GPU),
        ("gpu:0", GPU),
        ("/gpu:0", GPU),
        ("/device:GPU:0", GPU),
        ("device:GPU:0", GPU),
        ("/task:0/gpu:0", GPU),
        ("/job:worker/gpu:1", "/job:worker/replica:0/task:0/device:GPU:1"),
        ("/job:worker/task:2/device:XLA_GPU:1", "/job:worker/replica:0/task:2/device:XLA_GPU:1"),
        (GPU, GPU),
        # An older spelling that says all stays, as a cluster's own.
        (f"{LOCAL_TASK}/gpu:0", f"{LOCAL_TASK}/gpu:0"),
        ("/job:worker/task:1", "/job:worker/task:1"),
        ("garbage", "garbage"),
    ],
)
def test_a_short_name_is_completed(name: str, full: str) -> None:
    assert full_name(name) == full
    assert full_name(full) == full


def test_a_link_must_be_possible() -> None:
    with pytest.raises(OptionsError, match="a transfer takes time"):
        Device("GPU:0", "GPU", link_bytes_per_s=0)
    with pytest.raises(OptionsError, match="a transfer takes time"):
        Device("GPU:0", "GPU", link_latency_ns=-1)


def test_a_device_comes_back_from_its_message_less_the_link() -> None:
    device = Device.parse("GPU:1=GPU:40GiB,cores=108,architecture=8.0")
    assert Device.from_proto(device.to_proto()) == device
    linked = Device.parse("GPU:1=GPU:40GiB,link=1GB/s")
    assert Device.from_proto(linked.to_proto()).link_bytes_per_s == 16_000_000_000


def test_a_cluster_takes_devices_options_and_messages() -> None:
    gpu, cpu = Device.parse("GPU:0=GPU:16GiB"), Device.parse("CPU:0=CPU:4GiB")
    assert list(VirtualCluster([gpu, cpu])) == [gpu, cpu]
    assert list(VirtualCluster(["CPU:0=CPU:4GiB", gpu.to_proto()])) == [cpu, gpu]
    properties = {GPU: gpu.to_proto().properties, "CPU:0": cpu.to_proto().properties}
    assert list(VirtualCluster(properties)) == [gpu, cpu]
    assert list(VirtualCluster("GPU:0=GPU:16GiB")) == [gpu]


def test_devices_are_found_by_full_and_short_names() -> None:
    cluster = VirtualCluster(["GPU:0=GPU", f"{LOCAL_TASK}/cpu:0=CPU"])
    assert len(cluster) == 2
    for name in (GPU, "GPU:0", "/gpu:0"):
        assert cluster[name] is cluster.find(name) is next(iter(cluster))
    assert cluster[f"{LOCAL_TASK}/cpu:0"].type == "CPU"
    assert cluster.find("GPU:1") is None
    with pytest.raises(KeyError):
        cluster["GPU:1"]


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ([], "a cluster has at least one device"),
        ({}, "a cluster has at least one device"),
        (["GPU:0=GPU", "/gpu:0=GPU:4GiB"], f"two devices are called '{GPU}'"),
        (["GPU:0=GPU", "nonsense"], "'nonsense' is no device"),
    ],
)
def test_what_is_no_cluster_is_refused(devices: Any, reason: str) -> None:
    with pytest.raises(OptionsError, match=f"^{reason}"):
        VirtualCluster(devices)


def test_this_machine_is_as_grappler_sees_it() -> None:
    from tensorflow.python.grappler import cluster as native_cluster

    ours = VirtualCluster.of_this_machine()
    native = native_cluster.Cluster()
    found = {named.name: named.properties for named in native.ListDevices()}
    native.Shutdown()
    assert [device.name for device in ours] == sorted(
        name for name, properties in found.items() if properties.type
    )
    for device in ours:
        properties = found[device.name]
        assert device.frequency_mhz == properties.frequency
        assert device.num_cores == properties.num_cores
        assert device.bandwidth_kb_per_s == properties.bandwidth
        if device.type != "CPU":
            assert device.memory_bytes == properties.memory_size
    assert 0 < ours[CPU].memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_a_limit_of_the_process_group_is_this_machines_memory(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"none": "max\n", "some": "123456\n", "large": f"{2**62}\n"}
    for name, text in limits.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in (*limits, "missing")]
    monkeypatch.setattr(memopt.cluster, "_MEMORY_LIMIT_FILES", files)
    assert VirtualCluster.of_this_machine()[CPU].memory_bytes == 123456


def test_a_cluster_of_tensorflow_in_use_is_said_to_be_in_the_way() -> None:
    from tensorflow.python.grappler import cluster as native_cluster

    native = native_cluster.Cluster()
    try:
        with pytest.raises(OptionsError, match=r"cannot list the devices: .* more than one"):
            VirtualCluster.of_this_machine()
    finally:
        native.Shutdown()
    assert VirtualCluster.of_this_machine().find("CPU:0") is not None
