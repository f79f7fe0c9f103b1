"""Folders that are no sound SavedModel: one line that names the file, and nothing is written."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from support.commands import assert_one_line, run
from support.saved_models import read_message
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

from memopt.errors import FileError, MemoptError
from memopt.saved_model import rewriting
from memopt.saved_model.entry import optimize_saved_model
from memopt.saved_model.functions import find_functions, signatures_in_graph

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAMAGED = 40


class Bad(NamedTuple):
    """How a sound model is spoilt, and what is said of it."""

    spoil: Callable[[Path], object]
    message: str


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _rename_asset(folder: Path, name: str) -> None:
    message = read_message(folder)
    message.meta_graphs[0].asset_file_def[0].filename = name
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())


def _as_text(folder: Path, text: bytes) -> int:
    (folder / "saved_model.pb").unlink()
    return (folder / "saved_model.pbtxt").write_bytes(text)


BAD = {
    "no message": Bad(
        lambda p: (p / "saved_model.pb").unlink(),
        "model: is a folder; give the graph file",
    ),
    "empty": Bad(
        lambda p: (p / "saved_model.pb").write_bytes(b""), r"saved_model.pb: holds no gra"
    ),
    "cut short": Bad(
        lambda p: os.truncate(p / "saved_model.pb", 2000), r"model/saved_model.pb: is no SavedModel"
    ),
    "another file": Bad(
        lambda p: (p / "saved_model.pb").write_text("<html>" * 99),
        r"saved_model.pb: is no SavedMod",
    ),
    "bad text": Bad(lambda p: _as_text(p, b"meta_graphs {"), "saved_model.pbtxt: is no SavedModel"),
    "text that is none": Bad(
        lambda p: _as_text(p, b"\xff\xfe"),
        "saved_model.pbtxt: is no SavedModel",
    ),
    "split": Bad(
        lambda p: (p / "saved_model.pb").rename(p / "saved_model.cpb"),
        "saved_model.cpb: is a split SavedModel",
    ),
    "no variables": Bad(
        lambda p: shutil.rmtree(p / "variables"), "variables/variables.index: is missing"
    ),
    "an asset above": Bad(lambda p: _rename_asset(p, "../secret"), "names an asset outside of it"),
    "an asset elsewhere": Bad(lambda p: _rename_asset(p, "/etc/passwd"), "an asset outside of it"),
    "a link out of it": Bad(
        lambda p: (p / "assets" / "link").symlink_to("/etc/passwd"), "assets/link: leads outside of"
    ),
    "a folder out of it": Bad(
        lambda p: (p / "extra").symlink_to("/etc"), "extra: leads outside of"
    ),
    "a dangling link": Bad(
        lambda p: (p / "extra").symlink_to("none"), "cannot be written: .*extra"
    ),
    "a pipe": Bad(lambda p: os.mkfifo(p / "pipe"), "pipe: is neither a file nor a folder"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_model_is_told_in_one_line(kind: str, network: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(network, model)
    BAD[kind].spoil(model)
    ended = run("optimize", model, "-o", tmp_path / "out", "--budget", "60%")
    assert_one_line(ended, BAD[kind].message)
    assert names_in(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "model.keras",
            "is a model of Keras; write it as a SavedModel that trains with memopt.exp",
        ),
        ("model.h5", "is a model of Keras"),
    ],
)
@pytest.mark.parametrize("command", ["optimize", "analyze", "verify"])
def test_files_of_keras_are_told_what_to_do_with(
    command: str, name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"PK")
    others: dict[str, list[object]] = {"optimize": ["-o", tmp_path / "out"], "verify": ["other"]}
    further = others.get(command, [])
    assert_one_line(run(command, tmp_path / name, *further), message)
    assert names_in(tmp_path) == [name]


def test_a_folder_without_a_message_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is a folder, and no SavedModel: it has neither"):
        optimize_saved_model(tmp_path, tmp_path.with_name("out"))


def test_a_folder_that_exists_is_not_written_over(network: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    ended = run("optimize", network, "-o", tmp_path / "out", "--budget", "60%")
    assert_one_line(ended, "out: exists already; give a folder that does not")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


@pytest.mark.parametrize("place", ["", "inside", ".."])
def test_the_output_is_neither_within_nor_around(place: str, network: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(network, model)
    before = sorted(tmp_path.rglob("*"))
    assert_one_line(run("optimize", model, "-o", model / place), "exists already|lies within")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_parent_that_is_not_there_is_told(network: Path, tmp_path: Path) -> None:
    ended = run("optimize", network, "-o", tmp_path / "none" / "out")
    assert_one_line(ended, "out: its parent folder does not exist")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError])
def test_whatever_ends_it_leaves_nothing_behind(
    error: type[BaseException], network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(rewriting, "write_message", fail)
    with pytest.raises(FileError if error is OSError else error):
        optimize_saved_model(network, tmp_path / "out", budget="60%")
    assert names_in(tmp_path) == []


def test_links_within_a_model_become_files(network: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(network, model)
    (model / "assets" / "again.txt").symlink_to("network_labels.txt")
    optimize_saved_model(model, tmp_path / "out", budget="60%")
    copy = tmp_path / "out" / "assets" / "again.txt"
    assert not copy.is_symlink()
    assert copy.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("seed", range(DAMAGED))
def test_damaged_messages_are_refused_or_rewritten(
    seed: int, network: Path, tmp_path: Path
) -> None:
    """Whatever the damage: an error of memopt's own and nothing written, or a whole folder."""
    chance = random.Random(seed)
    model = tmp_path / "model"
    shutil.copytree(network, model)
    content = bytearray((model / "saved_model.pb").read_bytes())
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(content))
        content[place] = chance.randrange(256)
    (model / "saved_model.pb").write_bytes(bytes(content))
    with suppress(MemoptError):
        optimize_saved_model(model, tmp_path / "out", level="ordered", only_lower=False)
    if (tmp_path / "out").exists():
        read_message(tmp_path / "out")
    assert not [name for name in names_in(tmp_path) if name.startswith(".")]


