"""What `memopt doctor` finds, and what it says to do."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

import jsonschema
from support.commands import run
from test_cli_json import SCHEMA

from memopt import doctor
from memopt.doctor import Finding, diagnose

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def findings() -> dict[str, Finding]:
    return {one.name: one for one in diagnose().findings}


def test_all_is_well_here() -> None:
    import tensorflow as tf

    found = findings()
    assert diagnose().is_well
    assert found["TensorFlow"].text.startswith(f"{tf.__version__}; tested are 2.18 to 2.21")
    assert found["plugin, CPU"].text == "registered by symbol"
    assert found["oneDNN"].text.startswith("off (TF_ENABLE_ONEDNN_OPTS=0)")
    assert found["numba"].state == "good"
    assert not any(one.remedy for one in found.values() if one.state == "good")


def test_what_is_missing_comes_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"jinja2", "numba"}
    monkeypatch.setattr(
        doctor, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    found = findings()
    assert (found["memopt[report]"].state, found["memopt[report]"].remedy) == (
        "note",
        "pip install 'memopt[report]'",
    )
    assert (found["numba"].state, found["numba"].remedy) == ("bad", "pip install numba")
    ended = run("doctor")
    assert ended.status == 1
    assert "to mend it: pip install numba" in ended.output
    assert ended.output.splitlines()[-1] == "memopt cannot work here: see NO above"


def test_a_release_that_is_not_tested_is_no_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorflow.__version__", "2.30.0")
    found = findings()["TensorFlow"]
    assert found.state == "bad"
    assert found.remedy.startswith("pip install 'tensorflow")


def test_caches_are_there_with_their_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert findings()["caches"].text == f"{tmp_path / 'memopt'}: nothing there yet"
    (tmp_path / "memopt" / "plans").mkdir(parents=True)
    (tmp_path / "memopt" / "plans" / "one").write_bytes(bytes(3 << 20))
    assert "3.00 MiB (plans 3.00 MiB)" in findings()["caches"].text


def test_bad_flags_and_what_breaks_are_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no disk\nat all")

    monkeypatch.setenv("MEMOPT_FLAGS", "--buget=1")
    monkeypatch.setattr(doctor, "cache_folder", fail)
    found = findings()
    assert found["MEMOPT_FLAGS"].state == "bad"
    assert (found["caches"].state, found["caches"].text) == ("bad", "OSError: no disk at all")


def test_it_is_there_as_json() -> None:
    ended = run("doctor", "--json")
    assert (ended.status, ended.errors) == (0, "")
    plain = json.loads(ended.output)
    jsonschema.validate(plain, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/commands/doctor"}]})
    assert plain["well"]
