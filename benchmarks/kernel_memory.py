"""Finds out what TensorFlow's kernels do with memory, by running every op alone.

For each op of memopt's models: which outputs share an input's buffer (alias), which are put into
the buffer of an input that nobody else reads (reuse), and how much memory the kernel needs only
while it runs (scratch). Runs in a fresh process that records every allocation. Prints a table and
compares it with memopt's own; with `--write` makes memopt's own:

    python benchmarks/kernel_memory.py [--ops NAME ...] [--json FILE] [--write]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_cases import cases
from machine import describe_machine
from rich.console import Console
from rich.table import Table

import memopt
from memopt.runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import tensorflow as tf
    from kernel_cases import KernelCase

    from memopt.runtime.replay import AllocationEvent
    from memopt.runtime.trace import Trace

TABLE = Path(memopt.__file__).parent / "costs" / "kernel_table.py"
_TESTED = "tested"
_MARK = "mark"
_INPUT = "operand_"
_EVERY = -1


@dataclass(frozen=True)
class KernelMemory:
    """What a kernel did with memory.

    Attributes:
        op: The op.
        label: What is special about the case.
        aliases: Output port to the input slot whose buffer it always shares.
        reuses: Output port to the slots whose buffer it takes over, the first choice first.
        made_bytes: By port, what is allocated for it when nothing can be taken over.
        scratch_bytes: What is gone again when the kernel has run.
        variadic: Whether several tensors stand for one declared input.
    """

    op: str
    label: str
    aliases: dict[int, int] = field(default_factory=dict)
    reuses: dict[int, list[int]] = field(default_factory=dict)
    made_bytes: list[int] = field(default_factory=list)
    scratch_bytes: int = 0
    variadic: bool = False

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> KernelMemory:
        """What `asdict` made, after a way through JSON, which knows no numbers as keys."""
        by_port = {
            name: {int(k): v for k, v in plain[name].items()} for name in ("aliases", "reuses")
        }
        return cls(**{**plain, **by_port})


@dataclass(frozen=True)
class Run:
    """One run of a case: which operands and outputs are still read after it.

    Attributes:
        case: Number of the case.
        operands: The input slots that are read later.
        ports: The outputs that are read later.
    """

    case: int
    operands: frozenset[int]
    ports: frozenset[int]


class Laboratory:
    """Runs cases in this process and reads the allocations of each."""

    def __init__(self, tested: Sequence[KernelCase]) -> None:
        self._cases = tested
        self._runs: list[Run] = []
        self._trace: Trace | None = None
        self._ports: dict[int, int] = {}

    def measure(self) -> list[KernelMemory]:
        """What every case does."""
        from memopt.runtime.trace import TraceRecorder

        Settings().configure_tensorflow()
        recorder = TraceRecorder(Path(tempfile.mkdtemp()))
        recorder.start()
        for number, case in enumerate(self._cases):
            print(case.op, case.label, file=sys.stderr)
            slots = len(_flat(case))
            every = frozenset(range(slots))
            self._run(Run(number, every, frozenset([_EVERY])))
            for port in range(self._ports[number]):
                only = frozenset([port])
                self._run(Run(number, every, only))
                self._run(Run(number, frozenset(), only))
                for slot in range(slots):
                    self._run(Run(number, every - {slot}, only))
        trace = recorder.stop()
        found: dict[Run, _Allocations] = {}
        for run, span in zip(self._runs, trace.steps, strict=True):
            events = [event for event in trace.events if span.holds(event.time_ns)]
            found[run] = _Allocations.of(events)
        return [self._conclude(number, found) for number in range(len(self._cases))]

    def _run(self, run: Run) -> None:
        import tensorflow as tf

        from memopt.runtime.trace import step_marker

        case = self._cases[run.case]
        values = [tf.raw_ops.DeepCopy(x=value) for value in _flat(case)]
        function = tf.function(lambda *a: self._build(run, a), autograph=False)
        concrete = function.get_concrete_function(*values)
        concrete(*values)
        self._runs.append(run)
        with step_marker(len(self._runs)):
            concrete(*values)
            tf.test.experimental.sync_devices()

    def _build(self, run: Run, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Copies of the operands, the kernel, a mark, and late readers: one after the other."""
        import tensorflow as tf

        copies: list[tf.Tensor] = []
        for slot, value in enumerate(values):
            with tf.control_dependencies(copies[-1:]):
                copies.append(tf.raw_ops.DeepCopy(x=value, name=f"{_INPUT}{slot}"))
        case = self._cases[run.case]
        with tf.control_dependencies(copies):
            getattr(tf.raw_ops, case.op)(**_grouped(case, copies), **case.attributes, name=_TESTED)
        operation = tf.compat.v1.get_default_graph().get_operation_by_name(_TESTED)
        outputs = operation.outputs
        self._ports[run.case] = len(outputs)
        with tf.control_dependencies([operation]):
            mark = tf.raw_ops.DeepCopy(x=tf.constant(1.0), name=_MARK)
        with tf.control_dependencies([mark]):
            late = [tf.raw_ops.Shape(input=copies[slot]) for slot in sorted(run.operands)]
            ports = range(len(outputs)) if _EVERY in run.ports else sorted(run.ports)
            return [*late, *(tf.raw_ops.Shape(input=outputs[port]) for port in ports), mark]

    def _conclude(self, number: int, found: dict[Run, _Allocations]) -> KernelMemory:
        case = self._cases[number]
        every = frozenset(range(len(_flat(case))))
        memory = KernelMemory(case.op, case.label)
        for port in range(self._ports[number]):
            only = frozenset([port])
            crowded = found[Run(number, every, only)]
            alone = found[Run(number, frozenset(), only)]
            memory.made_bytes.append(sum(crowded.kept_bytes))
            if crowded.kept_bytes:
                taken = [
                    s for s in sorted(every) if not found[Run(number, every - {s}, only)].kept_bytes
                ]
                # The first choice is what it takes when it may take anything.
                taken.sort(key=lambda slot: slot not in alone.kept_operands)
                if taken:
                    memory.reuses[port] = taken
            elif alone.kept_operands:
                memory.aliases[port] = min(alone.kept_operands)
        full = found[Run(number, every, frozenset([_EVERY]))]
        variadic = any(isinstance(value, list) for value in case.inputs.values())
        return dataclasses.replace(memory, scratch_bytes=full.scratch_bytes, variadic=variadic)


