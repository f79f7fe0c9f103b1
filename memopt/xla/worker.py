"""Compiles steps in a process of its own: `python -m memopt.xla.worker DIRECTORY`."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.item import COMPILED
from memopt.runtime.function import Interface, build_plain_function
from memopt.runtime.program import Program
from memopt.runtime.settings import SETTINGS_FILE, Settings
from memopt.runtime.step_graph import as_function_graph, find_variables
from memopt.runtime.worker import main
from memopt.xla.buffer_assignment import CompiledMemory

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    Array = npt.NDArray[Any]

DUMP_FOLDER = "compiled"
"""Where XLA leaves what it has to say, beside the program."""


class Compiler:
    """Compiles forms of a step, which it never runs.

    Args:
        directory: Where the program and the settings are.
    """

    def __init__(self, directory: Path) -> None:
        self._program = Program.load(directory)
        self._dump = directory / DUMP_FOLDER
        Settings.from_json(
            json.loads((directory / SETTINGS_FILE).read_text("utf-8"))
        ).configure_tensorflow()
        self._variables = {
            variable.name: _placeholder(variable) for variable in find_variables(self._program.item)
        }

    def compile(self, path: str) -> dict[str, Any]:
        """Compile the graph in a file; what it needs, and how many seconds that took."""
        from tensorflow.core.framework.graph_pb2 import GraphDef

        graph_def = GraphDef.FromString(Path(path).read_bytes())
        function = self._function(self._program.replace_graph(graph_def))
        shutil.rmtree(self._dump, ignore_errors=True)
        started = time.monotonic()
        _compile(function, self._program.inputs.values())
        seconds = time.monotonic() - started
        memory = CompiledMemory.from_dump(self._dump)
        return {"memory": memory.to_json(), "seconds": seconds}

    def _function(self, program: Program) -> ConcreteFunction:
        item = program.item
        captures = [(f"{name}:0", value.handle) for name, value in self._variables.items()]
        interface = Interface(item.feed, captures, item.fetched_tensors, item.fetched_operations)
        return build_plain_function(as_function_graph(item), interface, {COMPILED: True})


def _placeholder(variable: Any) -> Any:
    """A variable of the step's type and shape; its value does not matter."""
    import tensorflow as tf

    spec = variable.spec
    return tf.Variable(tf.zeros(spec.shape, tf.dtypes.as_dtype(spec.dtype)))


def _compile(function: ConcreteFunction, inputs: Iterable[Array]) -> None:
    """Have XLA compile a function for the device that it would run on, and inputs of a size."""
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]
    platform = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    get_text = compiler_ir.from_concrete_function(function, specs)
    get_text(stage="optimized_hlo", platform_name=platform)


if __name__ == "__main__":
    main(Compiler)
