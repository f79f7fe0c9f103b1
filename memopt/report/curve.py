"""The curve of a sweep as a picture: what plans cost at each budget, and what none can go below."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from memopt.display import bytes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memopt.planning.plan import Plan

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 56, 40, 56
_TICKS = 4
_OPENING = (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'font-family="sans-serif" font-size="12">'
)
_LEGEND = (
    f'<text x="{_WIDTH - _RIGHT}" y="22" text-anchor="end" fill="#666666">'
    "cost over computing everything once; dashed: no plan is below</text>"
)
_SMALLEST_SPAN = 0.01


def curve_svg(plans: Sequence[Plan], title: str) -> str:
    """An SVG picture: budgets from left to right, overheads in percent upwards.

    Args:
        plans: At least one, the smallest budget first.
        title: What is written above.
    """
    lowest, highest = plans[0].budget_bytes, plans[-1].budget_bytes
    most = max(_SMALLEST_SPAN, *(plan.overhead for plan in plans))

    def across(budget_bytes: float) -> float:
        span = max(1, highest - lowest)
        return _LEFT + (budget_bytes - lowest) / span * (_WIDTH - _LEFT - _RIGHT)

    def up(overhead: float) -> float:
        return _HEIGHT - _BOTTOM - overhead / most * (_HEIGHT - _TOP - _BOTTOM)

    found = [(across(plan.budget_bytes), up(plan.overhead)) for plan in plans]
    bound = [(across(plan.budget_bytes), up(plan.overhead - plan.gap)) for plan in plans]
    return "\n".join(
        [
            _OPENING,
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
            f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
            *_budget_ticks(lowest, highest, across),
            *_overhead_ticks(most, up),
            _line(bound, "#999999", dashes="5 4"),
            _line(found, "#1f6f8b"),
            *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#1f6f8b"/>' for x, y in found),
            _LEGEND,
            "</svg>",
            "",
        ]
    )


def _budget_ticks(lowest: int, highest: int, across: Callable[[float], float]) -> list[str]:
    y = _HEIGHT - _BOTTOM
    ticks = [f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="black"/>']
    for number in range(_TICKS + 1):
        budget_bytes = lowest + (highest - lowest) * number // _TICKS
        x = across(budget_bytes)
        ticks.append(
            f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{bytes_text(budget_bytes)}</text>'
        )
        ticks.append(
            f'<text x="{x:.1f}" y="{y + 34}" text-anchor="middle" fill="#666666">'
            f"{budget_bytes / highest:.0%}</text>"
        )
    return ticks


def _overhead_ticks(most: float, up: Callable[[float], float]) -> list[str]:
    ticks = []
    for number in range(_TICKS + 1):
        overhead = most * number / _TICKS
        y = up(overhead)
        ticks.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" '
            'stroke="#dddddd"/>'
        )
        ticks.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{overhead:.2%}</text>'
        )
    return ticks


def _line(points: Sequence[tuple[float, float]], color: str, dashes: str = "none") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" '
        f'stroke-dasharray="{dashes}"/>'
    )
