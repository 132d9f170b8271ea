"""The browser of the tests: Debian's Chromium, or the one that HOLDFAST_BROWSER names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING = "no Chromium found: run `make setup`, or name one in HOLDFAST_BROWSER"


def find_browser() -> str | None:
    """The executable, or None if there is none."""
    named = os.environ.get("HOLDFAST_BROWSER")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def launch(*flags: str) -> Iterator[Browser]:
    """A running browser."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=[*FLAGS, *flags], headless=True)
        try:
            yield browser
        finally:
            browser.close()
