"""Models of a fleet on this machine: found, and copied here where they lie elsewhere."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from memopt.errors import FileError
from memopt.files.file_systems import file_system_of
from memopt.saved_model.files import MODEL_FILE, TEXT_FILE, is_saved_model
from memopt.saved_model.remote import copy_file, copy_folder
from memopt.workers.inputs import Input, input_at

if TYPE_CHECKING:
    from memopt.fleets.tasks import Model


def find_input(model: Model, most_bytes: int) -> Input:
    """A model, digested, and copied to this machine where it lies in another file system.

    Args:
        model: The model.
        most_bytes: What a copy may have.

    Raises:
        FileError: It is not there, cannot be read, is no model, or its copy would be too large.
    """
    if not model.is_remote:
        return _model(Path(model.path), None)
    copy = TemporaryDirectory(prefix="memopt-fleet-")
    try:
        place = _copied(model.path, Path(copy.name), most_bytes)
        return _model(place, copy)
    except BaseException:
        copy.cleanup()
        raise


def _model(path: Path, copy: TemporaryDirectory[str] | None) -> Input:
    if path.is_dir() and not is_saved_model(path):
        raise FileError(f"{path}: is a folder, and no SavedModel: it has no {MODEL_FILE}")
    return input_at(path, copy)


def _copied(source: str, folder: Path, most_bytes: int) -> Path:
    """Copy a model into a folder of this machine.

    Raises:
        FileError: See `find_input`.
    """
    with file_system_of(source) as files:
        if not files.is_folder(source):
            if not files.exists(source):
                raise FileError(f"{source}: there is no such file or folder")
            target = folder / ("graph" + PurePosixPath(source).suffix)
            copy_file(files, source, target, most_bytes, source)
            return target
        if not any(files.exists(f"{source.rstrip('/')}/{n}") for n in (MODEL_FILE, TEXT_FILE)):
            raise FileError(f"{source}: is a folder, and no SavedModel: it has no {MODEL_FILE}")
        target = folder / "model"
        copy_folder(files, source.rstrip("/"), target, most_bytes)
    return target
