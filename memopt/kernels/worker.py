"""The process that runs kernels alone: `python -m memopt.kernels.worker DIRECTORY`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memopt.buffers.kernel_signature import Operand
from memopt.kernels.experiment import KernelCase
from memopt.kernels.laboratory import Laboratory
from memopt.kernels.table import MeasuredKernel
from memopt.runtime.settings import Settings
from memopt.runtime.worker import main

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_CASES_FILE = "cases.json"
_THREADS = "threads"


class KernelWorker:
    """Kernels in this process.

    Args:
        directory: Where the cases are; see `save_cases`.
    """

    def __init__(self, directory: Path) -> None:
        import tensorflow as tf

        described = json.loads((directory / _CASES_FILE).read_text("utf-8"))
        # In exact mode nothing rewrites graphs; oneDNN is a matter of the environment.
        Settings(mode="exact").configure_tensorflow()
        tf.config.threading.set_intra_op_parallelism_threads(described[_THREADS])
        self._laboratory = Laboratory()
        self._directory = directory
        self._cases = described["cases"]

    def measure(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """What cases do, as `MeasuredKernel.to_json` puts it."""
        cases = [self._load(number) for number in numbers]
        found = []
        for case, memory in zip(cases, self._laboratory.memory(cases), strict=True):
            if isinstance(memory, str):
                measured = MeasuredKernel("", failure=memory)
            else:
                measured = MeasuredKernel("", memory, self._laboratory.time_ns(case))
            found.append(measured.to_json())
        return found

    def _load(self, number: int) -> KernelCase:
        from tensorflow.core.framework import graph_pb2

        graph_def = graph_pb2.GraphDef.FromString((self._directory / f"{number}.pb").read_bytes())
        described = self._cases[number]
        operands = [
            Operand(dtype, tuple(shape), None if numbers is None else tuple(numbers), is_variable)
            for dtype, shape, numbers, is_variable in described["operands"]
        ]
        return KernelCase(
            graph_def.node[0],
            operands,
            described["result_bytes"],
            described["device"],
            graph_def.library,
        )


def save_cases(directory: Path, threads: int, cases: Sequence[KernelCase]) -> None:
    """Write what a `KernelWorker` loads.

    Args:
        directory: Where.
        threads: Those that share the work of one kernel.
        cases: The kernels, which are asked for by number.
    """
    from tensorflow.core.framework import graph_pb2

    described = []
    for number, case in enumerate(cases):
        graph_def = graph_pb2.GraphDef(node=[case.node], library=case.library)
        (directory / f"{number}.pb").write_bytes(graph_def.SerializeToString())
        described.append(
            {
                "operands": case.operands,
                "result_bytes": case.result_bytes,
                "device": case.device,
            }
        )
    content = json.dumps({_THREADS: threads, "cases": described})
    (directory / _CASES_FILE).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(KernelWorker)
