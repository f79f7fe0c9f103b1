"""Draws the memory of one real training step before and after, as TensorFlow's allocator had it.

The step runs in fresh processes, unchanged and within each budget; every allocation and free is
recorded, and all results are compared. Writes an SVG that reads on light and dark pages:

    python benchmarks/before_after_picture.py FILE.svg [--model NAME] [--mode exact|as-is]
        [--budgets SHARE ...]
"""

from __future__ import annotations

import argparse
import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")

import memopt
from memopt.models import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memopt.runtime.replay import Measurement

_MEBIBYTE = 1 << 20
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 56, 16, 40, 34
_COLORS = ("#d1495b", "#2e86ab", "#3a9d5d")
_INK = "#808080"
_TICKS = 4


class Curve(NamedTuple):
    """The memory of one run.

    Attributes:
        label: What ran.
        peak_bytes: The most that the step added to what it held at its start.
        points: Of each change of what is in use: the share of the step's time, and the bytes.
    """

    label: str
    peak_bytes: int
    points: list[tuple[float, int]]


def main() -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="resnet50", choices=sorted(MODELS))
    parser.add_argument("--mode", choices=["exact", "as-is"], default="as-is")
    parser.add_argument("--budgets", nargs="*", default=["50%", "25%"])
    arguments = parser.parse_args()
    curves = list(measure(arguments.model, arguments.mode, arguments.budgets))
    title = f"{arguments.model}: memory of one training step, on top of variables and inputs"
    arguments.file.write_text(draw(title, curves), encoding="utf-8")
    for curve in curves:
        print(f"{curve.label}: {curve.peak_bytes / _MEBIBYTE:.1f} MiB")


def measure(model: str, mode: str, budgets: Sequence[str]) -> Iterator[Curve]:
    """Run a model's step unchanged and within budgets.

    Raises:
        SystemExit: A rewritten step computes something else.
    """
    step = MODELS[model]()
    for number, budget in enumerate(budgets):
        graph_def = memopt.optimize(step.function, budget=budget).graph_def
        run = memopt.verify(
            step.function,
            graph_def,
            inputs=step.inputs,
            mode=mode,  # type: ignore[arg-type]  # argparse knows the choices
            timing_rounds=0,
        )
        if not run.within_tolerance:
            raise SystemExit(f"{model} within {budget} computes something else")
        if not number:
            yield curve_of("unchanged", run.original)
        yield curve_of(f"within {budget}", run.rewritten)


def curve_of(label: str, measured: Measurement) -> Curve:
    """The curve of a measured step."""
    end_ns = max(1, measured.timeline[-1].when_ns)
    points = [
        (entry.when_ns / end_ns, entry.in_use_bytes - measured.held_bytes)
        for entry in measured.timeline
    ]
    return Curve(label, measured.step_peak_bytes, points)


def draw(title: str, curves: Sequence[Curve]) -> str:
    """The picture."""
    highest = max(curve.peak_bytes for curve in curves) * 1.05
    style = f'font-family="sans-serif" font-size="13" fill="{_INK}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {style}>',
        f'<text x="{_LEFT}" y="20" font-size="15">{escape(title)}</text>',
        *_axis(highest),
    ]
    for number, curve in enumerate(curves):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in _corners(curve, highest))
        parts.append(
            f'<polygon points="{path}" fill="{color}" fill-opacity="0.25" stroke="{color}" '
            'stroke-width="1.2"/>'
        )
        y = _TOP + 6 + 18 * number
        text = f"{curve.label}: {curve.peak_bytes / _MEBIBYTE:.0f} MiB at the peak"
        parts.append(
            f'<text x="{_WIDTH - _RIGHT}" y="{y + 6}" text-anchor="end" fill="{color}" '
            f'font-weight="bold">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _axis(highest: float) -> Iterator[str]:
    for number in range(_TICKS + 1):
        value = highest * number / _TICKS
        y = _up(value, highest)
        yield (
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" '
            f'stroke="{_INK}" stroke-opacity="0.3"/>'
        )
        yield (
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
            f"{value / _MEBIBYTE:.0f}</text>"
        )
    yield f'<text x="{_LEFT}" y="{_HEIGHT - 10}">start of the step</text>'
    yield f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">its end</text>'
    yield f'<text x="{_LEFT - 6}" y="{_TOP - 6}" text-anchor="end">MiB</text>'


def _corners(curve: Curve, highest: float) -> Iterator[tuple[float, float]]:
    """The highest bytes within each pixel, as the outline of an area."""
    span = _WIDTH - _LEFT - _RIGHT
    columns = [0] * (span + 1)
    level, last = 0, 0
    for share, in_use_bytes in curve.points:
        column = round(min(1.0, max(0.0, share)) * span)
        for between in range(last, column + 1):
            columns[between] = max(columns[between], level)
        columns[column] = max(columns[column], in_use_bytes)
        level, last = in_use_bytes, column
    yield _LEFT, _up(0, highest)
    for column, in_use_bytes in enumerate(columns):
        yield _LEFT + column, _up(max(0, in_use_bytes), highest)
    yield _LEFT + span, _up(0, highest)


def _up(value: float, highest: float) -> float:
    return _HEIGHT - _BOTTOM - value / highest * (_HEIGHT - _TOP - _BOTTOM)


if __name__ == "__main__":
    main()
