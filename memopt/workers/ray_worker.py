"""What runs on a machine of a Ray cluster: an order in a watched process of its own."""

from __future__ import annotations

import os
import select
import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from memopt.workers.orders import request_of
from memopt.workers.process import PERIOD_S, Limits, TaskProcess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from memopt.workers.orders import Order


class RemoteAnswer(NamedTuple):
    """What came of a task on another machine.

    Attributes:
        answer: As `memopt.workers.worker.answer_to` gives it.
        files: Contents of what was written, by name.
        seconds: How long it took.
        where: The machine.
    """

    answer: dict[str, Any]
    files: dict[str, bytes]
    seconds: float
    where: str


class _Place:
    """What a process of Ray's keeps for the tasks that come to it, one after another."""

    def __init__(self, variables: Mapping[str, str], limits: Limits) -> None:
        self.key = (dict(variables), limits)
        self._folder = TemporaryDirectory(prefix="memopt-worker-")
        self.process = TaskProcess(Path(self._folder.name, "process"), variables, limits)
        self._digest = ""

    def model(self, digest: str, parts: Mapping[str, bytes]) -> Path:
        """A model's files as a folder, or as one file; the last one is kept."""
        path = Path(self._folder.name, "model")
        if self._digest == digest:
            return path
        self._digest = ""
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        for name, content in parts.items():
            target = path / name if name else path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        self._digest = digest
        return path

    def output(self) -> Path:
        """An empty folder for what a task writes."""
        path = Path(self._folder.name, uuid.uuid4().hex)
        path.mkdir()
        return path

    def close(self) -> None:
        """End the process and remove all files."""
        self.process.close()
        self._folder.cleanup()


_PLACES: list[_Place] = []


def do_task(
    digest: str,
    parts: Mapping[str, bytes],
    order: Order,
    versions: Mapping[str, str],
    variables: Mapping[str, str],
    limits: Limits,
) -> RemoteAnswer:
    """Do a task in a process of this machine, which is used again.

    Args:
        digest: Of the model.
        parts: The model's files, see `Input.parts`.
        order: What is to be done; the paths in it are of no meaning here.
        versions: What whoever sends it was started with.
        variables: Environment variables of the process.
        limits: What the task may take.
    """
    begun_s = time.monotonic()
    place = _place_for(variables, limits)
    folder = place.output()
    try:
        source = str(place.model(digest, parts))
        here: Order = replace(cast("Any", order), source=source, folder=str(folder))
        place.process.begin(request_of(here, versions))
        answer = None
        while answer is None:
            select.select([place.process], [], [], PERIOD_S)
            answer = place.process.poll()
        if "failed" in answer:
            # Where the model lay here says nothing to whoever named it.
            reason = answer["failed"]["reason"].replace(here.source, order.source)
            answer["failed"]["reason"] = reason
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return RemoteAnswer(answer, files, time.monotonic() - begun_s, _machine())


def _machine() -> str:
    """The machine's name, and the number of the node of Ray's, of which it may have several."""
    import ray

    return f"{os.uname().nodename}/{ray.get_runtime_context().get_node_id()[:8]}"


def _place_for(variables: Mapping[str, str], limits: Limits) -> _Place:
    if _PLACES and _PLACES[0].key == (dict(variables), limits) and not _PLACES[0].process.is_busy:
        return _PLACES[0]
    for place in _PLACES:
        place.close()
    _PLACES[:] = [_Place(variables, limits)]
    return _PLACES[0]
