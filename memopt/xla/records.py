"""What XLA's compiler said of a step before on this machine, and which forms had the same bits."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memopt.files.kept_files import KeptFiles, machine_facts
from memopt.xla.buffer_assignment import CompiledMemory
from memopt.xla.compiler import FLAGS, Compiled, compiler_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensorflow.core.framework.graph_pb2 import GraphDef

    from memopt.runtime.program import Program
    from memopt.xla.compiler import CompilerProcess

_KEPT = KeptFiles("xla", most_bytes=16 << 20)


class RecordingCompiler:
    """Compiles forms of one step; of those that were compiled before it knows what was said.

    Made by `recording_compiler`. Kept are facts, under a digest of all that they follow from, and
    no graphs: what is compiled is made anew each time.
    """

    def __init__(self, program: Program, stack: ExitStack, *, remembers: bool) -> None:
        self._program = program
        self._remembers = remembers
        self._stack = stack
        self._process: CompilerProcess | None = None
        self._after_first: Callable[[], object] | None = None
        self._facts = _facts_of(program) if remembers else b""

    def compile(self, graph_def: GraphDef) -> Compiled:
        """What a form of the step needs; see `CompilerProcess.compile`."""
        if not self._remembers:
            return self._compile(graph_def)
        digest = self._digest(graph_def)
        known = decoded(_KEPT.find(digest), graph_def)
        if known is not None:
            return known
        compiled = self._compile(graph_def)
        plain = {"memory": compiled.memory.to_json(), "seconds": compiled.seconds}
        _KEPT.keep(digest, json.dumps(plain).encode())
        return compiled

    def after_first(self, what: Callable[[], object]) -> None:
        """Have something done once a form was compiled, and not remembered."""
        self._after_first = what

    def recall_equal(self, graph_def: GraphDef) -> bool | None:
        """Whether a form computed the same bits as the program; `None` if that is not known."""
        if not self._remembers:
            return None
        return _KEPT.recall_equal(self._digest(self._program.item.graph_def, graph_def))

    def keep_equal(self, graph_def: GraphDef, *, is_equal: bool) -> None:
        """Remember whether a form computed the same bits as the program."""
        if self._remembers:
            digest = self._digest(self._program.item.graph_def, graph_def)
            _KEPT.keep_equal(digest, is_equal=is_equal)

    def _compile(self, graph_def: GraphDef) -> Compiled:
        if self._process is None:
            self._process = self._stack.enter_context(compiler_process(self._program))
        compiled = self._process.compile(graph_def)
        if self._after_first is not None:
            self._after_first()
            self._after_first = None
        return compiled

    def _digest(self, *graph_defs: GraphDef) -> str:
        digest = hashlib.sha256(self._facts)
        for graph_def in graph_defs:
            digest.update(hashlib.sha256(graph_def.SerializeToString(deterministic=True)).digest())
        return digest.hexdigest()


@contextmanager
def recording_compiler(program: Program, *, remembers: bool) -> Iterator[RecordingCompiler]:
    """What compiles forms of a program, in a process that is started when it is needed.

    Args:
        program: The step and its values, of which only types and shapes count.
        remembers: Whether anything is kept, and looked up.
    """
    with ExitStack() as stack:
        yield RecordingCompiler(program, stack, remembers=remembers)


def decoded(data: bytes | None, graph_def: GraphDef) -> Compiled | None:
    """What was kept of a form; `None` for nothing, or where that is damaged."""
    if data is None:
        return None
    try:
        plain = json.loads(data)
        memory, seconds = CompiledMemory.from_json(plain["memory"]), float(plain["seconds"])
    except (ValueError, KeyError, TypeError):
        return None
    return Compiled(graph_def, memory, seconds)


def _facts_of(program: Program) -> bytes:
    """All that decides, beside the graph, what comes of compiling a step and running it."""
    item = program.item
    variables = {
        name: [spec.dtype, *(spec.shape or ())] for name, spec in sorted(item.variables.items())
    }
    inputs = [[name, str(v.dtype), *v.shape] for name, v in program.inputs.items()]
    facts: list[Any] = [_sources(), os.environ.get(FLAGS, ""), _devices()]
    facts += [item.feed, item.fetch, inputs, variables]
    return machine_facts() + json.dumps(facts).encode()


def _devices() -> list[Any]:
    """What there is to compile for."""
    import tensorflow as tf

    return [
        sorted(map(str, tf.config.experimental.get_device_details(device).items()))
        for device in tf.config.list_physical_devices("GPU")
    ]


@cache
def _sources() -> str:
    """A digest of what asks the compiler and reads what it says: others may read more of it."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