@dataclass(frozen=True)
class _Allocations:
    """What happened between the last operand and the mark.

    Attributes:
        kept_bytes: Sizes of the buffers that were allocated and are there at the mark.
        kept_operands: The operands that are there at the mark.
        scratch_bytes: The most that was in use beyond what is kept.
    """

    kept_bytes: tuple[int, ...]
    kept_operands: frozenset[int]
    scratch_bytes: int

    @classmethod
    def of(cls, events: Iterable[AllocationEvent]) -> _Allocations:
        operands: dict[int, int] = {}
        live: dict[int, int] = {}
        in_use_bytes = peak_bytes = 0
        for event in events:
            if event.kind == "free":
                operands.pop(event.address, None)
                in_use_bytes -= live.pop(event.address, 0)
            elif event.operation == _MARK:
                break
            elif event.operation.startswith(_INPUT):
                operands[event.address] = int(event.operation.removeprefix(_INPUT))
            else:
                live[event.address] = event.size_bytes
                in_use_bytes += event.size_bytes
                peak_bytes = max(peak_bytes, in_use_bytes)
        kept = tuple(live.values())
        return cls(kept, frozenset(operands.values()), peak_bytes - sum(kept))


def _flat(case: KernelCase) -> list[Any]:
    """All operands, one for each input slot."""
    values: list[Any] = []
    for value in case.inputs.values():
        values.extend(value if isinstance(value, list) else [value])
    return values


def _grouped(case: KernelCase, copies: Sequence[tf.Tensor]) -> dict[str, Any]:
    """The copies by declared input."""
    left = iter(copies)
    return {
        name: [next(left) for _ in value] if isinstance(value, list) else next(left)
        for name, value in case.inputs.items()
    }


def make_tables(found: Iterable[KernelMemory]) -> dict[str, Any]:
    """The tables of `memopt.buffers.kernel_table`, by name."""
    aliases: dict[str, dict[int, int]] = {}
    reuses: dict[str, dict[int, tuple[int, ...]]] = {}
    unchanged: dict[str, int] = {}
    rows: dict[str, int] = {}
    port_by_port: set[str] = set()
    any_input: set[str] = set()
    for memory in found:
        op = memory.op
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
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        chosen = [case for case in cases() if not arguments.ops or case.op in arguments.ops]
        print(json.dumps([asdict(memory) for memory in Laboratory(chosen).measure()]))
        return
    found = run_worker(arguments.ops)
    print_table(found)
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


def print_table(found: Iterable[KernelMemory]) -> None:
    """What every case did."""
    table = Table(title=describe_machine(), title_justify="left")
    for column in ("op", "case", "shares", "takes over", "allocates", "scratch"):
        table.add_column(column, overflow="fold")
    for memory in found:
        table.add_row(
            memory.op,
            memory.label,
            ", ".join(f"{port} of {slot}" for port, slot in memory.aliases.items()),
            ", ".join(f"{port} of {slots}" for port, slots in memory.reuses.items()),
            ", ".join(map(str, memory.made_bytes)),
            str(memory.scratch_bytes),
        )
    Console(width=110).print(table)


def run_worker(ops: Sequence[str]) -> list[KernelMemory]:
    """Measure in a fresh process."""
    done = subprocess.run(  # noqa: S603 - this interpreter, this script
        [sys.executable, __file__, "--worker", *(["--ops", *ops] if ops else [])],
        env={**Settings().environment(), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    return [KernelMemory.from_json(row) for row in rows]


if __name__ == "__main__":
    main()
