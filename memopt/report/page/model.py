"""What a report page shows, as plain values: what they are made of is for the modules beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from memopt.display import clip

NAME_LENGTH = 240
"""The most characters of a name that a page shows; the middle of longer ones is left out."""


def shown(name: str) -> str:
    """A name as a page shows it: on one line, control characters escaped, not too long."""
    # As nearly all names are; a page has tens of thousands of them.
    if len(name) <= NAME_LENGTH and name.isprintable() and " " not in name:
        return name
    return clip(name, NAME_LENGTH)


class Operation(NamedTuple):
    """One operation of a track.

    Attributes:
        name: Its name.
        op: Its op.
        device: Where it runs; "" where that is not said.
        kind: Number of its results' kind among `KINDS`.
        start: When it starts, in the track's unit.
        end: When it ends.
    """

    name: str
    op: str
    device: str
    kind: int
    start: float
    end: float


class Tensor(NamedTuple):
    """A piece of memory with its life; several tensors that share it are one.

    Attributes:
        name: What it is called.
        maker: The number of the operation that makes it; -1 if it is there before.
        size_bytes: Its size.
        birth: The first moment at which it is in use, as a number among the track's moments.
        end: The first moment at which it is not in use any more.
        kind: Number of its kind among `KINDS`.
        layer: Its layer: a name scope.
        readers: Numbers of operations that read it, the first ones.
        reader_count: How many there are.
    """

    name: str
    maker: int
    size_bytes: int
    birth: int
    end: int
    kind: int
    layer: str
    readers: tuple[int, ...] = ()
    reader_count: int = 0


@dataclass(frozen=True)
class Track:
    """The memory of one run of a step.

    Attributes:
        title: Which it is: "before", "after", or a device.
        moments: How many moments it has.
        operations: What runs, in order.
        tensors: What is in use, and when.
        peak_bytes: The most in use at a moment.
        peak_at: The moment at which it is so first.
        times: Of each moment its place on the axis; the moment's number if not given.
    """

    title: str
    moments: int
    operations: tuple[Operation, ...]
    tensors: tuple[Tensor, ...]
    peak_bytes: int
    peak_at: int
    times: tuple[float, ...] | None = None

    def live_at_peak(self) -> list[Tensor]:
        """What is in use at the peak, the largest first."""
        live = [one for one in self.tensors if one.birth <= self.peak_at < one.end]
        return sorted(live, key=lambda one: (-one.size_bytes, one.name))


class Curve(NamedTuple):
    """Memory over the step without what it consists of.

    Attributes:
        title: What it is.
        x: Places on the axis of the chart, ascending.
        y: Bytes in use from there on.
        track: Number of the track to which it belongs.
    """

    title: str
    x: tuple[float, ...]
    y: tuple[int, ...]
    track: int


class Line(NamedTuple):
    """A number of bytes to compare with.

    Attributes:
        title: What it is: "budget", "floor".
        size_bytes: The number.
        why: What makes it so, or "".
    """

    title: str
    size_bytes: int
    why: str = ""


@dataclass(frozen=True)
class Chart:
    """Memory over a step, of one or several runs on the same axis.

    Attributes:
        title: What it shows.
        axis: What runs from left to right.
        unit: The unit there: "" for numbers of operations, "ms".
        tracks: The runs, that which is shown first at the front.
        curves: Further memory over the step.
        lines: Numbers of bytes to compare with.
    """

    title: str
    axis: str
    unit: str
    tracks: tuple[Track, ...]
    curves: tuple[Curve, ...] = ()
    lines: tuple[Line, ...] = ()


class Decision(NamedTuple):
    """What was decided about a node, or about several together, and why.

    Attributes:
        what: "recomputed", "swapped", "left alone", "edited", "ordered" or "undone".
        node: The node, or the first of several.
        reason: Why.
        by: The pass.
        nodes: All nodes, so that the decision is found from each.
        number: How many there are.
        effect_bytes: Bytes to be kept more (or, negative, less) because of it, where that is known.
        chart: Number of the chart whose nodes it is about; -1 for all of them.
    """

    what: str
    node: str
    reason: str
    by: str
    nodes: tuple[str, ...] = ()
    number: int = 1
    effect_bytes: int | None = None
    chart: int = -1


class Repeated(NamedTuple):
    """Operations of one op that run again.

    Attributes:
        op: The op.
        number: How many.
        time_ns: How long they take together, as estimated.
        size_bytes: What they make.
    """

    op: str
    number: int
    time_ns: int
    size_bytes: int


class Fact(NamedTuple):
    """One of the figures at the top.

    Attributes:
        label: What it is.
        value: The figure, for people.
        hint: What else is to be said of it.
        verdict: "good", "bad" or "".
    """

    label: str
    value: str
    hint: str = ""
    verdict: str = ""


class Grid(NamedTuple):
    """A plain table.

    Attributes:
        title: What it holds.
        columns: The headers.
        rows: The cells.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Budgets(NamedTuple):
    """The costs of plans for several budgets.

    Attributes:
        budget_bytes: The budgets.
        overhead: What the plan for each costs over computing everything once, as a share.
        bound: What no plan for it costs less than.
    """

    budget_bytes: tuple[int, ...]
    overhead: tuple[float, ...]
    bound: tuple[float, ...]


class Peaks(NamedTuple):
    """What several steps need, beside each other.

    Attributes:
        names: Which they are.
        before_bytes: What each needs at its peak as it was.
        after_bytes: What it needs rewritten.
        budget_bytes: What was allowed; 0 where nothing was.
    """

    names: tuple[str, ...]
    before_bytes: tuple[int, ...]
    after_bytes: tuple[int, ...]
    budget_bytes: tuple[int, ...]


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    Attributes:
        title: What it is about.
        summary: What came out, in a sentence.
        facts: The figures at the top.
        charts: Memory over the step.
        decisions: What was decided, and why.
        repeated: What runs again, that which takes longest first.
        repeated_note: Whose estimate its times are.
        budgets: The costs of plans for several budgets.
        peaks: What several steps need, before and after.
        grids: Plain tables.
        notes: What else is to be known, a sentence each.
    """

    title: str
    summary: str
    facts: tuple[Fact, ...] = ()
    charts: tuple[Chart, ...] = ()
    decisions: tuple[Decision, ...] = ()
    repeated: tuple[Repeated, ...] = ()
    repeated_note: str = ""
    budgets: Budgets | None = None
    peaks: Peaks | None = None
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = field(default=())
