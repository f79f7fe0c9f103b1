"""Results as short texts for a terminal and as HTML tables for a notebook.

Names come from graphs that nobody has checked: control characters are escaped in texts, markup in
HTML, and both are cut where they are long.
"""

from __future__ import annotations

import html
import re
import shutil
import textwrap
from dataclasses import MISSING, Field, dataclass, fields
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LINES = 24
"""The most lines of a text."""
WIDTH = 100
"""The most characters of a line."""
_LEAST_WIDTH = 60
_MOST_ROWS = 50
_MOST_NOTES = 6
_HEAD_LENGTH = 230
_CELL_LENGTH = 200
_FIELD_LENGTH = 72
_GAP = "  "
_NUMBER = re.compile(r"[-+x]?[0-9].*|")
_LOCAL = "/job:localhost/replica:0/task:0/device:"
_LEAST_MEBIBYTES = 1 << 14

PEAKS = ("", "before", "after", "ratio")
"""The columns of tables with rows of `peak_row`."""

T = TypeVar("T")


def text_width() -> int:
    """How many characters a line of text may have here: `WIDTH`, or fewer on a narrow terminal."""
    return min(WIDTH, max(_LEAST_WIDTH, shutil.get_terminal_size((WIDTH, LINES)).columns))


def bytes_text(size_bytes: int, *, signed: bool = False) -> str:
    """A number of bytes for people, in MiB with two decimals, small ones in bytes."""
    sign = "+" if signed and size_bytes > 0 else ""
    if abs(size_bytes) < _LEAST_MEBIBYTES:
        return f"{sign}{size_bytes} B"
    return f"{sign}{size_bytes / (1 << 20):.2f} MiB"


