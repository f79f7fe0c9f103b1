"""The page in a real browser: it draws, tells what is pointed at, searches; names do nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support.browser import open_page, start_browser
from support.pages import training_report

from memopt.fleets.report import FleetReport, FleetTask

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page
    from support.browser import OpenPage

pytestmark = pytest.mark.browser

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028<svg onload=alert(2)>"
DRAWN_SHARE = 0.15
"""Of the chart, what is at least neither empty nor grid."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as started:
        yield started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.html"
    path.write_text(training_report(210).to_html(), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser: Browser, file: Path) -> Iterator[OpenPage]:
    with open_page(browser, file) as found:
        yield found
        assert found.complaints == []


def details(page: Page) -> str:
    return page.locator("#details").inner_text()


def point(page: Page, across: float, up: float) -> None:
    """Move the pointer to a place of the chart, given as shares of its width and height."""
    box = page.locator("#chart").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"])
    page.wait_for_timeout(50)


def coloured_share(page: Page, chart: str = "chart") -> float:
    """The share of a chart's pixels that are coloured, which neither axes nor text are."""
    script = """canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let coloured = 0;
        for (let at = 0; at < data.length; at += 4) {
            const [r, g, b] = data.slice(at, at + 3);
            coloured += Math.max(r, g, b) - Math.min(r, g, b) > 60;
        }
        return 4 * coloured / data.length;
    }"""
    return float(page.locator(f"#{chart} canvas").evaluate(script))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_without_a_complaint(browser: Browser, file: Path, scheme: str) -> None:
    with open_page(browser, file, scheme=scheme) as (page, complaints):
        assert coloured_share(page) > DRAWN_SHARE
        assert "activations" in page.locator("#legend").inner_text()
        assert page.locator("#failure").is_hidden()
        assert complaints == []


def test_pointing_tells_what_a_tensor_is(opened: OpenPage) -> None:
    page = opened.page
    assert "in use" in details(page)
    point(page, 0.4, 0.45)
    found = details(page)
    for what in ("size", "kind", "made by", "Read by", "in use"):
        assert what in found
    assert re.search(r"model/layer_\d+/(Relu|MatMul)", found)


def test_clicking_holds_and_says_why(opened: OpenPage) -> None:
    page = opened.page
    point(page, 0.4, 0.45)
    page.mouse.down()
    page.mouse.up()
    held = details(page)
    assert "held; Esc lets go" in held
    assert "Why" in held
    point(page, 0.7, 0.3)
    assert details(page) == held
    page.keyboard.press("Escape")
    assert "held; Esc" not in details(page)


def test_dragging_zooms_and_a_double_click_shows_all(opened: OpenPage) -> None:
    page = opened.page
    whole = page.locator("#chart canvas").screenshot()
    point(page, 0.3, 0.5)
    page.mouse.down()
    point(page, 0.4, 0.5)
    assert page.locator("#chart svg.over rect").count() == 1
    page.mouse.up()
    page.wait_for_timeout(150)
    assert page.locator("#chart canvas").screenshot() != whole
    page.mouse.dblclick(600, 500)
    page.keyboard.press("Escape")
    page.wait_for_timeout(150)
    assert coloured_share(page) > DRAWN_SHARE


def test_runs_and_stacking_can_be_chosen(opened: OpenPage) -> None:
    page = opened.page
    assert "recomputed" in page.locator("#legend").inner_text()
    page.get_by_label("before", exact=True).check()
    assert "recomputed" not in page.locator("#legend").inner_text()
    assert "in use" in details(page)


def test_the_keyboard_reaches_everything(opened: OpenPage) -> None:
    page = opened.page
    page.locator("#chart").focus()
    outline = page.locator("#chart").evaluate("one => getComputedStyle(one).outlineStyle")
    assert outline != "none"
    page.keyboard.press("p")
    assert "the peak" in details(page)
    page.keyboard.press("ArrowUp")
    first = details(page)
    assert "made by" in first
    page.keyboard.press("ArrowUp")
    assert details(page) != first
    page.keyboard.press("Enter")
    assert "held; Esc lets go" in details(page)
    page.keyboard.press("ArrowRight")
    assert "held; Esc" not in details(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"query", "what", "by", "BUTTON", "SUMMARY"} <= reached


def test_the_search_finds_nodes_and_reasons(opened: OpenPage) -> None:
    page = opened.page
    rows = page.locator("#rows tr")
    everything = rows.count()
    page.locator("#query").fill("layer_3/relu without recomputing")
    assert rows.count() == 1
    assert "model/layer_3/Relu" in rows.first.inner_text()
    page.locator("#query").fill("")
    assert rows.count() == everything
    page.locator("#what").select_option(label="recomputed (21)")
    assert 0 < rows.count() < everything
    page.locator("#query").fill("no such node")
    assert rows.first.inner_text() == "Nothing is found."
    assert page.locator("#found").inner_text().startswith("0 of")


def test_tables_lead_to_the_chart(opened: OpenPage) -> None:
    page = opened.page
    button = page.locator("#peak button.link").nth(3)
    name = button.inner_text()
    button.click()
    assert details(page).startswith(name)
    assert page.locator("#chart svg.over path.marked").count() == 1
    page.locator("#query").fill("layer_4/relu recomputed")
    page.locator("#rows button").last.click()
    assert details(page).startswith("model/layer_4/Relu")
    assert "recomputed" in details(page)


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(training_report(70, HOSTILE).to_html(), encoding="utf-8")
    with open_page(browser, path) as (page, complaints):
        point(page, 0.4, 0.45)
        page.mouse.down()
        page.mouse.up()
        assert "<img src=x onerror=alert(1)>" in details(page)
        page.locator("#query").fill("onerror")
        assert "onerror" in page.locator("#rows").inner_text()
        page.locator("#rows button").first.click()
        page.locator("#peak button.link").first.click()
        page.wait_for_timeout(200)
        assert page.locator("img, svg[onload], iframe").count() == 0
        assert complaints == []


def test_a_narrow_window_has_no_sideways_scrolling(browser: Browser, file: Path) -> None:
    with open_page(browser, file, width=420, height=800) as (page, complaints):
        wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(wide) <= 0
        assert coloured_share(page) > DRAWN_SHARE / 2
        assert complaints == []


@pytest.mark.parametrize("count", [3, 300])
def test_the_peaks_of_a_fleet_are_drawn(browser: Browser, tmp_path: Path, count: int) -> None:
    figures = {
        "peak_before_bytes": 90 << 20,
        "peak_after_bytes": 50 << 20,
        "budget_bytes": 54 << 20,
    }
    tasks = [
        FleetTask(f"a/{HOSTILE}{n}", "60%", "", "done", functions=(figures,)) for n in range(count)
    ]
    tasks.append(FleetTask("broken", "60%", "", "failed", kind="refused", reason="no graph"))
    report = FleetReport("out", tuple(tasks), 1.0, 2, {"memopt": "1"})
    path = tmp_path / "fleet.html"
    path.write_text(report.to_html(), encoding="utf-8")
    with open_page(browser, path) as (page, complaints):
        # As far as bars of five ninths and nine ninths of the width cover rows.
        assert 0.02 < coloured_share(page, "compared") < 0.3
        box = page.locator("#compared").bounding_box()
        assert box is not None
        assert box["height"] < 1000
        assert ("the first 200 are drawn" in page.locator("body").inner_text()) == (count > 200)
    assert complaints == []
