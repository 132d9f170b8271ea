"""`make screenshots`: every view, light and dark, 1440 and 390 px wide, of the workspace of the story."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.web.browser import MISSING, find_browser, launch
from tests.web.site import NARROW, WIDE, Site

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WAITS = (("jun", "src/parser/fold.py"), ("lou", "src/parser/README.md"), ("cyd", "deploy"))
# By name: the segments of the address ("{key}" is the id of a task), and what shows that the view is there.
VIEWS = {
    "fleet": (("fleet",), ".fleet tbody tr"),
    "board": (("board",), ".card"),
    "graph": (("graph", "{release}"), ".node"),
    "timeline": (("timeline",), ".claim-bar"),
    "task": (("task", "{lexer}"), ".event"),
    "mail": (("mail",), ".letter"),
    "locks": (("locks",), "tr[data-lock] .chip"),
    "state": (("state", "cell", "run-7", "build?show=diff"), ".code .added"),
    "log": (("log",), ".event"),
    "server": (("server",), ".counts b"),
}

NARROW_SIGNS = {"mail": ".thread-row"}  # a narrow screen shows the list first


def main(names: Sequence[str]) -> int:
    """Photograph the views that are named, or all; returns the exit code."""
    if find_browser() is None:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-screenshots-"))
    site = Site(folder / "workspace")
    try:
        with launch() as browser, site.waiting(*WAITS):
            for size in (WIDE, NARROW):
                for dark in (False, True):
                    photograph(site, browser, size, dark, [*names] or [*VIEWS])
    finally:
        site.end()
        shutil.rmtree(folder)
    return 0


def photograph(site: Site, browser: Browser, size: tuple[int, int], dark: bool, names: Sequence[str]) -> None:
    with site.person(browser, "maya", size=size, dark=dark) as person:
        for name in names:
            address, sign = VIEWS[name]
            person.open(*(part.format(**site.ids) for part in address))
            sign = NARROW_SIGNS.get(name, sign) if size == NARROW else sign
            expect(person.find(sign).first).to_be_attached()
            person.page.evaluate("document.fonts.ready")
            file = IMAGES / f"{name}-{'dark' if dark else 'light'}{'' if size == WIDE else '-390'}.png"
            person.page.screenshot(path=file, animations="disabled")
            print(file.relative_to(IMAGES.parents[1]), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
