"""`make screenshots`: every view, light and dark, 1440 and 390 px wide, of the workspace of the story.

And what is seen at the edges of a session: signing in, a workspace without agents, a lost connection.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.web.browser import FONTS, MISSING, find_browser, launch
from tests.web.seed import seed
from tests.web.site import NARROW, WIDE, Site

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WAITS = (("jun", "src/parser/fold.py"), ("lou", "src/parser/README.md"), ("cyd", "deploy"))
# By name: the segments of the address ("{key}" is the id of a task), and what shows that the view is there.
VIEWS = {
    "fleet": (("fleet",), ".fleet tbody tr"),
    "board": (("board",), ".card"),
    "graph": (("graph", "{release}"), ".node"),
    "timeline": (("timeline",), ".claim-bar"),
    "task": (("task", "{lexer}"), ".facts-rail .section"),
    "mail": (("mail",), ".letter"),
    "locks": (("locks",), "tr[data-lock] .chip"),
    "state": (("state", "cell", "run-7", "build?show=diff"), ".code .added"),
    "log": (("log",), ".event"),
    "server": (("server",), ".rate-bar"),
}

NARROW_SIGNS = {"mail": ".thread-row"}  # a narrow screen shows the list first


def main(names: Sequence[str]) -> int:
    """Photograph the views that are named, or all; returns the exit code."""
    if find_browser() is None:
        print(MISSING, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-screenshots-"))
    site = Site(folder / "workspace", seed(folder / "workspace", hurry=True))
    bare = Site(folder / "empty")
    chosen = [*names] or [*VIEWS, *EDGES]
    try:
        with launch(fonts=FONTS) as browser, site.waiting(*WAITS):
            for size in (WIDE, NARROW):
                for dark in (False, True):
                    photograph(site, browser, size, dark, [name for name in chosen if name in VIEWS])
            for name in EDGES:
                if name in chosen:
                    EDGES[name](bare if name == "empty" else site, browser)
    finally:
        for each in (site, bare):
            each.end()
        shutil.rmtree(folder)
    return 0


def photograph(site: Site, browser: Browser, size: tuple[int, int], dark: bool, names: Sequence[str]) -> None:
    with site.person(browser, "maya", size=size, dark=dark) as person:
        for name in names:
            address, sign = VIEWS[name]
            person.open(*(part.format(**site.ids) for part in address))
            sign = NARROW_SIGNS.get(name, sign) if size == NARROW else sign
            expect(person.find(sign).first).to_be_attached()
            keep(person.page, name, dark, size)


def keep(page: Page, name: str, dark: bool = False, size: tuple[int, int] = WIDE) -> None:
    """Write the picture of a page."""
    page.evaluate("document.fonts.ready")
    file = IMAGES / f"{name}-{'dark' if dark else 'light'}{'' if size == WIDE else '-390'}.png"
    page.screenshot(path=file, animations="disabled")
    print(file.relative_to(IMAGES.parents[1]), flush=True)


def sign_in(site: Site, browser: Browser) -> None:
    """A link that was used already."""
    context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
    page = context.new_page()
    page.goto(f"{site.url}/ui/#ticket=used")
    expect(page.get_by_role("alert").first).to_be_visible()
    keep(page, "sign-in")
    context.close()


def empty(site: Site, browser: Browser) -> None:
    """A workspace without agents."""
    with site.person(browser, "maya") as person:
        expect(person.open("fleet").get_by_text("No agent has written here yet")).to_be_visible()
        keep(person.page, "empty")


def lost(site: Site, browser: Browser) -> None:
    """A server that does not answer any more."""
    with site.person(browser, "maya") as person:
        expect(person.open("fleet").locator(".fleet tbody tr").first).to_be_attached()
        expect(person.find(".live")).to_have_text("live")
        site.server.end()
        expect(person.find(".banner")).to_contain_text("3rd time")
        keep(person.page, "lost")


EDGES = {"sign-in": sign_in, "empty": empty, "lost": lost}  # the last one ends the server


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
