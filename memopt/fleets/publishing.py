"""What a task wrote, put into its place in the fleet's folder: whole or not at all."""

from __future__ import annotations

import shutil
import uuid
from typing import TYPE_CHECKING

from memopt.errors import FileError
from memopt.fleets.work import GRAPH_FILE, TEXT_GRAPH_FILE, put_message
from memopt.saved_model.files import FINGERPRINT_FILE, MODEL_FILE, written_whole

if TYPE_CHECKING:
    from pathlib import Path

    from memopt.fleets.work import FleetJob

WRITTEN = frozenset({MODEL_FILE, FINGERPRINT_FILE})
"""The files of a SavedModel that a task writes; others come from the model itself."""
_SUFFIXES = ("", ".pb", ".pbtxt")


def publish(job: FleetJob, folder: Path, parts: Path) -> Path:
    """Give a result its name; an older one of the same task goes.

    Args:
        job: The job, with what it wrote in its folder.
        folder: The fleet's folder.
        parts: A folder on the same file system for what is going.

    Returns:
        The file, or the folder of the SavedModel.

    Raises:
        FileError: It cannot be written.
    """
    base = folder / job.task.name
    try:
        base.parent.mkdir(exist_ok=True)
        old = [_put_aside(base.with_name(base.name + suffix), parts) for suffix in _SUFFIXES]
        target = _put_folder(job, base) if job.input.is_folder else _put_file(job, base)
        for place in filter(None, old):
            remove(place)
    except OSError as error:
        raise FileError(f"{base}: cannot be written: {error}") from error
    return target


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _put_folder(job: FleetJob, base: Path) -> Path:
    with written_whole(job.input.path, base) as part:
        put_message(job.folder, part)
    return base


def _put_file(job: FleetJob, base: Path) -> Path:
    made = next(
        path for name in (GRAPH_FILE, TEXT_GRAPH_FILE) if (path := job.folder / name).is_file()
    )
    target = base.with_name(base.name + made.suffix)
    made.replace(target)
    return target


def _put_aside(path: Path, parts: Path) -> Path | None:
    if not path.exists() and not path.is_symlink():
        return None
    aside = parts / uuid.uuid4().hex
    path.rename(aside)
    return aside
