"""The process that runs kernels alone: `python -m memopt.kernels.worker DIRECTORY`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memopt.kernels.cases import SavedCases
from memopt.kernels.laboratory import Laboratory
from memopt.kernels.table import MeasuredKernel
from memopt.runtime.settings import Settings
from memopt.runtime.worker import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class KernelWorker:
    """Kernels in this process.

    Args:
        directory: Where the cases are; see `save_cases`.
    """

    def __init__(self, directory: Path) -> None:
        import tensorflow as tf

        self._cases = SavedCases(directory)
        # In exact mode nothing rewrites graphs; oneDNN is a matter of the environment.
        Settings(mode="exact").configure_tensorflow()
        tf.config.threading.set_intra_op_parallelism_threads(self._cases.threads)
        self._laboratory = Laboratory()

    def measure(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """What cases do, as `MeasuredKernel.to_json` puts it."""
        cases = [self._cases.load(number) for number in numbers]
        found = []
        for case, memory in zip(cases, self._laboratory.memory(cases), strict=True):
            if isinstance(memory, str):
                measured = MeasuredKernel("", failure=memory)
            else:
                measured = MeasuredKernel("", memory, self._laboratory.time_ns(case))
            found.append(measured.to_json())
        return found


if __name__ == "__main__":
    main(KernelWorker)
