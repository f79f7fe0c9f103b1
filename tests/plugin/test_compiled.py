"""Steps part of which XLA compiles: what it gives is known, and what it needs once measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.child import run_child

if TYPE_CHECKING:
    from pathlib import Path


def train(
    options: str, folder: Path, channels: int = 64, read: int = 1, what: str = "convolution"
) -> dict[str, Any]:
    environment = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "XDG_CACHE_HOME": str(folder)}
    return run_child("compiled", options, str(channels), str(read), what, **environment)


@pytest.mark.parametrize("read", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rule_predicts_what_convolutions_of_groups_need(read: int, tmp_path: Path) -> None:
    """And what they hand on to their gradients is not there twice."""
    off = train("", tmp_path, read=read)
    ruled = train('{"only_lower": false}', tmp_path, read=read)
    assert ruled["losses"] == off["losses"]
    assert ruled["weights"] == off["weights"]
    (held, before, after, reason), *_ = ruled["records"]
    assert "no rule knows" not in reason
    assert before - held == pytest.approx(off["step_peak_bytes"], rel=0.001)
    assert after - held == pytest.approx(ruled["step_peak_bytes"], rel=0.001)
    image_bytes = 4 * 8 * 8 * 64 * 4
    assert ruled["step_peak_bytes"] <= off["step_peak_bytes"] - image_bytes


@pytest.mark.slow
def test_measured_kernels_predict_what_xla_needs(tmp_path: Path) -> None:
    off = train("", tmp_path, what="layer")
    ruled = train('{"only_lower": false}', tmp_path, what="layer")
    measured = train('{"only_lower": false, "kernels": "measured"}', tmp_path, what="layer")
    for trained in (ruled, measured):
        assert trained["losses"] == off["losses"]
        assert trained["weights"] == off["weights"]
    (held, before, _, reason), *_ = ruled["records"]
    # All sizes are known, but what a compiled layer needs besides is not.
    assert before - held < 0.8 * off["step_peak_bytes"]
    assert "PartitionedCall may need memory that no rule knows" in reason
    (held, before, after, reason), *_ = measured["records"]
    assert "no rule knows" not in reason
    assert before - held == pytest.approx(off["step_peak_bytes"], rel=0.02)
    assert after - held == pytest.approx(measured["step_peak_bytes"], rel=0.02)
    assert measured["step_peak_bytes"] <= off["step_peak_bytes"]
    assert (tmp_path / "memopt" / "kernels.json").is_file()


@pytest.mark.slow
def test_gradients_of_depthwise_filters_are_taken_in_parts(tmp_path: Path) -> None:
    """In a step that XLA does not compile, of convolutions that it does."""
    channels = 256
    off = train("", tmp_path, channels)
    split = train("{}", tmp_path, channels)
    assert split["losses"] == off["losses"]
    assert split["weights"] == off["weights"]
    full_bytes = 7 * 7 * channels * channels * 4
    assert split["step_peak_bytes"] < off["step_peak_bytes"] - full_bytes
    assert any("by channels" in reason for *_, reason in split["records"])


def train_compiled(options: str, how: str) -> dict[str, Any]:
    return run_child("compiled_training", options, how)


@pytest.mark.slow
def test_keras_steps_that_xla_compiles_keep_a_budget() -> None:
    off = train_compiled("", "keras")
    kept = train_compiled("{}", "keras")
    within = train_compiled('{"budget": "40%"}', "keras")
    assert off["records"] == []
    for trained in (kept, within):
        assert trained["losses"] == off["losses"]
        assert trained["weights"] == off["weights"]
        ((outcome, held, before, after, budget),) = trained["records"]
        assert outcome == "rewritten"
        assert after - held < 0.7 * (before - held)
        if budget:
            assert after <= budget


@pytest.mark.slow
def test_a_last_batch_that_is_not_full_leaves_the_budget_kept() -> None:
    """The trace is for batches of any size then, and the call alone tells how large they are."""
    off = train_compiled("", "smaller")
    within = train_compiled('{"budget": "40%"}', "smaller")
    assert within["losses"] == off["losses"]
    assert within["weights"] == off["weights"]
    ((outcome, held, before, after, budget),) = within["records"]
    assert outcome == "rewritten"
    assert after <= budget
    assert after - held < 0.5 * (before - held)


@pytest.mark.slow
def test_a_decorated_function_that_xla_compiles_keeps_its_budget() -> None:
    trained = train_compiled("", "decorated")
    ((outcome, _, before, after, budget),) = trained["records"]
    assert outcome == "rewritten"
    assert after <= budget < before
    again = train_compiled('{"level": "heuristics"}', "keras")
    assert again["records"] == []
