"""Finds out what TensorFlow's kernels do with memory, by running every op alone.

For each op of memopt's models: which outputs share an input's buffer (alias), which are put into
the buffer of an input that nobody else reads (reuse), and how much memory the kernel needs only
while it runs (scratch). Runs in a fresh process that records every allocation, as
`memopt.profile_kernels` does for a step's kernels. Prints a table and compares it with memopt's
own; with `--write` makes memopt's own:

    python benchmarks/kernel_memory.py [--ops NAME ...] [--json FILE] [--write]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from kernel_cases import cases
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from tensorflow.core.framework import function_pb2, node_def_pb2

import memopt
from memopt.buffers.kernel_call import KernelMemory, Runtime
from memopt.buffers.kernel_signature import KernelSignature, Operand, relevant_attributes
from memopt.kernels.experiment import KernelCase
from memopt.kernels.measure import measure
from memopt.kernels.survey import SurveyedKernel
from memopt.kernels.table import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel_cases import OpCase

TABLE = Path(memopt.__file__).parent / "buffers" / "kernel_table.py"
_TESTED = "tested"
_MOST_NUMBERS = 64


@dataclass(frozen=True)
class OpMemory:
    """What an op's kernel did with memory.

    Attributes:
        op: The op.
        label: What is special about the case.
        aliases: Output port to the input slot whose buffer it always shares.
        reuses: Output port to the slots whose buffer it takes over, the first choice first.
        scratch_bytes: What is gone again when the kernel has run.
        variadic: Whether several tensors stand for one declared input.
    """

    op: str
    label: str
    aliases: dict[int, int] = field(default_factory=dict)
    reuses: dict[int, list[int]] = field(default_factory=dict)
    scratch_bytes: int = 0
    variadic: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it only allocates its outputs."""
        return not (self.aliases or self.reuses or self.scratch_bytes)


def measure_cases(
    chosen: Sequence[OpCase], device: str = "CPU"
) -> tuple[list[OpMemory], dict[str, str]]:
    """What every case does, without oneDNN and with two threads; and why some cannot be run."""
    surveyed = {str(number): _surveyed(case, device) for number, case in enumerate(chosen)}
    environment = Environment.of(Runtime(intra_op_threads=2))
    found = measure(surveyed, environment)
    memories, failures = [], {}
    for number, case in enumerate(chosen):
        measured = found[str(number)]
        if measured.memory is None:
            failures[f"{case.op} {case.label}".strip()] = measured.failure
        else:
            memories.append(_op_memory(case, measured.memory))
    return memories, failures


def _op_memory(case: OpCase, memory: KernelMemory) -> OpMemory:
    placements = list(enumerate(memory.placements))
    return OpMemory(
        case.op,
        case.label,
        {port: each.alias for port, each in placements if each.alias >= 0},
        {port: list(each.reuses) for port, each in placements if each.reuses},
        memory.scratch_bytes + sum(size for size, _ in memory.scratch_buffers),
        any(isinstance(value, list) for value in case.inputs.values()),
    )


def _surveyed(case: OpCase, device: str) -> SurveyedKernel:
    """A case as a kernel of a step: small integers are constants, all else is made up."""
    with tf.Graph().as_default() as graph:
        given = {name: _given(value) for name, value in case.inputs.items()}
        getattr(tf.raw_ops, case.op)(**given, **case.attributes, name=_TESTED)
        operation = graph.get_operation_by_name(_TESTED)
    node = node_def_pb2.NodeDef(op=case.op)
    for name, value in relevant_attributes(operation.node_def):
        node.attr[name].CopyFrom(value)
    operands = [_operand(tensor) for tensor in operation.inputs]
    results = [(tensor.dtype, _least_shape(tensor)) for tensor in operation.outputs]
    signature = KernelSignature(
        case.op, (), tuple(operands), tuple((dtype.as_datatype_enum, s) for dtype, s in results)
    )
    sizes = [dtype.size * int(np.prod(shape)) for dtype, shape in results]
    library = function_pb2.FunctionDefLibrary()
    by_rule = KernelMemory(())
    return SurveyedKernel(
        signature, KernelCase(node, operands, sizes, device, library), by_rule, True, 1, case.label
    )


def _least_shape(tensor: tf.Tensor) -> tuple[int, ...]:
    """A shape in which what is not known is one."""
    if tensor.shape.rank is None:
        return (1,)
    return tuple(1 if size is None else size for size in tensor.shape.as_list())


def _given(value: Any) -> Any:
    if isinstance(value, list):
        return [_given(each) for each in value]
    array = np.asarray(value)
    if array.dtype.kind == "i" and array.size <= _MOST_NUMBERS:
        return tf.constant(array)
    return tf.compat.v1.placeholder(array.dtype, array.shape)


def _operand(tensor: tf.Tensor) -> Operand:
    shape = tuple(tensor.shape.as_list())
    numbers = tf.get_static_value(tensor)
    known = None if numbers is None else tuple(int(number) for number in numbers.flat)
    return Operand(tensor.dtype.as_datatype_enum, shape, known)


