"""What XLA's compiler says a step holds: its buffer assignment, read from what it dumps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from memopt.display import Displayed, Overview, Table, bytes_text
from memopt.errors import ExecutionError
from memopt.xla.fusions import Kernels, find_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_ALLOCATION = re.compile(r"^allocation \d+: size (?P<size>\d+), (?P<rest>.*)$", re.MULTILINE)
_TEMPORARY = "preallocated-temp"
_PARAMETER = "parameter"
_OUTPUT = "maybe-live-out"
_VALUE = re.compile(r"^ value: <\d+ (?P<name>[^ ]+) @")
_LIVE = re.compile(r"^\s+(?P<name>[\w.\-]+)\{[^}]*\}: (?P<size>\d+) bytes", re.MULTILINE)
_PEAK = re.compile(r"^\s*Live ranges at \d+ \(peak\):\n(?P<rows>(?:\s+.*bytes.*\n)*)", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = .*?op_name=\"(?P<op_name>[^\"]*)\"")
_PROGRAM = "after_optimizations.txt"
_CPU_PROGRAM = f"cpu_{_PROGRAM}"
_SHOWN = 10


class LiveValue(NamedTuple):
    """A value in the step's own memory at its peak.

    Attributes:
        instruction: What makes it, by the name that XLA gives it.
        operation: The TensorFlow operation that this comes from, "" if XLA does not say.
        size_bytes: Its size.
    """

    instruction: str
    operation: str
    size_bytes: int


@dataclass(frozen=True, repr=False)
class CompiledMemory(Displayed):
    """The memory of a step that XLA has compiled.

    Attributes:
        temporary_bytes: One allocation, for the time of the step: all its intermediate results.
        output_bytes: What is allocated for results that no variable takes.
        argument_bytes: Variables and inputs, which are there before.
        live: What is in the temporary memory at its peak, the largest first.
        stored: The TensorFlow operations whose results are in memory of their own, and computed
            nowhere else; empty where that was not told, as by compilers for others than CPUs.
        library_sums: Those of them whose sums a library adds up.
    """

    temporary_bytes: int
    output_bytes: int
    argument_bytes: int
    live: tuple[LiveValue, ...] = ()
    stored: frozenset[str] = field(default=frozenset(), compare=False)
    library_sums: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def step_peak_bytes(self) -> int:
        """What the step adds to what is there before."""
        return self.temporary_bytes + self.output_bytes

    @property
    def copied_bytes(self) -> int:
        """Of what is in use at the peak, what comes from no operation of TensorFlow's.

        Such are copies of operands in the layouts that kernels want.
        """
        return sum(value.size_bytes for value in self.live if not value.operation)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "temporary_bytes": self.temporary_bytes,
            "output_bytes": self.output_bytes,
            "argument_bytes": self.argument_bytes,
            "live": [list(value) for value in self.live],
            "stored": sorted(self.stored),
            "library_sums": sorted(self.library_sums),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """What `to_json` made plain."""
        live = tuple(LiveValue(*value) for value in plain["live"])
        sizes = plain["temporary_bytes"], plain["output_bytes"], plain["argument_bytes"]
        return cls(*sizes, live, frozenset(plain["stored"]), frozenset(plain["library_sums"]))

    @classmethod
    def from_dump(cls, folder: Path) -> Self:
        """What a folder says into which one compilation was dumped (`--xla_dump_to`).

        Raises:
            ExecutionError: The compiler left nothing there, or several modules.
        """
        assignments = sorted(folder.glob("*buffer-assignment.txt"))
        if len(assignments) != 1:
            raise ExecutionError(
                f"XLA left {len(assignments)} buffer assignments of one step, not one"
            )
        text = assignments[0].read_text(encoding="utf-8")
        names, kernels = _read_programs(folder)
        return cls(
            *_sizes(text),
            live=tuple(
                sorted(
                    (LiveValue(name, names.get(name, ""), size) for name, size in _peak(text)),
                    key=lambda value: (-value.size_bytes, value.instruction),
                )
            ),
            stored=kernels.stored,
            library_sums=kernels.library_sums,
        )

    def _overview(self) -> Overview:
        rows = tuple(
            (value.operation or value.instruction, bytes_text(value.size_bytes))
            for value in self.live[:_SHOWN]
        )
        outcome = (
            f"{bytes_text(self.step_peak_bytes)} of the step's own, "
            f"{bytes_text(self.argument_bytes)} held before it"
        )
        return Overview("CompiledMemory", outcome, (Table(("in use at the peak", ""), rows),))


def _sizes(text: str) -> tuple[int, int, int]:
    """Bytes of temporaries, of outputs, and of arguments."""
    temporary = output = argument = 0
    for allocation in _ALLOCATION.finditer(text):
        size_bytes, rest = int(allocation["size"]), allocation["rest"]
        if rest.startswith(_TEMPORARY):
            temporary += size_bytes
        elif rest.startswith(_PARAMETER):
            argument += size_bytes
        elif _OUTPUT in rest:
            output += size_bytes
    return temporary, output, argument


def _peak(text: str) -> Iterator[tuple[str, int]]:
    """What lives at the peak in temporary memory, with sizes."""
    temporary = _temporary_values(text)
    peak = _PEAK.search(text)
    if peak is None:
        return
    for row in _LIVE.finditer(peak["rows"]):
        if row["name"] in temporary:
            yield row["name"], int(row["size"])


def _temporary_values(text: str) -> set[str]:
    found: set[str] = set()
    is_temporary = False
    for line in text.splitlines():
        if line.startswith("allocation "):
            is_temporary = _TEMPORARY in line
        elif is_temporary and (value := _VALUE.match(line)):
            found.add(value["name"].partition("{")[0])
    return found


def _read_programs(folder: Path) -> tuple[dict[str, str], Kernels]:
    """By instruction the TensorFlow operation that it comes from; and what is known of kernels."""
    names: dict[str, str] = {}
    kernels = Kernels()
    for path in sorted(folder.glob(f"*{_PROGRAM}")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = filter(None, map(_INSTRUCTION.match, lines))
        names |= {one["name"]: one["op_name"] for one in found}
        if path.name.endswith(_CPU_PROGRAM):
            kernels |= find_kernels(lines)
    return names, kernels
