"""What every test shares: a quiet TensorFlow, and the models built once."""

from __future__ import annotations

import gc
import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from support import zygote

from memopt.item import GrapplerItem
from memopt.models import MODELS, SESSION_MODELS, TINY
from memopt.runtime import worker_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# TensorFlow reads these when it is imported, which memopt does only when it needs it. oneDNN's
# kernels would make results depend on the order of execution.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")


# Graphs are many objects that live long: with Python's own limits, looking for cycles among all of
# them takes a fifth of the time that tests need.
gc.set_threshold(500_000, 10, 1_000)

_START_WORKER = worker_process.start_worker

LARGE = ("gpt", "resnet50", "densenet121", "mobilenetv2", "vgg16")
"""Half an hour, for little that bert, unet and the smaller networks of convolutions do not show."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of large models as exhaustive; skip what a release cannot."""
    for item in items:
        for mark in item.iter_markers("not_on_tensorflow"):
            _skip_on(item, *mark.args)
        if item.get_closest_marker("gpu") and not Path("/dev/nvidia0").exists():
            item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU here"))
        call = getattr(item, "callspec", None)
        if call is None:
            continue
        # Some parameters are arrays, which do not compare to one truth.
        names = [value for value in call.params.values() if isinstance(value, str)]
        if not set(names).isdisjoint(LARGE):
            item.add_marker(pytest.mark.exhaustive)


def _skip_on(item: pytest.Item, release: str, reason: str) -> None:
    """Skip a test on one release of TensorFlow, such as "2.18"."""
    if metadata.version("tensorflow").startswith(f"{release}."):
        item.add_marker(pytest.mark.skip(reason=f"in TensorFlow {release} {reason}"))


@pytest.fixture(autouse=True, scope="session")
def _forked_steps() -> Iterator[None]:
    """Steps run in processes that are forked from one that has started TensorFlow."""
    with mock.patch.object(worker_process, "start_worker", zygote.start):
        yield


@pytest.fixture
def real_processes() -> Iterator[None]:
    """Steps run in processes that are started for real, as users' are."""
    with mock.patch.object(worker_process, "start_worker", _START_WORKER):
        yield


@pytest.fixture(scope="session")
def tiny_item() -> Callable[[str], GrapplerItem]:
    """The item of a model's tiny training step; the same object for all tests."""

    @cache
    def build(name: str) -> GrapplerItem:
        if name in MODELS:
            return GrapplerItem.from_concrete_function(MODELS[name](**TINY[name]).function)
        step = SESSION_MODELS[name](**TINY[name])
        return GrapplerItem(step.graph_def, feed=step.feed, fetch=step.fetch)

    return build
