"""Draws what budgets come to: peaks above, step times below, as predicted and as measured."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 720, 200, 70, 30, 44, 50
_HEIGHT = _TOP + 2 * _PANEL + _GAP + 46
_TICKS = 4
_PREDICTED, _MEASURED, _BUDGET = "#1f6f8b", "#c0392b", "#999999"


class _Panel(NamedTuple):
    """A part of the picture with axes of its own.

    Attributes:
        top: Where it starts.
        lowest: The value at its lower edge.
        highest: The value at its upper edge.
        budgets: The percentages at its left and right edges.
    """

    top: int
    lowest: float
    highest: float
    budgets: tuple[int, int]

    def across(self, percent: float) -> float:
        left, right = self.budgets
        return _LEFT + (percent - left) / max(1, right - left) * (_WIDTH - _LEFT - _RIGHT)

    def up(self, value: float) -> float:
        share = (value - self.lowest) / (self.highest - self.lowest)
        return self.top + _PANEL * (1 - share)

    def axis(self, form: str) -> Iterator[str]:
        for number in range(_TICKS + 1):
            value = self.lowest + (self.highest - self.lowest) * number / _TICKS
            y = self.up(value)
            yield (
                f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" '
                'stroke="#dddddd"/>'
            )
            yield (
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                f"{form.format(value)}</text>"
            )

    def line(self, points: Iterable[tuple[float, float]], color: str, dashes: str = "") -> str:
        path = " ".join(f"{self.across(x):.1f},{self.up(y):.1f}" for x, y in points)
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{style}/>'

    def dots(self, points: Iterable[tuple[float, float]], color: str) -> Iterator[str]:
        for x, y in points:
            yield f'<circle cx="{self.across(x):.1f}" cy="{self.up(y):.1f}" r="4" fill="{color}"/>'


def draw_peaks(rows: Sequence[dict[str, Any]], title: str) -> str:
    """An SVG picture of the rows of one step, rewritten in one way within several budgets.

    Args:
        rows: With the keys percent, original_bytes, predicted_bytes, rewritten_bytes,
            predicted_ratio and time_ratio; at least one.
        title: What is written above.
    """
    rows = sorted(rows, key=lambda row: row["percent"])
    percents = [row["percent"] for row in rows]
    edges = (percents[0], percents[-1])
    peaks = _Panel(_TOP, 0.0, 1.0, edges)
    slowest = max(max(row["time_ratio"], row["predicted_ratio"]) for row in rows)
    times = _Panel(_TOP + _PANEL + _GAP, 0.8, max(1.2, slowest), edges)

    def shares(key: str) -> list[tuple[float, float]]:
        return [(row["percent"], row[key] / row["original_bytes"]) for row in rows]

    def ratios(key: str) -> list[tuple[float, float]]:
        return [(row["percent"], row[key]) for row in rows]

    budgets = [(percent, percent / 100) for percent in percents]
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
                'font-family="sans-serif" font-size="12">'
            ),
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>',
            (
                f'<text x="{_LEFT}" y="36" fill="#666666">the step\'s own peak, of what it needs '
                "unchanged; dashed: the budget; line: predicted; dots: measured</text>"
            ),
            *peaks.axis("{:.0%}"),
            peaks.line(budgets, _BUDGET, "5 4"),
            peaks.line(shares("predicted_bytes"), _PREDICTED),
            *peaks.dots(shares("rewritten_bytes"), _MEASURED),
            (
                f'<text x="{_LEFT}" y="{times.top - 10}" fill="#666666">step time by that of the '
                "unchanged step; line: estimated; dots: measured</text>"
            ),
            *times.axis("x{:.2f}"),
            times.line(ratios("predicted_ratio"), _PREDICTED),
            *times.dots(ratios("time_ratio"), _MEASURED),
            *(
                f'<text x="{times.across(percent):.1f}" y="{_HEIGHT - 24}" '
                f'text-anchor="middle">{percent} %</text>'
                for percent in percents
            ),
            (
                f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" '
                'fill="#666666">budget</text>'
            ),
            "</svg>",
            "",
        ]
    )