def make_tables(found: Sequence[OpMemory]) -> dict[str, Any]:
    """The tables of `memopt.buffers.kernel_table`, by name."""
    aliases: dict[str, dict[int, int]] = {}
    reuses: dict[str, dict[int, tuple[int, ...]]] = {}
    unchanged: dict[str, int] = {}
    rows: dict[str, int] = {}
    port_by_port: set[str] = set()
    any_input: set[str] = set()
    plain = {memory.op for memory in found}
    for memory in found:
        op = memory.op
        if not memory.is_plain:
            plain.discard(op)
        if memory.label in {"unchanged", "rows"} and memory.aliases:
            (unchanged if memory.label == "unchanged" else rows)[op] = memory.aliases[0]
        if memory.label:
            continue
        if len(memory.aliases) > 1:
            port_by_port.add(op)
        elif memory.aliases:
            aliases[op] = memory.aliases
        if memory.variadic and memory.reuses:
            any_input.add(op)
        elif memory.reuses:
            reuses[op] = {port: tuple(slots) for port, slots in memory.reuses.items()}
    return {
        "ALIASES": aliases,
        "PORT_BY_PORT": port_by_port,
        "REUSES": reuses,
        "ANY_INPUT": any_input,
        "UNCHANGED": unchanged,
        "ROWS": rows,
        "PLAIN": plain,
    }


_TYPES = {
    "ALIASES": ("dict[str, dict[int, int]]", "Ops by output port: the input slot that it shares."),
    "PORT_BY_PORT": ("frozenset[str]", "Ops whose outputs share the input of the same number."),
    "REUSES": (
        "dict[str, dict[int, tuple[int, ...]]]",
        "Ops by output port: the slots whose buffer it takes over, the first choice first.",
    ),
    "ANY_INPUT": ("frozenset[str]", "Ops that take over the buffer of any input."),
    "UNCHANGED": ("dict[str, int]", "Ops whose outputs share that slot where nothing changes."),
    "ROWS": ("dict[str, int]", "Ops whose outputs share that slot where they are rows of it."),
    "PLAIN": ("frozenset[str]", "Ops that allocate their outputs and nothing else."),
}


def format_tables(tables: dict[str, Any]) -> str:
    """The module that holds the tables."""
    lines = [
        '"""Which kernels share or take over buffers: written by `benchmarks/kernel_memory.py`.',
        "",
        "What an experiment with every op alone showed; not edited by hand. An op that is in no",
        "table allocates its outputs.",
        '"""',
        "",
        "from __future__ import annotations",
    ]
    for name, (kind, meaning) in _TYPES.items():
        table = tables[name]
        lines += ["", f"{name}: {kind} = {_spell(table)}", f'"""{meaning}"""']
    return "\n".join(lines) + "\n"


def _spell(table: Any) -> str:
    if isinstance(table, set):
        inner = "".join(f"{op!r}, " for op in sorted(table))
        return f"frozenset({{{inner}}})"
    return "{" + "".join(f"{op!r}: {table[op]!r}, " for op in sorted(table)) + "}"


def main() -> None:
    """Measure, print, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", nargs="*", default=[])
    parser.add_argument("--json", help="where to write the figures")
    parser.add_argument("--write", action="store_true", help="replace memopt's tables")
    arguments = parser.parse_args()
    chosen = [case for case in cases() if not arguments.ops or case.op in arguments.ops]
    found, failures = measure_cases(chosen)
    print_table(found)
    for name, reason in failures.items():
        sys.exit(f"{name}: {reason}")
    if arguments.json:
        rows = [asdict(memory) for memory in found]
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    tables = make_tables(found)
    if arguments.write:
        TABLE.write_text(format_tables(tables), encoding="utf-8")
        formatter = [sys.executable, "-m", "ruff", "format", "--quiet", str(TABLE)]
        subprocess.run(formatter, check=True)  # noqa: S603 - this interpreter, our own file
        return
    wrong = compare(tables, {memory.op for memory in found})
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


def compare(tables: dict[str, Any], ops: set[str]) -> list[str]:
    """Where memopt's tables differ, for these ops."""
    from memopt.buffers import kernel_table

    differences = []
    for name, measured in tables.items():
        known = getattr(kernel_table, name)
        for op in sorted(ops):
            one, other = _entry(known, op), _entry(measured, op)
            if one != other:
                differences.append(f"{name}: {op} is {other}, memopt says {one}")
    return differences


def _entry(table: Any, op: str) -> Any:
    return table.get(op) if isinstance(table, dict) else op in table


def print_table(found: Iterable[OpMemory]) -> None:
    """What every case did."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("op", "case", "shares", "takes over", "scratch"):
        table.add_column(column, overflow="fold")
    for memory in found:
        table.add_row(
            memory.op,
            memory.label,
            ", ".join(f"{port} of {slot}" for port, slot in memory.aliases.items()),
            ", ".join(f"{port} of {slots}" for port, slots in memory.reuses.items()),
            str(memory.scratch_bytes),
        )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
