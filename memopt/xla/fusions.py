"""Which results XLA puts in memory, and which it computes where they are read: its own program."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_INSTRUCTION = re.compile(
    r"^\s*(?P<root>ROOT )?%(?P<name>[\w.\-]+) = .*? (?P<op>[a-z][\w\-]*)\((?P<rest>.*)$"
)
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%(?P<name>[\w.\-]+) .*\{$")
_NAME = re.compile(r"%([\w.\-]+)")
_OPERATIONS = re.compile(r"op_name=\"([^\"]*)\"")
_CALLED = re.compile(r"calls=%([\w.\-]+)")
_LIBRARY = re.compile(r'"kind":"__(?:ynn|xnn)_fusion"')
_REDUCTION = "reduce"
_END_OF_OPERANDS = "), "
_NO_RESULTS = frozenset(
    {"parameter", "constant", "tuple", "bitcast", "get-tuple-element", "broadcast"}
)
"""Instructions that put nothing in memory, or what is no result of a step."""
_MOVES = frozenset({"copy"})
"""Instructions that bring what is computed elsewhere into another layout."""


class _Instruction(NamedTuple):
    """An instruction.

    Attributes:
        name: Its name.
        op: What it does.
        operands: The names of those that it reads.
        operations: The TensorFlow operations that it comes from.
        is_root: Whether it is what its computation gives.
        called: The computation that it runs as one kernel; "" for none.
        is_of_library: Whether a library has that kernel.
    """

    name: str
    op: str
    operands: Sequence[str]
    operations: frozenset[str]
    is_root: bool
    called: str
    is_of_library: bool


class Kernels(NamedTuple):
    """What is known of a program's kernels, by TensorFlow's operations.

    Attributes:
        stored: Those whose results are in memory of their own, and computed nowhere else. Not those
            whose results some kernels read and others compute anew, as XLA does with what is cheap.
        library_sums: Those whose sums, or other reductions, a library computes.
    """

    stored: frozenset[str] = frozenset()
    library_sums: frozenset[str] = frozenset()

    def __or__(self, others: Kernels) -> Kernels:
        """Those of two programs."""
        return Kernels(self.stored | others.stored, self.library_sums | others.library_sums)


def find_kernels(lines: Iterable[str]) -> Kernels:
    """What is known of the kernels of a program; linear in the text.

    Args:
        lines: A program as XLA has optimized it, as text.
    """
    entry, kernels = _parse(lines)
    return Kernels(_find_stored(entry, kernels), _find_library_sums(entry, kernels))


def _find_stored(
    entry: Sequence[_Instruction], kernels: Mapping[str, Sequence[_Instruction]]
) -> frozenset[str]:
    roots = {name: _root_operations(inside) for name, inside in kernels.items()}
    stored: set[str] = set()
    for instruction in entry:
        if instruction.op not in _NO_RESULTS:
            stored |= instruction.operations | roots.get(instruction.called, frozenset())
    for inside in kernels.values():
        stored -= _computed_inside(inside)
    return frozenset(stored)


def _find_library_sums(
    entry: Sequence[_Instruction], kernels: Mapping[str, Sequence[_Instruction]]
) -> frozenset[str]:
    of_library = (kernels.get(one.called, ()) for one in entry if one.is_of_library)
    found = (one for inside in of_library for one in inside if one.op == _REDUCTION)
    return frozenset().union(*(one.operations for one in found))


def _parse(lines: Iterable[str]) -> tuple[list[_Instruction], dict[str, list[_Instruction]]]:
    """The instructions of the program itself, and those of the computations that it calls."""
    entry: list[_Instruction] = []
    computations: dict[str, list[_Instruction]] = {}
    current: list[_Instruction] = []
    for line in lines:
        if begins := _COMPUTATION.match(line.rstrip()):
            current = [] if begins["entry"] is None else entry
            computations[begins["name"]] = current
        elif found := _INSTRUCTION.match(line):
            current.append(_read(found))
    return entry, {name: inside for name, inside in computations.items() if inside is not entry}


def _read(found: re.Match[str]) -> _Instruction:
    rest = found["rest"]
    operations = _OPERATIONS.search(rest)
    called = _CALLED.search(rest)
    return _Instruction(
        found["name"],
        found["op"],
        _NAME.findall(rest.partition(_END_OF_OPERANDS)[0]),
        frozenset() if operations is None else frozenset(operations[1].split(";")),
        found["root"] is not None,
        "" if called is None else called[1],
        _LIBRARY.search(rest) is not None,
    )


def _root_operations(inside: Iterable[_Instruction]) -> frozenset[str]:
    return frozenset().union(*(each.operations for each in inside if each.is_root))


def _computed_inside(inside: Sequence[_Instruction]) -> set[str]:
    """The operations whose results others read in the same kernel."""
    readers: dict[str, list[_Instruction]] = defaultdict(list)
    for instruction in inside:
        for operand in instruction.operands:
            readers[operand].append(instruction)
    found: set[str] = set()
    for instruction in inside:
        if instruction.op in _NO_RESULTS | _MOVES or instruction.is_root:
            continue
        read_by = readers[instruction.name]
        if any(instruction.operations.isdisjoint(reader.operations) for reader in read_by):
            found |= instruction.operations
    return found
