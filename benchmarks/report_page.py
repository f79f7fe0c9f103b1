"""Measures report pages: how large they are, how long they take to make, to open and to use.

Pages of steps in the shape of training, with 1,000 and 10,000 operations, are opened in the browser
that is installed here (Chromium, driven by playwright). Prints a table, and writes JSON if asked.
With `--pictures`, those of the documentation are made anew: a small GPT within half of its memory.

    python benchmarks/report_page.py [--json FILE] [--rounds N] [--pictures FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("ABSL_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pytest
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from support.browser import open_page, start_browser
from support.pages import training_report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from playwright.sync_api import Browser, Page

SIZES = (1_000, 10_000)
_NS_PER_MS = 1_000_000


class Figures(NamedTuple):
    """What was measured of one page; times in milliseconds, medians over the rounds.

    Attributes:
        operations: Of the step before it was rewritten.
        file_bytes: The file.
        render_ms: To make it, with the library in the cache folder.
        open_ms: From the start of loading until it can be used.
        zoom_ms: To draw another part of the step.
        hover_ms: To find and show the tensor under the pointer.
    """

    operations: int
    file_bytes: int
    render_ms: float
    open_ms: float
    zoom_ms: float
    hover_ms: float


def measure(browser: Browser, folder: Path, size: int, rounds: int) -> Figures:
    """Make a page, and open it as often as there are rounds."""
    report = training_report(size)
    report.to_html()
    render_ms = _median_ms(report.to_html, rounds)
    path = folder / f"page_{size}.html"
    path.write_text(report.to_html(), encoding="utf-8")
    opened, zoomed, hovered = [], [], []
    for _ in range(rounds):
        with open_page(browser, path) as (page, complaints):
            ready = "performance.getEntriesByName('ready')[0].startTime"
            opened.append(float(page.evaluate(ready)))
            page.locator("#chart").focus()
            zoomed.append(_pressed_ms(page, "+"))
            hovered.append(_pressed_ms(page, "ArrowUp"))
            assert not complaints, complaints
    return Figures(
        report.nodes_before,
        path.stat().st_size,
        render_ms,
        *(statistics.median(times) for times in (opened, zoomed, hovered)),
    )


def _median_ms(made: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start_ns = time.perf_counter_ns()
        made()
        times.append((time.perf_counter_ns() - start_ns) / _NS_PER_MS)
    return statistics.median(times)


def _pressed_ms(page: Page, key: str) -> float:
    """The time from a key until its effect is on the screen."""
    script = """key => new Promise(resolve => {
        const start = performance.now();
        const event = new KeyboardEvent("keydown", { key, bubbles: true });
        document.getElementById("chart").dispatchEvent(event);
        requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
    })"""
    return float(page.evaluate(script, key))


def draw_pictures(browser: Browser, folder: Path) -> None:
    """The pictures of the documentation, in both schemes."""
    import memopt
    from memopt.models import MODELS

    step = MODELS["gpt"](batch=16, layers=3, optimizer="sgd")
    result = memopt.optimize(step.function, budget="50%", algorithm="segments")
    leaner = memopt.rewrite(step.function, budget="50%", algorithm="segments", after_grappler=False)
    verification = memopt.verify(step.function, leaner, inputs=step.inputs)
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "page.html"
        path.write_text(result.to_html(verification), encoding="utf-8")
        for scheme in ("light", "dark"):
            with open_page(browser, path, scheme=scheme, width=1200, height=900) as (page, _):
                _point_at_an_activation(page)
                page.screenshot(path=folder / f"report_page_{scheme}.png")


def _point_at_an_activation(page: Page) -> None:
    box = page.locator("#chart").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.42, box["y"] + box["height"] * 0.6)
    page.wait_for_timeout(200)


def print_table(figures: Sequence[Figures]) -> None:
    """The figures, a line for each page."""
    table = Table(title="Report pages")
    for column in ("operations", "file", "made in", "opened in", "zoomed in", "pointed in"):
        table.add_column(column, justify="right")
    for each in figures:
        times = (each.render_ms, each.open_ms, each.zoom_ms, each.hover_ms)
        size = f"{each.file_bytes / 1e3:,.0f} kB"
        table.add_row(f"{each.operations:,}", size, *(f"{one:,.0f} ms" for one in times))
    console = Console()
    console.print(table)
    console.print(describe_machine(), highlight=False)


def main() -> None:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--rounds", type=int, default=5, help="how often each page is opened")
    parser.add_argument("--pictures", type=Path, help="a folder for the documentation's pictures")
    options = parser.parse_args()
    try:
        with start_browser() as browser, tempfile.TemporaryDirectory() as folder:
            if options.pictures is not None:
                draw_pictures(browser, options.pictures)
                return
            figures = [measure(browser, Path(folder), size, options.rounds) for size in SIZES]
    except pytest.skip.Exception as error:
        print(error.msg)
        return
    print_table(figures)
    if options.json is not None:
        options.json.write_text(json.dumps([each._asdict() for each in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
