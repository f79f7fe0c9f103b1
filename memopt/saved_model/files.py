"""A SavedModel's folder: read as one message, and written whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.errors import FileError
from memopt.files.file_systems import file_system_of, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

MODEL_FILE, TEXT_FILE, SPLIT_FILE = "saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"
FINGERPRINT_FILE = "fingerprint.pb"
VARIABLES_FOLDER = "variables"
_REPLACED = frozenset({MODEL_FILE, TEXT_FILE, SPLIT_FILE, FINGERPRINT_FILE})
"""Files of the folder itself that are written anew, or not at all."""
_KERAS_SUFFIXES = (".keras", ".h5", ".hdf5")


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a SavedModel's folder.

    Keras's own files count too: `read_saved_model` says what to do with them.
    """
    spelled = os.fspath(path)
    if spelled.lower().endswith(_KERAS_SUFFIXES):
        return True
    if is_remote(spelled):
        return _is_remote_saved_model(spelled.rstrip("/"))
    if not _is_folder(spelled):
        return False
    return any((Path(spelled) / name).exists() for name in (MODEL_FILE, TEXT_FILE, SPLIT_FILE))


def read_saved_model(path: str | os.PathLike[str]) -> SavedModel:
    """The message of a SavedModel, binary or text; nothing of it is loaded into TensorFlow.

    Raises:
        FileError: There is no SavedModel, it is damaged, it names files outside of its folder, or
            it is in a form that only TensorFlow's C++ loader reads.
    """
    spelled = os.fspath(path)
    folder = Path(spelled)
    if spelled.lower().endswith(_KERAS_SUFFIXES) and not _is_folder(spelled):
        raise FileError(
            f"{spelled}: is a model of Keras; write it as a SavedModel that trains with "
            "memopt.export_training_step(keras.models.load_model(PATH), FOLDER, batch_size=...)"
        )
    if not _is_folder(spelled):
        raise FileError(f"{spelled}: there is no such folder")
    message = _parse(folder)
    if not message.meta_graphs:
        raise FileError(f"{_file_of(folder)}: holds no graph")
    _check_assets(message, folder)
    _check_variables(message, folder)
    return message


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """A folder beside `target`, yet to be made, which gets its name when the block has ended well.

    Raises:
        FileError: The folder exists, or cannot be written.
    """
    _check_is_free(target)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        try:
            yield part
            _check_is_free(target)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise FileError(f"{target}: cannot be written: {error}") from error


def check_target(source: Path, target: Path) -> None:
    """Refuse a folder that a SavedModel cannot be written to, before work begins.

    Raises:
        FileError: The folder exists, has no parent, or lies within the source or around it.
    """
    here, there = source.resolve(), target.resolve()
    if there.is_relative_to(here) or here.is_relative_to(there):
        raise FileError(f"{target}: lies within {source}, or around it")
    _check_is_free(target)


@contextmanager
def written_whole(source: Path, target: Path) -> Iterator[Path]:
    """A folder to write a SavedModel into, which appears under its name whole or not at all.

    It begins as a copy of `source` without its message and fingerprint. Files of variables are
    linked, not copied, where the file system can: TensorFlow never changes them in place.

    Args:
        source: The SavedModel that everything but the message comes from.
        target: The folder that is to be; it must not exist.

    Raises:
        FileError: The folder exists, lies within the source or around it, or cannot be written;
            or the source holds a link to something outside of it, or what is no file.
    """
    check_target(source, target)
    with appearing(target) as part:
        _copy_rest(source, part)
        yield part


def write_message(message: SavedModel, source: Path, folder: Path) -> None:
    """Write a message, the same bytes for the same message, and a fingerprint where there was one.

    Args:
        message: The SavedModel.
        source: The folder of the SavedModel that it was made of.
        folder: Where it goes.

    Raises:
        FileError: It is larger than a protobuf can be.
    """
    from google.protobuf import message as protobuf

    try:
        content = message.SerializeToString(deterministic=True)
    except (protobuf.Error, ValueError) as error:
        raise FileError(f"{folder}: is larger than the 2 GiB of a protobuf") from error
    (folder / MODEL_FILE).write_bytes(content)
    if (source / FINGERPRINT_FILE).is_file():
        _write_fingerprint((source / FINGERPRINT_FILE).read_bytes(), folder)


def _is_remote_saved_model(spelled: str) -> bool:
    names = (MODEL_FILE, TEXT_FILE, SPLIT_FILE)
    try:
        with file_system_of(spelled) as files:
            return any(files.exists(f"{spelled}/{name}") for name in names)
    except (FileError, ValueError):  # what reads a graph file says what is wrong
        return False


