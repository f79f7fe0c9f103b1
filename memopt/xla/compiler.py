"""Asks XLA's compiler, in a process of its own, what a step needs."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.worker_process import WorkerProcess, ending
from memopt.xla.buffer_assignment import CompiledMemory
from memopt.xla.worker import DUMP_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.runtime.program import Program

FLAGS = "XLA_FLAGS"
_MODULE = "memopt.xla.worker"


def compiles_for_cpu() -> bool:
    """Whether XLA compiles for a CPU here: there is no GPU."""
    import tensorflow as tf

    return not tf.config.list_physical_devices("GPU")


class Compiled(NamedTuple):
    """A form of a step that was compiled.

    Attributes:
        graph_def: The step.
        memory: What it needs.
        seconds: What compiling it took.
    """

    graph_def: GraphDef
    memory: CompiledMemory
    seconds: float


class CompilerProcess(WorkerProcess):
    """Compiles forms of one step. Made by `compiler_process`."""

    def compile(self, graph_def: GraphDef) -> Compiled:
        """Compile a form of the step, as XLA does here, with this process's flags.

        Raises:
            InvalidGraphError: It cannot be made a function.
            ExecutionError: XLA does not compile it, as where a shape is not known.
        """
        path = self._directory / "form.pb"
        path.write_bytes(graph_def.SerializeToString(deterministic=True))
        answer = self.ask("compile", path=str(path))
        return Compiled(
            graph_def, CompiledMemory.from_json(answer["memory"]), float(answer["seconds"])
        )


@contextmanager
def compiler_process(program: Program) -> Iterator[CompilerProcess]:
    """Start a process that compiles forms of a program; it ends with the context.

    Raises:
        FileError: The program cannot be written to a temporary directory.
    """
    settings = Settings(mode="as-is")
    with tempfile.TemporaryDirectory(prefix="memopt-xla-") as name:
        directory = Path(name)
        program.save(directory)
        (directory / SETTINGS_FILE).write_text(json.dumps(settings.to_json()), encoding="utf-8")
        dump = f"--xla_dump_to={directory / DUMP_FOLDER} --xla_dump_hlo_as_text"
        flags = {FLAGS: f"{os.environ.get(FLAGS, '')} {dump}".strip()}
        with ending(CompilerProcess(directory, settings, _MODULE, flags)) as process:
            yield process
