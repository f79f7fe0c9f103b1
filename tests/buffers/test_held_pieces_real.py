"""What is held before a step, piece by piece, beside TensorFlow's own log of allocations."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from memopt.item import GrapplerItem
from memopt.models import MODELS, TINY
from memopt.optimizer import MemoryOptimizer
from memopt.runtime.entry import as_program
from memopt.runtime.process import step_process
from memopt.runtime.settings import Settings

_CALL = re.compile(r"\S+ \S+ +(\d+) \S+ (?:(AllocateRaw) \S+ +(\d+) 0x|DeallocateRaw \S+ +(\d+))")


class LoggedSettings(Settings):
    """Settings under which TensorFlow tells every allocation in its log."""

    def environment(self) -> dict[str, str]:
        """Environment variables of the process."""
        logged = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "bfc_allocator=3"}
        return super().environment() | logged


def held_pieces(log: Path) -> Counter[int]:
    """Sizes of what is there when the first step begins: when another thread comes in."""
    sizes: Counter[int] = Counter()
    first_thread = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        call = _CALL.match(line)
        if call is None:
            continue
        first_thread = first_thread or call[1]
        if call[1] != first_thread:
            break
        if call[2]:
            sizes[int(call[3])] += 1
        else:
            sizes[int(call[4])] -= 1
    return +sizes


@pytest.mark.parametrize(
    "model", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "mlp")), "unet"]
)
def test_what_is_held_is_predicted_piece_by_piece(model: str) -> None:
    """One small piece more or less, and what comes after lies elsewhere."""
    step = MODELS[model](**TINY[model])
    item = GrapplerItem.from_concrete_function(step.function)
    result = MemoryOptimizer("ordered").optimize(None, item)
    assert result.report.runtime is not None
    buffer_graph = result.report.runtime.after.buffer_graph
    sized = zip(buffer_graph.makers, buffer_graph.size_bytes, strict=True)
    held = Counter(size_bytes for maker, size_bytes in sized if maker < 0 and size_bytes)
    program = as_program(step.function, step.inputs).replace_graph(result.graph_def)
    with step_process(program, LoggedSettings()) as process:
        process.run(1)
        assert held_pieces(Path(process._log.name)) == held