def _is_folder(spelled: str) -> bool:
    try:
        return Path(spelled).is_dir()
    except (OSError, ValueError):  # a NUL, or a name that no file system takes
        return False


def _file_of(folder: Path) -> Path:
    """The file that holds the message, as TensorFlow's own loader looks for it."""
    found = [folder / name for name in (MODEL_FILE, TEXT_FILE) if (folder / name).is_file()]
    if found:
        return found[0]
    if (folder / SPLIT_FILE).is_file():
        raise FileError(
            f"{folder / SPLIT_FILE}: is a split SavedModel, which only TensorFlow's C++ loader "
            "reads; save the model with experimental_image_format=False"
        )
    raise FileError(
        f"{folder}: is a folder, and no SavedModel: it has neither {MODEL_FILE} nor {TEXT_FILE}"
    )


def _parse(folder: Path) -> SavedModel:
    from google.protobuf import message as protobuf
    from google.protobuf import text_format
    from tensorflow.core.protobuf import saved_model_pb2

    file = _file_of(folder)
    message: SavedModel = saved_model_pb2.SavedModel()
    try:
        content = file.read_bytes()
        if file.name == MODEL_FILE:
            message.ParseFromString(content)
        else:
            text_format.Parse(content.decode(), message)
    except OSError as error:
        raise FileError(f"{file}: cannot be read: {error}") from error
    except (protobuf.Error, text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(f"{file}: is no SavedModel, or is damaged or cut short") from error
    return message


def _check_assets(message: SavedModel, folder: Path) -> None:
    """Refuse a model whose assets TensorFlow would read from somewhere else.

    Raises:
        FileError: It is one.
    """
    for meta_graph in message.meta_graphs:
        for asset in meta_graph.asset_file_def:
            name = Path(asset.filename)
            if name.is_absolute() or ".." in name.parts:
                raise FileError(f"{folder}: names an asset outside of it, {asset.filename!r}")


def _check_variables(message: SavedModel, folder: Path) -> None:
    """Refuse a model that has variables, but not their values.

    Raises:
        FileError: It is one.
    """
    has_some = any(
        node.WhichOneof("kind") == "variable"
        for meta_graph in message.meta_graphs
        for node in meta_graph.object_graph_def.nodes
    )
    index = folder / VARIABLES_FOLDER / "variables.index"
    if has_some and not index.is_file():
        raise FileError(f"{index}: is missing, and with it the values of the model's variables")


def _check_is_free(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise FileError(f"{target}: exists already; give a folder that does not")
    if not target.parent.is_dir():
        raise FileError(f"{target}: its parent folder does not exist")


def _copy_rest(source: Path, part: Path) -> None:
    """Copy everything but the files that are written anew."""
    root = source.resolve()
    pending = [(source, part)]
    while pending:
        folder, copy = pending.pop()
        copy.mkdir()
        for entry in sorted(folder.iterdir()):
            if folder == source and entry.name in _REPLACED:
                continue
            if not entry.resolve().is_relative_to(root):
                raise FileError(f"{entry}: leads outside of {source}")
            kind = entry.stat().st_mode
            if stat.S_ISDIR(kind):
                if entry.is_symlink():
                    raise FileError(f"{entry}: is a link to a folder")
                pending.append((entry, copy / entry.name))
            elif stat.S_ISREG(kind):
                _copy_file(entry, copy / entry.name, is_linked=folder.name == VARIABLES_FOLDER)
            else:
                raise FileError(f"{entry}: is neither a file nor a folder")


def _copy_file(source: Path, target: Path, *, is_linked: bool) -> None:
    if is_linked and not source.is_symlink():
        try:
            os.link(source, target)
        except OSError:  # Another file system, or one without links: then it is a copy.
            pass
        else:
            return
    shutil.copyfile(source, target)


def _write_fingerprint(before: bytes, folder: Path) -> None:
    """What identifies the model by its content, under a name that follows from the one before.

    TensorFlow draws a new name each time, which would not be the same bytes for the same model.
    """
    from google.protobuf import message as protobuf
    from tensorflow.core.protobuf import fingerprint_pb2
    from tensorflow.python.saved_model.pywrap_saved_model import fingerprinting

    old: Any = fingerprint_pb2.FingerprintDef()
    try:
        old.ParseFromString(before)
    except protobuf.DecodeError:  # Nothing reads it but who asks for it.
        old.Clear()
    try:
        made = fingerprinting.CreateFingerprintDef(str(folder))
    except fingerprinting.FingerprintException:  # of a model without variables
        return
    new: Any = fingerprint_pb2.FingerprintDef.FromString(made)
    new.uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{old.uuid} {new.saved_model_checksum}"))
    (folder / FINGERPRINT_FILE).write_bytes(new.SerializeToString(deterministic=True))
