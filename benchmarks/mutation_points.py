"""Places where a program can be changed a little: which there are, and the changed source."""

from __future__ import annotations

import ast
import copy
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SMALL = 4
_NOT_LOOKED_INTO = (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""Changes there change no result: messages, and what is there for the reader."""


@dataclass(frozen=True)
class Point:
    """One change of one expression.

    Attributes:
        path: The source file, relative to the repository.
        scope: The function or class that it is in, with those around it; "" at the top.
        statement: The statement, as the parser writes it; of a compound one its first line.
        change: What becomes of what: "a < b -> a <= b".
        number: Tells equal changes in equal statements of one scope apart.
        line: Where it is.
        source: The whole file after the change.
    """

    path: str
    scope: str
    statement: str
    change: str
    number: int
    line: int
    source: str

    @property
    def key(self) -> str:
        """The same for the same change wherever the function is moved to."""
        return " | ".join((self.scope, self.statement, self.change, str(self.number)))

    def rank(self, seed: int) -> str:
        """What a sample is sorted by: it stays the same when other places come and go."""
        return hashlib.sha256(f"{seed} {self.key}".encode()).hexdigest()


def points_of(root: Path, paths: Iterable[Path]) -> Iterator[Point]:
    """All changes of these files."""
    for path in paths:
        yield from _Finder(path.read_text(), path.relative_to(root).as_posix()).points()


class _Finder:
    def __init__(self, source: str, path: str) -> None:
        self._source = source
        self._path = path
        self._lines = source.encode().splitlines(keepends=True)
        self._seen: dict[tuple[str, str, str], int] = {}

    def points(self) -> Iterator[Point]:
        yield from self._of_body(ast.parse(self._source).body, "")

    def _of_body(self, body: Iterable[ast.stmt], scope: str) -> Iterator[Point]:
        for statement in body:
            yield from self._of_statement(statement, scope)

    def _of_statement(self, statement: ast.stmt, scope: str) -> Iterator[Point]:
        if isinstance(statement, _NOT_LOOKED_INTO) or _is_for_types(statement):
            return
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            inner = f"{scope}.{statement.name}" if scope else statement.name
            yield from self._of_body(statement.body, inner)
            return
        text = ast.unparse(statement).split("\n", maxsplit=1)[0]
        bodies = [child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt)]
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.ExceptHandler):
                yield from self._of_body(child.body, scope)
            elif not isinstance(child, ast.stmt) and child is not _annotation(statement):
                for node in _expressions(child):
                    yield from self._of_expression(node, scope, text)
        yield from self._of_body(bodies, scope)

    def _of_expression(self, node: ast.expr, scope: str, text: str) -> Iterator[Point]:
        before = ast.unparse(node)
        for changed in _changes(node):
            after = ast.unparse(changed)
            change = f"{before} -> {after}"
            number = self._seen.get((scope, text, change), 0)
            self._seen[scope, text, change] = number + 1
            source = self._with(node, f"({after})")
            yield Point(self._path, scope, text, change, number, node.lineno, source)

    def _with(self, node: ast.expr, text: str) -> str:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first, last = node.lineno - 1, node.end_lineno - 1
        before = b"".join(self._lines[:first]) + self._lines[first][: node.col_offset]
        after = self._lines[last][node.end_col_offset :] + b"".join(self._lines[last + 1 :])
        return (before + text.encode() + after).decode()


def _is_for_types(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"


def _annotation(statement: ast.stmt) -> ast.expr | None:
    return statement.annotation if isinstance(statement, ast.AnnAssign) else None


def _expressions(root: ast.AST) -> Iterator[ast.expr]:
    if isinstance(root, _NOT_LOOKED_INTO):
        return
    if isinstance(root, ast.expr):
        yield root
    for child in ast.iter_child_nodes(root):
        yield from _expressions(child)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    for kind, change in _CHANGES.items():
        if isinstance(node, kind):
            yield from change(copy.deepcopy(node))


def _of_comparison(node: ast.Compare) -> Iterator[ast.expr]:
    for place, operator in enumerate(node.ops):
        changed = copy.deepcopy(node)
        changed.ops[place] = _COMPARISONS[type(operator)]()
        yield changed


def _of_junction(node: ast.BoolOp) -> Iterator[ast.expr]:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield node


def _of_negation(node: ast.UnaryOp) -> Iterator[ast.expr]:
    if isinstance(node.op, ast.Not):
        yield node.operand


def _of_arithmetic(node: ast.BinOp) -> Iterator[ast.expr]:
    operator = _ARITHMETIC.get(type(node.op))
    # Texts and lists put together, or repeated, are no arithmetic.
    if operator is not None and not any(_is_sequence(side) for side in (node.left, node.right)):
        node.op = operator()
        yield node


def _is_sequence(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and not isinstance(node.value, int | float)
    )


def _of_constant(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1 if value < _SMALL else 2 * value)


def _of_call(node: ast.Call) -> Iterator[ast.expr]:
    if isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        node.func.id = _FUNCTIONS[node.func.id]
        yield node


_CHANGES: dict[type[ast.expr], Callable[..., Iterator[ast.expr]]] = {
    ast.Compare: _of_comparison,
    ast.BoolOp: _of_junction,
    ast.UnaryOp: _of_negation,
    ast.BinOp: _of_arithmetic,
    ast.Constant: _of_constant,
    ast.Call: _of_call,
}
