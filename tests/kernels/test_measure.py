"""Kernels run alone for real: what they do is what the rules say, where the rules know."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from memopt.buffers.kernel_call import KernelMemory, Placement, Runtime
from memopt.errors import ExecutionError
from memopt.item import GrapplerItem
from memopt.kernels import measure as measuring
from memopt.kernels.choice import surveyed
from memopt.kernels.measure import measure
from memopt.kernels.table import Environment, MeasuredKernel
from memopt.shapes.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.kernels.survey import Survey

RUNTIME = Runtime(intra_op_threads=2)
IMAGES = tf.TensorSpec((4, 16, 16, 8), tf.float32)


def surveyed_function(function: Any) -> Survey:
    item = GrapplerItem.from_concrete_function(function)
    return surveyed(item, RUNTIME, Properties.of(item))


def _convolutions(images: tf.Tensor, filters: tf.Tensor) -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch((images, filters))
        found = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(images, filters, 1, "SAME")), 2, 2, "SAME")
        loss = tf.reduce_sum(tf.pad(found, [[0, 0], [1, 1], [1, 1], [0, 0]]) ** 2)
    found_gradients: list[tf.Tensor] = tape.gradient(loss, [images, filters])
    return found_gradients


def _sharing(images: tf.Tensor, filters: tf.Tensor) -> list[tf.Tensor]:
    flat = tf.reshape(images, (4, -1))
    return [flat, tf.identity(flat), flat[1:3], tf.add_n([flat, flat, flat]), tf.tanh(filters)]


@pytest.fixture(scope="module")
def found() -> list[tuple[Any, MeasuredKernel]]:
    """Surveyed and measured kernels of some steps, in one process."""
    specs = IMAGES, tf.TensorSpec((3, 3, 8, 6), tf.float32)
    steps = [
        surveyed_function(tf.function(step, autograph=False).get_concrete_function(*specs))
        for step in (_convolutions, _sharing, _special)
    ]
    kernels = {key: kernel for step in steps for key, kernel in step.kernels.items()}
    measured = measure(kernels, Environment.of(RUNTIME))
    return [(kernel, measured[key]) for key, kernel in kernels.items()]


def _special(images: tf.Tensor, filters: tf.Tensor) -> list[tf.Tensor]:
    del filters
    rows = tf.reshape(images, (4, 16, 128))
    return [
        tf.einsum("abc,adc->abd", rows, rows),
        tf.einsum("abc,dbc->abd", rows, rows),
        tf.linalg.inv(tf.zeros((2, 2)) + rows[0, :2, :2]),
        _compiled(images),
    ]


@tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator] # TensorFlow has no types
def _compiled(images: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(tf.exp(images), tf.ones((3, 3, 4, 6)), 1, "SAME")


def test_rules_and_measurements_agree(found: list[tuple[Any, MeasuredKernel]]) -> None:
    known = [(kernel, each) for kernel, each in found if kernel.is_known]
    assert len(known) > 20
    for kernel, measured in known:
        assert measured.memory is not None, measured
        slots = kernel.case.slots
        assert as_facts(measured.memory, slots) == as_facts(kernel.by_rule, slots), measured.kernel
        assert measured.time_ns > 0


def as_facts(memory: KernelMemory, slots: frozenset[int]) -> object:
    placements = [(e.alias, [s for s in e.reuses if s in slots]) for e in memory.placements]
    taken = [each for each in memory.scratch_buffers if each[1]]
    scratch = memory.scratch_bytes + sum(size for size, _ in memory.scratch_buffers)
    return placements, [(size, tuple(slots)) for size, slots in taken], scratch


def only(found: list[tuple[Any, MeasuredKernel]], op: str) -> list[MeasuredKernel]:
    return [measured for kernel, measured in found if kernel.signature.op == op]


def test_scratch_memory_that_no_rule_knows_is_found(
    found: list[tuple[Any, MeasuredKernel]],
) -> None:
    """An Einsum transposes what does not lie as its product needs it."""
    scratch = [each.memory.scratch_bytes for each in only(found, "Einsum") if each.memory]
    assert len(scratch) == 2
    assert max(scratch) >= 4 * 16 * 128 * 4


def test_what_xla_compiles_is_measured_as_a_whole(
    found: list[tuple[Any, MeasuredKernel]],
) -> None:
    (compiled,) = only(found, "PartitionedCall")
    assert compiled.memory is not None
    assert compiled.memory.placements == (Placement(),)
    # Of what it makes on the way, the exponentials are the least.
    assert compiled.memory.scratch_bytes >= 4 * 16 * 16 * 8 * 4


def test_a_kernel_that_refuses_its_values_says_so(
    found: list[tuple[Any, MeasuredKernel]],
) -> None:
    (inverse,) = only(found, "MatrixInverse")
    assert inverse.memory is None
    assert "not invertible" in inverse.failure


class _Fragile:
    """A process that dies of one case."""

    def __init__(self, deadly: int) -> None:
        self.deadly = deadly
        self.asked: list[Sequence[int]] = []

    def ask(self, command: str, *, numbers: Sequence[int]) -> list[dict[str, Any]]:
        assert command == "measure"
        self.asked.append(numbers)
        if self.deadly in numbers:
            raise ExecutionError("it ended with signal SIGSEGV")
        return [MeasuredKernel("", KernelMemory((Placement(),))).to_json() for _ in numbers]


def test_a_kernel_that_brings_its_process_down_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = tf.function(_convolutions, autograph=False).get_concrete_function(
        IMAGES, tf.TensorSpec((3, 3, 8, 6), tf.float32)
    )
    kernels = surveyed_function(function).kernels
    process = _Fragile(deadly=2)

    @contextmanager
    def ending(_: object) -> Iterator[_Fragile]:
        yield process

    monkeypatch.setattr(measuring, "ending", ending)
    monkeypatch.setattr(measuring, "WorkerProcess", lambda *_: None)
    monkeypatch.setattr(measuring, "_BATCH", 4)
    done: list[int] = []
    measured = list(measure(kernels, Environment.of(RUNTIME), done.append).values())
    assert [index for index, each in enumerate(measured) if each.memory is None] == [2]
    assert measured[2].failure == "its process failed: it ended with signal SIGSEGV"
    assert process.asked[:5] == [[0, 1, 2, 3], [0], [1], [2], [3]]
    assert done[-1] == len(kernels)


def test_where_no_process_starts_that_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    function = tf.function(_convolutions, autograph=False).get_concrete_function(
        IMAGES, tf.TensorSpec((3, 3, 8, 6), tf.float32)
    )

    class Broken(_Fragile):
        def ask(self, command: str, *, numbers: Sequence[int]) -> list[dict[str, Any]]:
            raise ExecutionError(f"nobody answers to {command} {len(numbers)}")

    @contextmanager
    def ending(_: object) -> Iterator[_Fragile]:
        yield Broken(deadly=-1)

    monkeypatch.setattr(measuring, "ending", ending)
    monkeypatch.setattr(measuring, "WorkerProcess", lambda *_: None)
    with pytest.raises(ExecutionError, match="nobody answers to measure"):
        measure(surveyed_function(function).kernels, Environment.of(RUNTIME))
