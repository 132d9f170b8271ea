"""W15, W16: keyboard, narrow screens, axe-core, deep links; and hostile text is shown as text everywhere."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from holdfast import errors
from tests.web.site import NARROW, WIDE, Person, Site

SERIOUS = ("serious", "critical")
HOSTILE = {
    "script": "<script>window.ran = 1</script>",
    "image": "<img src=x onerror='window.ran = 1'>",
    "svg": "<svg onload=window.ran=1><a xlink:href=javascript:window.ran=1>x</a></svg>",
    "link": "[click](javascript:window.ran=1) ![i](data:text/html,<script>window.ran=1</script>)",
    "attribute": "\"' onfocus=window.ran=1 autofocus x='",
    "template": "${window.ran=1} {{window.ran=1}} <%= window.ran=1 %>",
    "bidi": "user\u202egnp.exe\u2066 \u200f",
    "long": "x" * 20_000,
}


def views(site: Site) -> list[tuple[str, ...]]:
    """Every view that is there, as its address."""
    return [("fleet",), ("task", site.ids["lexer"]), ("log",), ("server",)]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_w15_axe_finds_nothing_serious_in_any_view(
    site: Site, chromium: Browser, dark: bool, size: tuple[int, int]
) -> None:
    with site.person(chromium, "maya", size=size, dark=dark) as person:
        for address in views(site):
            page = person.open(*address)
            expect(page.locator(".live")).to_have_text("live")
            expect(page.locator("main h1")).to_be_visible()
            expect(page.locator("main :is(time, .counts b)").first).to_be_attached()
            assert findings(page) == [], address


def test_w15_axe_finds_nothing_serious_on_the_sign_in_and_in_a_dialog(maya: Person, site: Site) -> None:
    page = maya.open("task", site.ids["lexer"])
    page.locator("[data-name=edit]").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert findings(page) == []
    context = page.context.browser.new_context()  # type: ignore[union-attr]
    other = context.new_page()
    other.goto(site.url)
    expect(other.get_by_role("heading", name="Sign in to this server")).to_be_visible()
    assert findings(other) == []
    context.close()


def findings(page: Page) -> list[Any]:
    """What axe-core calls serious or critical."""
    found = Axe().run(page).response["violations"]
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found if each["impact"] in SERIOUS
    ]


def test_w15_the_whole_flow_by_keyboard(maya: Person, site: Site) -> None:
    page = maya.open("log")
    press = page.keyboard.press
    expect(page.locator(".live")).to_have_text("live")
    press("g")
    press("f")
    expect(page).to_have_url(f"{site.url}/ui/-/fleet")
    expect(page.locator("tbody tr").first).to_be_visible()
    press("?")
    expect(page.get_by_role("dialog", name="keys")).to_contain_text("g l")
    press("Escape")
    press("n")
    page.keyboard.type("made by keyboard")
    press("Enter")
    expect(page.locator("h1")).to_have_text("made by keyboard")
    press("c")
    expect(page.get_by_role("dialog")).to_contain_text("is yours until")
    press("Enter")
    expect(page.locator(".task-facts")).to_contain_text("held by maya")
    press("m")
    page.keyboard.type("a note by keyboard")
    press("Enter")
    expect(page.locator(".event").first).to_contain_text("a note by keyboard")
    press("Tab")
    page.locator("h1").click()
    press("d")
    press("Tab")
    press("Tab")
    press("Enter")
    expect(page.locator(".task-facts")).to_contain_text("closed")
    press("/")
    page.keyboard.type("move the lexer")
    expect(page.locator(".search-list a").first).to_contain_text("move the lexer")
    press("ArrowDown")
    press("Enter")
    expect(page.locator("h1")).to_have_text("move the lexer")
    page.go_back()
    expect(page.locator("h1")).to_have_text("made by keyboard")
    press("g")
    press("f")
    expect(page.locator("tbody tr").first).to_be_visible()
    press("j")
    press("j")
    press("k")
    assert page.evaluate("document.activeElement.rowIndex") == 1
    press("Enter")
    expect(page).not_to_have_url(f"{site.url}/ui/-/fleet")


def test_w15_nothing_is_wider_than_a_screen_of_360_pixels(site: Site, chromium: Browser) -> None:
    others = [("board",), ("graph",), ("timeline",), ("mail",), ("locks",), ("state",)]
    places = "[document.documentElement, document.querySelector('main')]"
    with site.person(chromium, "maya", size=(360, 740)) as person:
        for address in [*views(site), *others]:
            page = person.open(*address)
            expect(page.locator("main :is(time, .counts b, .card, svg text, tr, .row)").first).to_be_attached()
            wide = page.evaluate(f"Math.max(...{places}.map(each => each.scrollWidth))")
            assert wide <= 360, address


def test_w15_deep_links_and_the_back_button_work(maya: Person, site: Site) -> None:
    page = maya.open("task", site.ids["parser"])
    expect(page.locator("h1")).to_have_text("write the parser")
    page.get_by_role("link", name="Log").first.click()
    expect(page).to_have_title("Log · Holdfast")
    page.go_back()
    expect(page.locator("h1")).to_have_text("write the parser")
    page.reload()
    expect(page.locator("h1")).to_have_text("write the parser")


@pytest.fixture(scope="module")
def poisoned(site: Site) -> dict[str, str]:
    """Each payload in each field that takes it; returns the tasks by payload."""
    ws, made = site.by("mallory"), {}
    for name, payload in HOSTILE.items():
        short = payload[:200]
        task = ws.tasks.create(short, payload)
        made[name] = task.id
        other = site.by(short[:60])
        acts: list[tuple[Any, ...]] = [
            (ws.tasks.add_tags, task.id, [short[:60]]),
            (ws.tasks.note, task.id, payload),
            (ws.tasks.update, task.id, None, f"{payload}\n\nmore"),
            (ws.cells.set, short[:60], short[:60], payload),
            (ws.mail.send, "maya", short, payload),
            (ws.locks.acquire, short[:60]),
            (other.tasks.claim, task.id),
            (other.tasks.block, task.id, None, payload),
        ]
        for call, *given in acts:
            with suppress(errors.HoldfastError):  # some names are refused, and so cannot be shown
                call(*given)
    return made


def test_w16_hostile_text_is_shown_as_text_and_nothing_runs(maya: Person, poisoned: dict[str, str]) -> None:
    maya.page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    for name, task in poisoned.items():
        page = maya.open("task", task)
        expect(page.locator("h1")).to_have_text(visible(HOSTILE[name][:200]))
        expect(page.locator(".event").first).to_be_visible()
        harmless(page, name)
    for view in ("fleet", "log", "board", "mail", "locks", "state"):
        page = maya.open(view)
        expect(page.locator("main")).to_contain_text("window.ran")
        harmless(page, view)
    for view in ("graph", "timeline"):
        page = maya.open(view)
        expect(page.locator("main svg text").first).to_be_attached()
        harmless(page, view)
    signs = {"board": ".card", "graph": ".node", "timeline": ".lane[data-agent]", "mail": ".letter"}
    for view, sign in {**signs, "locks": "tr[data-lock]", "state": ".state-detail tbody tr"}.items():
        page = maya.open(view)
        expect(page.locator(sign).first).to_be_attached()
        harmless(page, view)


def harmless(page: Page, what: str) -> None:
    """Nothing ran, and nothing is an element that could."""
    assert page.evaluate("window.ran") is None, what
    assert page.locator("main script, main img, main iframe, main object, main embed").count() == 0, what
    assert page.locator("main a[href^='javascript'], main a[href^='data']").count() == 0, what
    assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth"), what


def visible(text: str) -> str:
    """Text as the page shows it: characters that turn the direction are named."""
    turned = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    return "".join(f"\u27e8U+{ord(char):04X}\u27e9" if char in turned else char for char in text).strip()
