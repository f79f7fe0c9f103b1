"""SavedModels in file systems that only TensorFlow or fsspec reads: in memory, for these tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run

import memopt
from memopt.errors import FileError
from memopt.files.file_systems import file_system_of
from memopt.models import MODELS
from memopt.saved_model.remote import at_hand

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module", params=["ram://models", "memory://models"])
def bucket(request: pytest.FixtureRequest) -> str:
    """A folder that no path of this machine leads to."""
    place: str = request.param
    with file_system_of(place) as files:
        files.remove(place)  # from when this process ran another test of the module
        files.make_folders(place)
    return place


@pytest.fixture(scope="module")
def place(network: Path, bucket: str) -> str:
    """The network, copied there."""
    place = f"{bucket}/network"
    with file_system_of(place) as files:
        files.make_folders(place)
        for file in sorted(network.rglob("*")):
            there = f"{place}/{file.relative_to(network).as_posix()}"
            if file.is_dir():
                files.make_folders(there)
                continue
            with files.open(there, "wb") as stream:
                stream.write(file.read_bytes())
    return place


def files_of(place: str) -> dict[str, bytes]:
    with at_hand(place) as folder:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_model_is_read_from_and_written_to_elsewhere(
    bucket: str, place: str, leaner: Path
) -> None:
    out = f"{bucket}/leaner"
    ended = run("optimize", place, "-o", out, "--budget", "60%")
    assert (ended.status, ended.errors) == (0, "")
    assert out in ended.output
    written = files_of(out)
    # The same bytes as where both are folders of this machine.
    assert written == files_of(str(leaner))
    assert_one_line(run("optimize", place, "-o", out, "--budget", "60%"), f"{out}: exists already")
    assert files_of(out) == written


def test_nothing_is_sent_where_it_fails(bucket: str, place: str) -> None:
    with file_system_of(bucket) as files:
        before = files.names(bucket)
        ended = run("optimize", place, "-o", f"{bucket}/none", "--signature", "fit")
        assert_one_line(ended, "no signature 'fit'")
        assert files.names(bucket) == before


def test_other_commands_read_it_too(bucket: str, place: str, network: Path) -> None:
    assert memopt.analyze_saved_model(place).functions == (
        memopt.analyze_saved_model(network).functions
    )
    assert_one_line(run("fit", place, "--memory", "4MiB"), "no open dimension")
    with pytest.raises(FileError, match=f"{bucket}/none: there is no such folder"):
        memopt.verify_saved_models(place, f"{bucket}/none")


def test_graph_files_are_read_and_written_there_too(bucket: str) -> None:
    source, target = f"{bucket}/step.pb", f"{bucket}/leaner.pb"
    memopt.save(MODELS["mlp"](batch=64, width=16, layers=3).function, source)
    ended = run("optimize", source, "-o", target, "--level", "ordered")
    assert (ended.status, ended.errors) == (0, "")
    before = memopt.optimize(source, level="ordered").graph_def
    assert memopt.optimize(target, level="heuristics").graph_def.node[0] == before.node[0]
    with file_system_of(bucket) as files:
        assert not [name for name in files.names(bucket) if name.endswith(".part")]
    assert_one_line(run("optimize", f"{bucket}/no.pb", "-o", target), "there is no such file")
    assert_one_line(run("optimize", bucket, "-o", target), "is a folder")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere://models/step.pb", "no file system for nowhere://"),
        ("s3://models/step.pb", "no file system for s3://"),
        ("two words://models/step.pb", "is no scheme of a file system"),
    ],
)
def test_file_systems_that_nobody_knows(path: str, message: str, tmp_path: Path) -> None:
    assert_one_line(run("optimize", path, "-o", tmp_path / "out.pb"), message)
    assert_one_line(run("analyze", path), message)
    (task,) = memopt.fleet([path], tmp_path / "out", budgets="60%", jobs=1).tasks
    assert task.kind == "refused"
    assert message in task.reason


def test_what_makes_other_file_systems_reachable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(FileError, match=r"memory://.*pip install 'memopt\[remote\]'"):
        memopt.optimize("memory://models/step.pb")
