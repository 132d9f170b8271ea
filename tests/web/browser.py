"""The browser of the tests: Debian's Chromium, or the one that HOLDFAST_BROWSER names."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


FONTS = Path(__file__).with_name("fonts.conf")


@contextmanager
def launch(*flags: str, fonts: Path | None = None) -> Iterator[Browser]:
    """A running browser; `fonts` says what the system's fonts are."""
    named: dict[str, str | float | bool] = {"FONTCONFIG_FILE": str(fonts)} if fonts else {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=[*FLAGS, *flags], headless=True, env={**os.environ, **named}
        )
        try:
            yield browser
        finally:
            browser.close()
