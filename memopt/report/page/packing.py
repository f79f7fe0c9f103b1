"""A page's charts and decisions as compact JSON: columns, and every text once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memopt.report.page.grouping import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memopt.report.page.model import Chart, Decision, Operation, Page, Tensor, Track


def packed(page: Page) -> bytes:
    """What the page's script draws, as JSON in ASCII. The same page has the same bytes."""
    texts = _Texts()
    plain = {
        "kinds": KINDS,
        "charts": [_chart(chart, texts) for chart in page.charts],
        "decisions": _decisions(page.decisions, texts),
        "budgets": None if page.budgets is None else page.budgets._asdict(),
        "peaks": None if page.peaks is None else page.peaks._asdict(),
        # Last: what comes before adds to it.
        "texts": texts.all,
    }
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=True).encode()


class _Texts:
    """Every text once: names stand in operations, tensors and decisions, before and after."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        number = self._numbers.setdefault(text, len(self.all))
        if number == len(self.all):
            self.all.append(text)
        return number


def _chart(chart: Chart, texts: _Texts) -> dict[str, Any]:
    return {
        "title": chart.title,
        "axis": chart.axis,
        "unit": chart.unit,
        "tracks": [_track(track, texts) for track in chart.tracks],
        "curves": [curve._asdict() for curve in chart.curves],
        "lines": [line._asdict() for line in chart.lines],
    }


def _track(track: Track, texts: _Texts) -> dict[str, Any]:
    return {
        "title": track.title,
        "moments": track.moments,
        "peak_bytes": track.peak_bytes,
        "peak_at": track.peak_at,
        "times": track.times,
        "operations": _operations(track.operations, texts),
        "tensors": _tensors(track.tensors, texts),
    }


def _operations(operations: Sequence[Operation], texts: _Texts) -> dict[str, Any]:
    in_turn = all((one.start, one.end) == (at, at + 1) for at, one in enumerate(operations))
    return {
        "name": [texts.number(one.name) for one in operations],
        "op": [texts.number(one.op) for one in operations],
        "device": [texts.number(one.device) for one in operations],
        "kind": [one.kind for one in operations],
        "start": None if in_turn else [one.start for one in operations],
        "end": None if in_turn else [one.end for one in operations],
    }


def _tensors(tensors: Sequence[Tensor], texts: _Texts) -> dict[str, Any]:
    return {
        "name": [texts.number(one.name) for one in tensors],
        "maker": [one.maker for one in tensors],
        "size": [one.size_bytes for one in tensors],
        "birth": [one.birth for one in tensors],
        "end": [one.end for one in tensors],
        "kind": [one.kind for one in tensors],
        "layer": [texts.number(one.layer) for one in tensors],
        "readers": [one.readers for one in tensors],
        "reader_count": [one.reader_count for one in tensors],
    }


def _decisions(decisions: Sequence[Decision], texts: _Texts) -> dict[str, Any]:
    return {
        "what": [texts.number(one.what) for one in decisions],
        "node": [texts.number(one.node) for one in decisions],
        "reason": [texts.number(one.reason) for one in decisions],
        "by": [texts.number(one.by) for one in decisions],
        "count": [one.number for one in decisions],
        "effect": [one.effect_bytes for one in decisions],
        "chart": [one.chart for one in decisions],
        "nodes": [[texts.number(name) for name in one.nodes] for one in decisions],
    }
