"""`memopt.keras.MemoryReport` tells the memory of each epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.child import run_child, start_child

import memopt
from memopt.plugin.records import GraphRecord, Records

if TYPE_CHECKING:
    from pathlib import Path


def test_the_record_of_the_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records()
    monkeypatch.setattr("memopt.keras.RECORDS", records)
    step = GraphRecord("f", "function", "rewritten", "", peak_after_bytes=9, budget_bytes=8)
    records.add(replace(step, peak_after_bytes=99))
    report = memopt.keras.MemoryReport()
    report.on_train_begin()
    records.add(step)
    records.add(replace(step, peak_after_bytes=3))
    logs: dict[str, Any] = {}
    report.on_epoch_end(0, logs)
    assert logs == {"peak_memory_bytes": 9, "peak_memory_measured": 0, "budget_kept": 0}


@pytest.mark.slow
def test_what_is_predicted_is_told_where_nobody_counts() -> None:
    found: dict[str, Any] = run_child("keras_memory")
    (predicted,) = found["predicted"]
    for logs in found["logs"]:
        assert logs["peak_memory_bytes"] == [predicted] * 2
        assert logs["peak_memory_measured"] == [0.0] * 2
        assert logs["budget_kept"] == [1.0] * 2
    assert found["measured"] == [0]
    assert found["text"].count("predicted") == 4


@pytest.mark.slow
def test_what_the_allocator_counts_is_told_where_it_does() -> None:
    found = start_child("keras_memory", TF_CPU_ALLOCATOR_USE_BFC="1")
    (predicted,), (measured,) = found["predicted"], found["measured"]
    peaks = [peak for logs in found["logs"] for peak in logs["peak_memory_bytes"]]
    assert max(peaks) == measured
    # Chunks, the data and what Keras itself holds come on top.
    assert 0.9 * predicted < measured < 1.6 * predicted
    for logs in found["logs"]:
        assert logs["peak_memory_measured"] == [1.0] * 2
        assert logs["budget_kept"] == [1.0] * 2


@pytest.mark.slow
def test_tensorboard_shows_it(tmp_path: Path) -> None:
    """Read back from the files as TensorBoard itself reads them."""
    pytest.importorskip("tensorboard")
    found = run_child("keras_tensorboard", str(tmp_path))
    train = found["shown"]["train"]
    for key in ("peak_memory_bytes", "peak_memory_measured", "budget_kept"):
        assert train[f"epoch_{key}"] == found["history"][key]
        assert train[f"epoch_{key}"] == [epoch[key] for epoch in found["epochs"]]
    assert train["epoch_peak_memory_bytes"][0] > 0
    assert not any("memory" in tag for tag in found["shown"]["validation"])


def test_without_memopt_nothing_is_said() -> None:
    report = memopt.keras.MemoryReport(budget="1GiB")
    logs: dict[str, Any] = {"loss": 1.0}
    report.on_train_begin()
    report.on_epoch_begin(0)
    report.on_epoch_end(0, logs)
    assert logs == {"loss": 1.0}
    assert "nothing known" in repr(report)
    assert "<table>" in report._repr_html_()


@pytest.mark.parametrize("budget", ["60%", "much"])
def test_a_budget_is_bytes(budget: str) -> None:
    with pytest.raises(memopt.OptionsError):
        memopt.keras.MemoryReport(budget=budget)


def test_the_highest_that_was_measured_stays_with_a_record() -> None:
    records = Records()
    record = GraphRecord("f", "function", "rewritten", "", peak_before_bytes=2, peak_after_bytes=1)
    records.add(record)
    first = records.note_measured(record, 5)
    assert records.note_measured(first, 4) is first
    (kept,) = records.last()
    assert kept.measured_peak_bytes == 5
    assert "5 B measured" in repr(kept)