def time_text(time_ns: int) -> str:
    """A time for people, in the unit that suits it."""
    for unit, size_ns in (("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000)):
        if time_ns >= size_ns:
            return f"{time_ns / size_ns:.2f} {unit}"
    return f"{time_ns} ns"


def count_text(number: int, noun: str, plural: str = "") -> str:
    """A number of things: "1 edit", "2 edits"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"


def change_text(before_bytes: int, after_bytes: int) -> str:
    """Two sizes and their ratio: "3.00 MiB -> 2.00 MiB (x0.67)"."""
    ratio = _ratio_text(before_bytes, after_bytes)
    text = f"{bytes_text(before_bytes)} -> {bytes_text(after_bytes)}"
    return f"{text} ({ratio})" if ratio else text


def budget_text(peak_bytes: int, budget_bytes: int) -> str:
    """Whether a peak keeps to a budget."""
    where = "within" if peak_bytes <= budget_bytes else "OVER"
    return f"{where} the budget of {bytes_text(budget_bytes)}"


def peak_row(name: str, before_bytes: int, after_bytes: int) -> tuple[str, ...]:
    """A row of a table with the columns `PEAKS`."""
    ratio = _ratio_text(before_bytes, after_bytes)
    return name, bytes_text(before_bytes), bytes_text(after_bytes), ratio


def short_name(device: str) -> str:
    """A device's name without job, replica and task, if those are the local ones."""
    return device.removeprefix(_LOCAL)


def names_text(names: Sequence[str], most: int = 3) -> str:
    """How many names there are, and the first of them."""
    if not names:
        return "none"
    shown = ", ".join(clip(name, WIDTH // most) for name in names[:most])
    return f"{len(names):,}: {shown}" + (", ..." if len(names) > most else "")


def clip(text: str, length: int) -> str:
    """A text on one line, its middle left out where it is longer; control characters escaped."""
    line = " ".join(_cut(text, 2 * max(length, _CELL_LENGTH)).split())
    line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
    return _cut(line, length)


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    head = (length - 3) // 2
    return f"{text[:head]}...{text[len(text) - (length - 3 - head) :]}"


def _ratio_text(before: int, after: int) -> str:
    return f"x{after / before:.2f}" if before else ""


class Table(NamedTuple):
    """A table of texts.

    Attributes:
        columns: The headers.
        rows: The cells.
        left_out: How many further rows there are.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0

    @classmethod
    def of(
        cls, columns: tuple[str, ...], items: Sequence[T], row: Callable[[T], tuple[str, ...]]
    ) -> Table:
        """A table with one row for each of the items, as many as are ever shown."""
        rows = tuple(row(item) for item in islice(items, _MOST_ROWS))
        return cls(columns, rows, len(items) - len(rows))

    def without_empty_columns(self) -> Table:
        """The same without the columns in which no row has anything."""
        kept = [at for at in range(len(self.columns)) if any(row[at] for row in self.rows)]
        rows = tuple(tuple(row[at] for at in kept) for row in self.rows)
        return Table(tuple(self.columns[at] for at in kept), rows, self.left_out)

    def lines(self, most: int) -> list[str]:
        """The table as lines of text.

        Args:
            most: How many lines.
        """
        has_header = any(self.columns)
        room = most - has_header
        left_out = self.left_out
        rows = self.rows
        if len(rows) + bool(left_out) > room:
            left_out += len(rows) - (room - 1)
            rows = rows[: room - 1]
        cells = [[clip(cell, WIDTH) for cell in row] for row in (self.columns, *rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        while sum(widths) + len(_GAP) * len(widths) > text_width():
            widths[widths.index(max(widths))] -= 1
        is_number = [
            all(map(_NUMBER.fullmatch, column)) for column in zip(*cells[1:], strict=True)
        ] or [False] * len(widths)
        lines = [
            "".join(
                _GAP + (cell.rjust(width) if right else cell.ljust(width))
                for cell, width, right in zip(
                    [clip(cell, width) for cell, width in zip(row, widths, strict=True)],
                    widths,
                    is_number,
                    strict=True,
                )
            ).rstrip()
            for row in (cells if has_header else cells[1:])
        ]
        return [*lines, *_more(left_out)]

    def html(self) -> str:
        """The table as HTML."""
        parts = ["<table>"]
        if any(self.columns):
            parts.append(f"<tr>{''.join(_cell('th', cell) for cell in self.columns)}</tr>")
        parts += [f"<tr>{''.join(_cell('td', cell) for cell in row)}</tr>" for row in self.rows]
        if self.left_out:
            parts.append(f"<tr>{_cell('td', f'... and {self.left_out:,} more')}</tr>")
        return "".join((*parts, "</table>"))


@dataclass(frozen=True)
class Overview:
    """What a result says at a glance.

    Attributes:
        kind: What it is of: the name of a class.
        outcome: What came out, in one sentence.
        tables: Figures.
        notes: What else is to be known, a sentence each.
    """

    kind: str
    outcome: str
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """At most `LINES` lines of `WIDTH` characters, or of as many as the terminal has."""
        width = text_width()
        head = f"{self.kind}: {clip(self.outcome, _HEAD_LENGTH)}"
        lines = textwrap.wrap(head, width, subsequent_indent=_GAP, break_on_hyphens=False)
        notes = [_GAP + clip(note, width - len(_GAP)) for note in self.notes[:_MOST_NOTES]]
        notes += _more(len(self.notes) - len(notes))
        tables = [table for table in self.tables if table.rows]
        for done, table in enumerate(tables):
            room = LINES - len(lines) - len(notes)
            lines += table.lines(room // (len(tables) - done))
        return "\n".join((*lines, *notes))

    def html(self) -> str:
        """Tables that refer to nothing outside."""
        head = f"<b>{_escaped(self.kind)}</b>: {_escaped(clip(self.outcome, 2 * _CELL_LENGTH))}"
        notes = "".join(
            f"<li>{_escaped(clip(note, _CELL_LENGTH))}</li>" for note in self.notes[:_MOST_ROWS]
        )
        tables = "".join(table.html() for table in self.tables if table.rows)
        return f"<div><p>{head}</p>{tables}{f'<ul>{notes}</ul>' if notes else ''}</div>"


class Displayed:
    """A result that shows as its overview: as text in a terminal, as tables in a notebook."""

    __slots__ = ()

    def _overview(self) -> Overview:
        raise NotImplementedError  # each result says what its overview is

    def __repr__(self) -> str:
        return self._overview().text()

    def _repr_html_(self) -> str:
        return self._overview().html()


class Paged(Displayed):
    """A result that has a report page: see `memopt.report.page`."""

    __slots__ = ()

    def to_html(self, *others: Any) -> str:
        """The report page: memory over the step, what is in it, and why; one file, no network.

        It needs what `pip install memopt[report]` installs. In a notebook a result shows as tables
        instead: each page carries the library that draws it, some 2 MB.

        Args:
            others: What belongs to this result: the Verification of a rewriting, the CostGraph of
                a plan.

        Raises:
            OptionsError: What draws pages is not installed.
        """
        # By name: a result stands below the reports, and only a user who asks for a page has both.
        page: str = import_module("memopt.report.page.entry").page_html(self, *others)
        return page


class DisplayedFields(Displayed):
    """A dataclass of plain values, which shows those of its fields that are not at their default.

    Its text is that of a call of its constructor.
    """

    __slots__ = ()

    def _fields(self) -> list[tuple[str, Any]]:
        declared: tuple[Field[Any], ...] = fields(self)  # type: ignore[arg-type]
        values = [(each, getattr(self, each.name)) for each in declared if each.repr]
        return [(each.name, value) for each, value in values if value != _default(each)]

    def _overview(self) -> Overview:
        rows = tuple((name, str(value)) for name, value in self._fields())
        return Overview(
            type(self).__name__, "" if rows else "all defaults", (Table(("", ""), rows),)
        )

    def __repr__(self) -> str:
        name = type(self).__name__
        parts = [
            f"{field}={clip(repr(str(value) if isinstance(value, str) else value), _FIELD_LENGTH)}"
            for field, value in self._fields()
        ]
        call = f"{name}({', '.join(parts)})"
        if len(call) <= WIDTH:
            return call
        lines = [f"{name}("]
        for part in parts:
            if len(lines) == 1 or len(lines[-1]) + len(part) + 3 > WIDTH:
                lines.append(f"    {part},")
            else:
                lines[-1] += f" {part},"
        return "\n".join((*lines[: LINES - 1], ")"))


class DisplayedTuple(Displayed, tuple[T, ...], Generic[T]):
    """A tuple of results that shows as one table."""

    __slots__ = ()


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _more(number: int) -> Iterable[str]:
    return [f"{_GAP}... and {number:,} more"] if number > 0 else []


def _cell(tag: str, text: str) -> str:
    side = "right" if tag == "td" and text and _NUMBER.fullmatch(text) else "left"
    return f'<{tag} style="text-align:{side}">{_escaped(clip(text, _CELL_LENGTH))}</{tag}>'


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
