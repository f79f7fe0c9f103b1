"""Laboratory: runs kernels alone in this process and concludes what each does with memory."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memopt.buffers.kernel_call import KernelMemory, Placement
from memopt.errors import MemoptError
from memopt.item import GrapplerItem, VariableSpec
from memopt.kernels.experiment import TESTED, Allocations, Experiment, Readers
from memopt.runtime.function import Interface, build_plain_function
from memopt.runtime.profiling import profile
from memopt.runtime.program import Program
from memopt.runtime.replay import on_device
from memopt.runtime.trace import TraceRecorder, step_marker
from memopt.runtime.worker import message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    from tensorflow.core.protobuf.config_pb2 import RunMetadata

    from memopt.kernels.experiment import KernelCase

_FULL_RUNS = 3
"""How much scratch memory threads need at once differs from run to run."""

_TIMED_RUNS = 5
_NONE: frozenset[int] = frozenset()
_LONGEST_REASON = 300


class Laboratory:
    """Runs cases and reads the allocations of each.

    Needs a process in which TensorFlow's own allocator serves the device, one operation runs at a
    time, Grappler is off, and nothing else runs. Kernels run in functions: in a session some of
    them take their scratch memory from elsewhere.
    """

    def memory(self, cases: Sequence[KernelCase]) -> list[KernelMemory | str]:
        """What each case does with memory, or why it cannot be run.

        Kernels are run in three rounds, each under one record: all tensors held and none; what the
        first round leaves open, output by output; and then input by input.
        """
        studies = [_Study(case) for case in cases]
        for asked in (_Study.first, _Study.second, _Study.third):
            wanted = [(study, readers) for study in studies for readers in asked(study)]
            self._observe(wanted)
        return [study.failure or study.conclusion() for study in studies]

    def time_ns(self, case: KernelCase) -> int:
        """How long a kernel runs: the median of a few runs after the first; 0 if not told."""
        experiment = Experiment.of(case, Readers(case.slots, case.ports))
        try:
            profiles = profile(_program(experiment), steps=_TIMED_RUNS)
        except MemoptError:
            return 0
        times_ns = [time_ns for metadata in profiles for time_ns in _times_ns(metadata)]
        return round(statistics.median(times_ns)) if times_ns else 0

    def _observe(self, wanted: Sequence[tuple[_Study, Readers]]) -> None:
        if not wanted:
            return
        recorder = TraceRecorder(Path(tempfile.mkdtemp(prefix="memopt-kernels-")))
        ran: list[tuple[_Study, Readers]] = []
        recorder.start()
        try:
            for study, readers in wanted:
                if not study.failure and self._run(study, readers, len(ran)):
                    ran.append((study, readers))
        finally:
            trace = recorder.stop()
        spans = iter(trace.steps)
        events, start = trace.events, 0
        for (study, readers), span in zip(ran, spans, strict=True):
            while start < len(events) and events[start].time_ns < span.start_ns:
                start += 1
            end = start
            while end < len(events) and events[end].time_ns <= span.end_ns:
                end += 1
            own = on_device(events[start:end], study.case.device)
            study.add(readers, Allocations.of(own))
            start = end

    def _run(self, study: _Study, readers: Readers, number: int) -> bool:
        """Run an experiment twice, the second time under a mark; whether it went well."""
        try:
            run = _prepared(Experiment.of(study.case, readers))
            run()
            with step_marker(number):
                run()
        except Exception as error:  # noqa: BLE001 - whatever fails, others are to be measured
            study.failure = message_of(error)[:_LONGEST_REASON]
            return False
        return True


def _prepared(experiment: Experiment) -> Callable[[], None]:
    """A function that runs an experiment and waits for its end.

    Raises:
        InvalidGraphError: TensorFlow refuses the graph.
    """
    import tensorflow as tf

    values = [tf.constant(_number(*each)) for each in experiment.given.values()]
    variables = {
        name: tf.Variable(tf.zeros(operand.shape, operand.dtype), trainable=False)
        for name, operand in experiment.variables.items()
    }
    captures = [(f"{name}:0", variable.handle) for name, variable in variables.items()]
    arguments = [f"{name}:0" for name in experiment.given]
    interface = Interface(arguments, captures, (), experiment.targets)
    function = build_plain_function(experiment.graph_def, interface)

    def run() -> None:
        function(*values)
        tf.test.experimental.sync_devices()

    # They live as long as what reads them.
    run.variables = variables  # type: ignore[attr-defined]
    return run


def _program(experiment: Experiment) -> Program:
    """An experiment as a step, which can run in a session."""
    variables = {
        name: VariableSpec(operand.dtype, operand.shape)
        for name, operand in experiment.variables.items()
    }
    item = GrapplerItem(
        experiment.graph_def,
        feed=tuple(f"{name}:0" for name in experiment.given),
        fetch=tuple(experiment.targets),
        variables=variables,
    )
    inputs = {f"{name}:0": _number(*each) for name, each in experiment.given.items()}
    return Program.from_item(item, inputs)


def _number(dtype: int, number: float) -> npt.NDArray[Any]:
    import tensorflow as tf

    return np.array(number).astype(tf.dtypes.as_dtype(dtype).as_numpy_dtype)


class _Study:
    """One case, and what its experiments showed so far."""

    def __init__(self, case: KernelCase) -> None:
        self.case = case
        self.failure = ""
        self._found: dict[Readers, Allocations] = {}

    def add(self, readers: Readers, allocations: Allocations) -> None:
        """Take note of an experiment; of several like it, that with the most scratch memory."""
        known = self._found.get(readers)
        if known is None or known.scratch_bytes < allocations.scratch_bytes:
            self._found[readers] = allocations

    def first(self) -> Iterator[Readers]:
        """All tensors held, and no input."""
        for _ in range(_FULL_RUNS):
            yield self._full
        yield self._free

    def second(self) -> Iterator[Readers]:
        """Output by output, with all inputs held and none, unless each has memory of its own."""
        if self.failure or self._is_plain:
            return
        for port in sorted(self.case.ports):
            yield self._crowded(port)
            yield self._alone(port)

    def third(self) -> Iterator[Readers]:
        """Input by input: which of them an output, or scratch memory, is put into."""
        if self.failure:
            return
        for port in self._forwarded_ports():
            for slot in sorted(self.case.slots):
                yield self._without(slot, frozenset({port}))
        if self._found[self._free].scratch_bytes < self._found[self._full].scratch_bytes:
            for slot in sorted(self.case.slots):
                yield self._without(slot, self.case.ports)

    def conclusion(self) -> KernelMemory:
        """What the kernel does with memory."""
        buffers, scratch_bytes = [], self._found[self._full].scratch_bytes
        for slot in sorted(self.case.slots):
            without = self._found.get(self._without(slot, self.case.ports))
            if without is not None and without.scratch_bytes < scratch_bytes:
                size_bytes = scratch_bytes - without.scratch_bytes
                buffers.append((size_bytes, (slot,)))
        held_bytes = sum(size_bytes for size_bytes, _ in buffers)
        placements = [self._placement(port) for port in range(len(self.case.result_bytes))]
        return KernelMemory(placements, max(scratch_bytes - held_bytes, 0), buffers)

    def _placement(self, port: int) -> Placement:
        crowded = self._found.get(self._crowded(port))
        if crowded is None:
            return Placement()
        taken = self._found[self._alone(port)].kept_slots
        if not crowded.kept_bytes:
            # What is neither allocated nor an input's is a variable's or a constant of the kernel.
            return Placement(min(taken)) if taken else Placement()
        slots = [
            slot
            for slot in sorted(self.case.slots)
            if (found := self._found.get(self._without(slot, frozenset({port})))) is not None
            and not found.kept_bytes
        ]
        # The first choice is what it takes when it may take anything.
        return Placement(-1, tuple(sorted(slots, key=lambda slot: slot not in taken)))

    def _forwarded_ports(self) -> Iterator[int]:
        """Outputs that are allocated if all inputs are held, and lie in one if none is."""
        for port in sorted(self.case.ports):
            crowded = self._found.get(self._crowded(port))
            if crowded is None or not crowded.kept_bytes:
                continue
            if not self._found[self._alone(port)].kept_bytes:
                yield port

    @property
    def _is_plain(self) -> bool:
        """Whether every output is in memory of its own, whoever reads the inputs."""
        full, free = self._found[self._full], self._found[self._free]
        own = sorted(size for size in self.case.result_bytes if size)
        return not free.kept_slots and sorted(full.kept_bytes) == sorted(free.kept_bytes) == own

    @property
    def _full(self) -> Readers:
        return Readers(self.case.slots, self.case.ports)

    @property
    def _free(self) -> Readers:
        return Readers(_NONE, self.case.ports)

    def _crowded(self, port: int) -> Readers:
        return Readers(self.case.slots, frozenset({port}))

    def _alone(self, port: int) -> Readers:
        return Readers(_NONE, frozenset({port}))

    def _without(self, slot: int, ports: frozenset[int]) -> Readers:
        return Readers(self.case.slots - {slot}, ports)


def _times_ns(metadata: RunMetadata) -> Iterator[int]:
    for device in metadata.step_stats.dev_stats:
        for entry in device.node_stats:
            if entry.node_name.partition(":")[0] == TESTED and entry.op_end_rel_nanos:
                yield int(entry.op_end_rel_nanos - entry.op_start_rel_nanos)