def _spoil_function(folder: Path, change: str) -> None:
    message = read_message(folder)
    library = message.meta_graphs[0].graph_def.library
    train = next(one for one in library.function if "inference_train" in one.signature.name)
    if change == "op":
        train.node_def[3].op = "NoSuchOp"
    elif change == "input":
        train.node_def[0].input[0] = "nowhere:output:0"
    elif change == "result":
        train.ret[train.signature.output_arg[0].name] = "nowhere:output:0"
    elif change == "callee":
        train.node_def[0].attr["f"].func.name = "nowhere"
    elif change == "recursion":
        train.node_def[0].attr["f"].func.name = train.signature.name
    (folder / "saved_model.pb").write_bytes(message.SerializeToString())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("op", "train: .*does not know the op 'NoSuchOp'"),
        ("input", "train: .*'nowhere:output:0' does not exist in the body"),
        ("result", "train: .*'nowhere:output:0' does not exist in the body"),
        ("callee", "train: TensorFlow refuses the function: .*nowhere"),
        ("recursion", "train: "),
    ],
)
def test_a_broken_function_is_left_alone_with_the_reason(
    change: str, message: str, network: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(network, model)
    _spoil_function(model, change)
    ended = run("optimize", model, "-o", tmp_path / "out", "--budget", "60%")
    assert_one_line(ended, message)
    assert names_in(tmp_path) == ["model"]


def test_names_that_are_no_texts_do_no_harm(network: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(network, model)
    message = read_message(model)
    for function in message.meta_graphs[0].graph_def.library.function:
        if "backward_function_name" in function.attr:
            function.attr["backward_function_name"].s = b"\xec\xff"
            break
    else:
        raise AssertionError("no function has a gradient stored beside it")
    (model / "saved_model.pb").write_bytes(message.SerializeToString())
    report = optimize_saved_model(model, tmp_path / "out", budget="60%")
    assert len(report.rewritten) == 1


def test_a_model_of_tensorflow_1_that_does_not_train_is_told(tmp_path: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        given = v1.placeholder(tf.float32, (4, 4), name="x")
        variable = v1.get_variable("w", (4, 4), use_resource=True)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(
            session, str(tmp_path / "model"), {"x": given}, {"y": given @ variable}
        )
    ended = run("optimize", tmp_path / "model", "-o", tmp_path / "out", "--budget", "60%")
    assert_one_line(ended, "no function is rewritten: serving_default: computes no gradients")


def test_nodes_that_pass_on_to_each_other_end_nothing_in_a_loop() -> None:
    meta_graph = MetaGraphDef()
    meta_graph.graph_def.node.add(name="a", op="Identity", input=["b"])
    meta_graph.graph_def.node.add(name="b", op="Identity", input=["a"])
    meta_graph.signature_def["serving_default"].outputs["y"].name = "a:0"
    assert signatures_in_graph(meta_graph) == ["serving_default"]
    assert not find_functions(meta_graph)
