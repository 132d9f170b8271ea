"""W15, W16: keyboard, narrow screens, axe-core, deep links; and hostile text is shown as text everywhere."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, expect

from holdfast import errors
from tests.web.site import NARROW, SIGNS, WIDE, Person, Site

SERIOUS = ("serious", "critical")
HOSTILE = {
    "script": "<script>window.ran = 1</script>",
    "image": "<img src=x onerror='window.ran = 1'>",
    "svg": "<svg onload=window.ran=1><a xlink:href=javascript:window.ran=1>x</a></svg>",
    "link": "[click](javascript:window.ran=1) ![i](data:text/html,<script>window.ran=1</script>)",
    "attribute": "\"' onfocus=window.ran=1 autofocus x='",
    "template": "${window.ran=1} {{window.ran=1}} <%= window.ran=1 %>",
    "bidi": "user\u202egnp.exe\u2066 \u200f",
    "unseen": "ad\u200bmin \u2060x\u00ady",
    "long": "x" * 100_000,
}


def show(person: Person, view: str, site: Site) -> Page:
    """Open a view and wait until it has been filled."""
    page = person.open(view, *([site.ids["lexer"]] if view == "task" else []))
    expect(page.locator(f"main {SIGNS[view]}").first).to_be_attached()
    expect(page.locator(".live")).to_have_text("live")
    return page


@pytest.mark.parametrize(
    ("dark", "size", "views"),
    [
        pytest.param(False, WIDE, ("fleet", "task", "timeline", "mail"), id="light-first"),
        pytest.param(False, WIDE, ("board", "graph", "locks", "state", "log", "server"), id="light-others"),
        pytest.param(True, WIDE, tuple(SIGNS), id="dark-wide"),
        pytest.param(False, NARROW, tuple(SIGNS), id="light-narrow"),
        pytest.param(True, NARROW, tuple(SIGNS), id="dark-narrow"),
    ],
)
def test_w15_axe_finds_nothing_serious_in_any_view(
    site: Site, chromium: Browser, dark: bool, size: tuple[int, int], views: tuple[str, ...]
) -> None:
    with site.person(chromium, "maya", size=size, dark=dark) as person:
        assert {view: found for view in views if (found := findings(show(person, view, site)))} == {}


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
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
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
    expect(page.get_by_role("dialog")).to_have_count(0)
    press("n")
    expect(page.get_by_role("dialog").get_by_label("Title")).to_be_focused()
    page.keyboard.type("made by keyboard")
    press("Enter")
    expect(page.locator("h1")).to_have_text("made by keyboard")
    press("c")
    expect(page.get_by_role("dialog")).to_contain_text("will be yours until")
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
    places = "[document.documentElement, document.querySelector('main')]"
    with site.person(chromium, "maya", size=(360, 740)) as person:
        for view in SIGNS:
            wide = show(person, view, site).evaluate(f"Math.max(...{places}.map(each => each.scrollWidth))")
            assert wide <= 360, view


def test_w15_deep_links_and_the_back_button_work(maya: Person, site: Site) -> None:
    page = maya.open("task", site.ids["parser"])
    expect(page.locator("h1")).to_have_text("write the parser")
    page.get_by_role("link", name="Log").first.click()
    expect(page).to_have_title("Log · Holdfast")
    page.go_back()
    expect(page.locator("h1")).to_have_text("write the parser")
    page.reload()
    expect(page.locator("h1")).to_have_text("write the parser")


def poison(site: Site) -> dict[str, str]:
    """Put each payload into each field that takes it; returns the tasks by payload."""
    ws, made = site.by("mallory"), {}
    for name, payload in HOSTILE.items():
        short = payload[:200]
        task = ws.tasks.create(short, payload, priority=0)
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


@pytest.mark.core
def test_w16_hostile_text_is_shown_as_text_and_nothing_runs(maya: Person, site: Site) -> None:
    maya.page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    poisoned = poison(site)
    for name, task in poisoned.items():
        page = maya.open("task", task)
        expect(page.locator("h1")).to_have_text(visible(HOSTILE[name][:200]))
        expect(page.locator(".event").first).to_be_visible()
        harmless(page, name)
    for view in SIGNS:
        page = show(maya, view, site)
        if view in ("fleet", "log", "board", "mail", "locks", "state"):
            expect(page.locator("main")).to_contain_text("window.ran")
        harmless(page, view)


def fields(site: Site, payload: str) -> dict[str, tuple[str, Callable[[], object]]]:
    """For each field: the address where a person sees it, and a call that puts the payload there."""
    ws, short, name = site.by("mallory"), payload[:200], payload[:60]
    cell = quote(name, "")
    summary, reject, cancel, release = (ws.tasks.create(f"task {n}", priority=0).id for n in range(4))
    for task in (summary, reject, release):
        ws.tasks.claim(task)
    ws.tasks.complete(reject, review=True)
    trail = ws.trails.create("of payloads").id
    cycle = ws.cycles.start(spec=f"payload-{len(ws.cycles.list(limit=1000))}").cycle_id
    ws.cycles.start_phase(cycle, "plan")
    asked, blocked = (ws.mail.send(["maya"], "a question", ack=True).id for _ in range(2))
    maya = site.by("maya")
    return {
        "summary": (f"task/{summary}", lambda: ws.tasks.complete(summary, summary=payload, review=True)),
        "reject": (f"task/{reject}", lambda: ws.tasks.reject(reject, reason=payload)),
        "cancel": (f"task/{cancel}", lambda: ws.tasks.cancel(cancel, reason=payload)),
        "release": (f"task/{release}", lambda: ws.tasks.release(release, reason=payload)),
        "reply": (f"mail/{asked}", lambda: ws.mail.reply(asked, payload)),
        "step": (f"mail/{blocked}", lambda: (maya.mail.ack(blocked), maya.mail.block(blocked, payload))),
        "phase": (f"state/cycle/{cycle}", lambda: ws.cycles.add_error(cycle, "plan", payload)),
        "cell": (f"state/cell/{cell}/{cell}", lambda: ws.cells.set(name, name, {short: payload})),
        "stash": ("log?kind=stash", lambda: ws.stashes.create(name, "context", {short: payload}, trail=trail)),
        "trail": ("state", lambda: ws.trails.create(name, state="active")),
        "path": ("locks", lambda: ws.paths.lock([f"lib/{name}/x"], reason=short)),
        "lock": ("locks", lambda: ws.locks.acquire(name)),
        "agent": ("log?kind=agent", lambda: ws.agents.register(name, program=short, can=[name])),
        "tag": ("board", lambda: ws.tasks.create(short, type="bug", tags=[name], priority=0)),
    }


def test_w16_each_payload_in_each_field_is_shown_as_text(maya: Person, site: Site) -> None:
    maya.page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
    shown: set[str] = set()
    for name, payload in HOSTILE.items():
        for field, (place, call) in fields(site, payload).items():
            try:
                call()
            except errors.HoldfastError:
                continue  # not every name may be anything
            maya.page.goto(f"{site.url}/ui/-/{place}")
            expect(maya.find("main")).to_contain_text(visible(payload)[:8])
            harmless(maya.page, f"{name} in {field}")
            shown.add(field)
    assert shown == set(fields(site, "plain")), "each was seen at least once"


def harmless(page: Page, what: str) -> None:
    """Nothing ran, and nothing is an element that could."""
    assert page.evaluate("window.ran") is None, what
    assert page.locator("main script, main img, main iframe, main object, main embed").count() == 0, what
    assert page.locator("main a[href^='javascript'], main a[href^='data']").count() == 0, what
    assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth"), what


def visible(text: str) -> str:
    """Text as the page shows it: characters that turn the direction or are not seen are named."""
    named = "\u202e\u2066\u200f\u200b\u2060\u00ad"
    return "".join(f"\u27e8U+{ord(char):04X}\u27e9" if char in named else char for char in text).strip()
