"""SavedModels in a file system that only TensorFlow reads: in memory, for these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.commands import assert_one_line, run

import memopt
from memopt.errors import FileError
from memopt.saved_model.remote import at_hand

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def place(network: Path) -> str:
    """The network, copied to where no path of this machine leads."""
    from tensorflow.io import gfile

    place = "ram://models/network"
    if gfile.exists(place):  # from when this process ran another test of the module
        gfile.rmtree(place)
    for file in sorted(network.rglob("*")):
        there = f"{place}/{file.relative_to(network).as_posix()}"
        if file.is_dir():
            gfile.makedirs(there)
            continue
        with gfile.GFile(there, "wb") as stream:
            stream.write(file.read_bytes())
    return place


def files_of(place: str) -> dict[str, bytes]:
    with at_hand(place) as folder:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_a_model_is_read_from_and_written_to_elsewhere(place: str, leaner: Path) -> None:
    out = "ram://models/leaner"
    ended = run("optimize", place, "-o", out, "--budget", "60%")
    assert (ended.status, ended.errors) == (0, "")
    assert out in ended.output
    written = files_of(out)
    # The same bytes as where both are folders of this machine.
    assert written == files_of(str(leaner))
    assert_one_line(
        run("optimize", place, "-o", out, "--budget", "60%"), "ram://models/leaner: exists already"
    )
    assert files_of(out) == written


def test_nothing_is_sent_where_it_fails(place: str) -> None:
    from tensorflow.io import gfile

    before = gfile.listdir("ram://models")
    ended = run("optimize", place, "-o", "ram://models/none", "--signature", "fit")
    assert_one_line(ended, "no signature 'fit'")
    assert gfile.listdir("ram://models") == before


def test_other_commands_read_it_too(place: str, network: Path) -> None:
    assert memopt.analyze_saved_model(place).functions == (
        memopt.analyze_saved_model(network).functions
    )
    assert_one_line(run("fit", place, "--memory", "4MiB"), "no open dimension")
    with pytest.raises(FileError, match=r"ram://models/none: there is no such folder"):
        memopt.verify_saved_models(place, "ram://models/none")
