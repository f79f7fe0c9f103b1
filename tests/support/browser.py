"""A browser without a window, as it is installed on this machine; tests without one are skipped."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Error, Page, Request

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class OpenPage(NamedTuple):
    """A page in the browser, and what it did that it should not have.

    Attributes:
        page: The page, ready.
        complaints: Messages of the console, errors, dialogs and requests to elsewhere.
    """

    page: Page
    complaints: list[str]


@contextmanager
def start_browser() -> Iterator[Browser]:
    """The browser; the test is skipped if there is none, or nothing to drive it."""
    reason = "no browser is installed that opens pages; none is installed by tests"
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"{reason} ({', '.join(NAMES)})")
    api = pytest.importorskip("playwright.sync_api", reason=f"{reason}: playwright is missing")
    # A container's root has no sandbox to put it into.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, path: Path, *, scheme: str = "light", width: int = 1400, height: int = 1000
) -> Iterator[OpenPage]:
    """A page, opened from a file without a network.

    Args:
        browser: The browser.
        path: The file.
        scheme: "light" or "dark".
        width: Of the window, in pixels.
        height: Likewise.
    """
    complaints: list[str] = []
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
        reduced_motion="reduce",
    )

    def on_console(message: ConsoleMessage) -> None:
        complaints.append(f"console: {message.text}")

    def on_request(request: Request) -> None:
        if not request.url.startswith((path.as_uri(), "blob:", "data:")):
            complaints.append(f"request: {request.url}")

    def on_error(error: Error) -> None:
        complaints.append(f"error: {error}")

    def on_dialog(dialog: Dialog) -> None:
        complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", on_console)
    page.on("pageerror", on_error)
    page.on("request", on_request)
    page.on("dialog", on_dialog)
    page.goto(path.as_uri())
    page.locator("html[data-state=ready]").wait_for(state="attached")
    try:
        yield OpenPage(page, complaints)
    finally:
        page.close()
