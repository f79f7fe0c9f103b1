"""Cases in files: how a process tells another which kernels it is to run alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memopt.buffers.kernel_signature import Operand
from memopt.kernels.experiment import KernelCase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILE = "cases.json"


class SavedCases:
    """The cases in a directory.

    Args:
        directory: Where `save_cases` has written them.

    Attributes:
        threads: Those that share the work of one kernel.
    """

    def __init__(self, directory: Path) -> None:
        plain = json.loads((directory / _FILE).read_text("utf-8"))
        self.threads: int = plain["threads"]
        self._directory = directory
        self._cases: list[dict[str, Any]] = plain["cases"]

    def load(self, number: int) -> KernelCase:
        """A case, by its number."""
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
    """Write what `SavedCases` reads.

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
    content = json.dumps({"threads": threads, "cases": described})
    (directory / _FILE).write_text(content, encoding="utf-8")
