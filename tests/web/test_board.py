"""The board in a real browser: drag, keys, refusals, filters, pages (W4)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Locator, expect

from holdfast.faces.http.auth import Tokens
from tests.web.site import NARROW, Person, Site


def card(person: Person, id: str, column: str | None = None) -> Locator:
    """The card of a task, in a column if one is named."""
    place = "" if column is None else f'[data-column="{column}"] '
    return person.find(f'{place}.card[data-id="{id}"]')


def answer(person: Person, verb: str, words: str = "") -> None:
    """Fill the dialog that is open, and act."""
    dialog = person.find("dialog")
    if words:
        dialog.locator("input, textarea").first.fill(words)
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0)


def make(site: Site, title: str, holder: str | None = None) -> str:
    """A task of priority 0, so that it is on the first page; claimed if somebody is named."""
    ws = site.by(holder or "maya")
    id: str = ws.tasks.create(title, priority=0).id
    if holder:
        ws.tasks.claim(id, ttl=900)
    return id


@pytest.mark.core
def test_w4_a_card_is_dragged_to_claim_it_and_a_dialog_says_until_when(site: Site, maya: Person) -> None:
    id = make(site, "drag me")
    maya.open("board")
    source, target = card(maya, id, "open"), maya.find('.column[data-column="in_progress"]')
    source.hover()
    maya.page.mouse.down()
    target.hover()
    target.hover()
    expect(target).to_have_class(re.compile(r"\btarget"))
    expect(maya.find('.column[data-column="review"]')).to_have_class(re.compile("no-target"))
    maya.sees(".board-hint", f"Moving {id}. From open it can go to in progress or closed.")
    maya.page.mouse.up()
    maya.sees("dialog", "will be yours until")
    answer(maya, "Claim")
    expect(card(maya, id, "in_progress")).to_contain_text("maya")
    card(maya, id).focus()
    maya.page.keyboard.press("r")
    expect(card(maya, id, "open")).to_be_visible()


def test_w4_a_refusal_is_shown_at_the_card_and_an_admin_forces_with_a_reason(site: Site, maya: Person) -> None:
    id = make(site, "held by zoe", "zoe")
    maya.open("board")
    card(maya, id, "in_progress").drag_to(maya.find('.column[data-column="review"]'))
    expect(card(maya, id, "in_progress")).to_contain_text("Only the holder moves it to review.")
    card(maya, id).get_by_role("button", name="force release…").click()
    answer(maya, "Release by force", "zoe is gone")
    expect(card(maya, id, "open")).to_be_visible()
    ws = site.by("maya")
    assert ws.tasks.get(id).claimed_by is None
    assert "zoe is gone" in {entry.note for entry in ws.tasks.history(id)}


# Where a card is dragged, what the dialog is to do, and the words that it asks for.
JOURNEY = (
    ("closed", "Close", "not wanted"),
    ("open", "Reopen", "wanted again"),
    ("in_progress", "Claim", ""),
    ("open", "", ""),
    ("in_progress", "Claim", ""),
    ("blocked", "Block", "no key"),
    ("closed", "Close", "done elsewhere"),
    ("open", "Reopen", ""),
    ("in_progress", "Claim", ""),
    ("review", "", ""),
    ("blocked", "Reject", "tests are missing"),
    ("open", "Unblock", "here they are"),
    ("in_progress", "Claim", ""),
    ("review", "", ""),
    ("closed", "", ""),
    ("open", "Reopen", ""),
    ("in_progress", "Claim", ""),
    ("closed", "", ""),
)


def test_w4_a_card_is_dragged_along_every_way_that_a_task_can_go(site: Site, maya: Person) -> None:
    id = make(site, "a long journey")
    maya.open("board")
    column = "open"
    for target, verb, words in JOURNEY:
        card(maya, id, column).drag_to(maya.find(f'.column[data-column="{target}"]'))
        if verb:
            answer(maya, verb, words)
        expect(card(maya, id, target)).to_be_visible()
        column = target
    notes = {entry.note for entry in site.by("maya").tasks.history(id)}
    assert {words for _, _, words in JOURNEY if words} <= notes


TARGETS = {
    "open": {"in_progress", "closed"},
    "in_progress": {"open", "review", "blocked", "closed"},
    "review": {"closed", "blocked"},
    "blocked": {"open", "closed"},
    "closed": {"open"},
}


def test_w4_only_the_columns_that_a_card_can_go_to_are_targets(site: Site, maya: Person) -> None:
    id = make(site, "no further than that")
    maya.open("board")
    make(site, "my own", "maya")
    for column, targets in TARGETS.items():
        source = maya.find(f'.column[data-column="{column}"]')
        source.locator(".card", has_text="my own" if column == "in_progress" else None).first.hover()
        maya.page.mouse.down()
        source.locator(".column-head").hover()
        source.locator(".column-head").hover()
        expect(maya.find(".column.target")).to_have_count(len(targets))
        shown = maya.find(".column.target").evaluate_all("found => found.map(each => each.dataset.column)")
        assert set(shown) == targets, column
        expect(maya.find(".column.no-target")).to_have_count(len(TARGETS) - 1 - len(targets))
        maya.page.mouse.up()  # where it came from: nothing happens
        expect(maya.find(".column.target")).to_have_count(0)
    before = site.by("maya").revision
    card(maya, id, "open").drag_to(maya.find('.column[data-column="review"]'))
    expect(card(maya, id, "open").get_by_role("alert")).to_contain_text("From open it can go to in progress or closed.")
    assert (site.by("maya").revision, maya.find("dialog").count()) == (before, 0)


@pytest.mark.parametrize(("column", "key"), [("open", "x"), ("open", "r"), ("closed", "d")])
def test_w4_a_key_that_a_card_does_not_take_says_what_it_takes(site: Site, maya: Person, column: str, key: str) -> None:
    id = make(site, "not that way")
    if column == "closed":
        site.by("maya").tasks.close(id)
    maya.open("board")
    expect(card(maya, id, column)).to_be_visible()
    before = site.by("maya").revision
    card(maya, id).focus()
    maya.page.keyboard.press(key)
    expect(card(maya, id, column).get_by_role("alert")).to_contain_text(f"From {column} it can go to")
    assert (site.by("maya").revision, maya.find("dialog").count()) == (before, 0)


def test_w4_a_card_of_somebody_else_has_no_target_and_says_who_holds_it(site: Site, maya: Person) -> None:
    id = make(site, "held by zoe", "zoe")
    maya.open("board")
    card(maya, id, "in_progress").hover()
    maya.page.mouse.down()
    column = maya.find('.column[data-column="review"]')
    column.hover()
    column.hover()
    maya.sees(".board-hint", "zoe holds it for")
    maya.sees(".board-hint", "Only the holder moves it.")
    expect(maya.find(".column.target")).to_have_count(0)
    maya.page.mouse.up()
    expect(card(maya, id, "in_progress").get_by_role("alert")).to_contain_text("Only the holder moves it to review.")


@pytest.mark.parametrize("way", ["drag", "menu", "key"])
def test_w4_closing_an_open_card_says_that_what_waits_for_it_goes_on_and_so_it_does(
    site: Site, maya: Person, way: str
) -> None:
    ws = site.by("maya")
    id = make(site, "wanted by another")
    waits = ws.tasks.create("waits for it", priority=0, depends_on=[id]).id
    maya.open("board")
    expect(card(maya, waits)).to_have_count(1)
    if way == "drag":
        card(maya, id, "open").drag_to(maya.find('.column[data-column="closed"]'))
    else:
        card(maya, id, "open").focus()
        maya.page.keyboard.press("m" if way == "menu" else "d")
    if way == "menu":
        maya.find("dialog select").select_option("closed")
        maya.page.get_by_role("button", name="Move", exact=True).click()
    maya.sees("dialog", "what waits for it can go on")
    answer(maya, "Close", "not needed")
    expect(maya.find(f'[data-group="ready"] .card[data-id="{waits}"]')).to_be_visible()
    assert (ws.tasks.get(id).status, ws.tasks.explain(waits).ready) == ("closed", True)


@pytest.mark.parametrize("target", sorted(TARGETS["in_progress"]))
def test_w4_a_drag_that_is_refused_goes_back_and_says_why(site: Site, chromium: Browser, target: str) -> None:
    id = make(site, "held by zoe", "zoe")
    token = Tokens(site.server.folder).create("agent", actor="noa")[1]
    with site.person(chromium, "noa", token=token) as noa:
        noa.open("board")
        card(noa, id, "in_progress").drag_to(noa.find(f'.column[data-column="{target}"]'))
        expect(card(noa, id, "in_progress").get_by_role("alert")).to_contain_text("Only the holder moves it")
        assert noa.page.get_by_role("button", name="force release").count() == 0, "force is for admins"
        card(noa, id).click()  # it goes when the card is touched
        expect(card(noa, id, "in_progress").get_by_role("alert")).to_have_count(0)
    held = site.by("zoe").tasks.get(id)
    assert (held.status, held.claimed_by) == ("in_progress", "zoe")


def test_w4_a_claim_that_came_too_late_is_refused_at_the_card(site: Site, maya: Person) -> None:
    id = make(site, "wanted by two")
    maya.open("board")
    card(maya, id, "open").drag_to(maya.find('.column[data-column="in_progress"]'))
    maya.page.route("**/api/board?**", lambda route: route.abort())  # the news comes later than the click
    site.by("zoe").tasks.claim(id)
    answer(maya, "Claim")
    refusal = card(maya, id).get_by_role("alert")
    expect(refusal).to_contain_text(re.compile(r"claimed by zoe since \d\d:\d\d\. Take another one\."))
    assert not re.search(r"POST|GET|/api/|T\d\d:", refusal.inner_text()), "a person is not told how to call the server"
    assert card(maya, id).evaluate("card => card.scrollWidth <= card.clientWidth"), "it stays in its card"
    box, priority = card(maya, id).bounding_box(), card(maya, id).locator(".priority").bounding_box()
    assert box
    assert priority
    assert priority["x"] + priority["width"] <= box["x"] + box["width"]
    maya.page.unroute("**/api/board?**")
    assert site.by("zoe").tasks.get(id).claimed_by == "zoe"


def test_w4_a_dialog_that_somebody_else_overtakes_says_so(site: Site, maya: Person) -> None:
    id = make(site, "wanted by two")
    maya.open("board")
    card(maya, id, "open").drag_to(maya.find('.column[data-column="in_progress"]'))
    maya.sees("dialog", "will be yours until")
    site.by("zoe").tasks.claim(id)
    maya.sees("dialog", "zoe was faster: it is in progress by now.")
    expect(maya.page.get_by_role("button", name="Claim", exact=True)).to_be_disabled()
    maya.page.get_by_role("button", name="Cancel").click()
    expect(card(maya, id, "in_progress")).to_contain_text("zoe")


def test_w4_a_card_is_opened_by_its_title_and_by_itself_and_back_leads_to_the_board(site: Site, maya: Person) -> None:
    id = make(site, "open me")
    maya.open("board", query="?priority=0")
    card(maya, id).locator(".card-title").click()
    expect(maya.page.locator("h1")).to_have_text("open me")
    maya.page.go_back()
    card(maya, id).click(position={"x": 4, "y": 4})
    expect(maya.page.locator("h1")).to_have_text("open me")
    maya.page.go_back()
    expect(card(maya, id)).to_be_visible()
    assert maya.page.url.endswith("/board?priority=0")


def test_w4_back_takes_back_a_filter(site: Site, maya: Person) -> None:
    maya.open("fleet")
    expect(maya.find(".count-box").first).to_be_visible()
    maya.page.keyboard.press("g")
    maya.page.keyboard.press("b")
    maya.page.get_by_label("holder").select_option("ada")
    expect(maya.find(".card")).to_have_count(1)
    maya.page.get_by_label("Filter by text").type("lexer")
    expect(maya.page).to_have_url(re.compile("text=lexer"))
    maya.page.go_back()
    expect(maya.page).to_have_url(re.compile(r"/board\?holder=ada$"))
    maya.page.go_back()
    expect(maya.page).to_have_url(re.compile("/board$"))
    maya.page.go_back()
    expect(maya.page).to_have_url(re.compile("/fleet$"))


def test_w4_a_filter_that_is_refused_looks_like_no_empty_board(site: Site, maya: Person) -> None:
    maya.open("board", query="?type=zzz")
    expect(maya.page.get_by_role("alert")).to_contain_text("'zzz' is not a type of task")
    expect(maya.find(".columns")).to_be_hidden()
    maya.page.get_by_role("link", name="Show all tasks").click()
    expect(maya.find(".card").first).to_be_visible()


def test_w4_a_long_reason_keeps_its_card_short(site: Site, maya: Person) -> None:
    id = make(site, "stuck", "zoe")
    site.by("zoe").tasks.block(id, reason="because of that, " * 300)
    maya.open("board")
    note = card(maya, id, "blocked").locator(".note-amber")
    expect(note).to_be_visible()
    assert note.evaluate("note => note.clientHeight") <= 7 * 16
    assert (note.get_attribute("title") or "").startswith("because of that, because")


def test_w4_a_column_says_at_its_foot_how_many_more_there_are(site: Site, maya: Person) -> None:
    maya.open("board")
    for column in ("open", "closed"):
        more = maya.find(f'.column[data-column="{column}"] > .more')
        expect(more).to_have_text(re.compile(r"^\d+ more$"))
        expect(more).to_be_in_viewport()
        body = maya.find(f'.column[data-column="{column}"] .column-body')
        body.evaluate("body => body.scrollTo(0, 1e6)")
        expect(more).to_be_in_viewport()


def test_w4_every_step_by_keys_alone(site: Site, maya: Person) -> None:
    maya.open("board")
    fresh = maya.page.get_by_label("New task", exact=True)
    fresh.fill("by keys alone")
    fresh.press("Enter")
    expect(maya.find(".notice")).to_contain_text("is made: by keys alone")  # it may stand below what is shown
    ws = site.by("maya")
    found = ws.watch(kinds=["task"], after=0, timeout=10)
    id = next(event.id for event in found if event.data.get("title", ["", ""])[1] == "by keys alone")
    ws.tasks.update(id, priority=0)
    steps = (
        ("c", "Claim", "", "in_progress"),
        ("x", "Block", "no key", "blocked"),
        ("r", "Unblock", "here it is", "open"),
        ("d", "Close", "not wanted", "closed"),
        ("r", "Reopen", "wanted again", "open"),
        ("c", "Claim", "", "in_progress"),
        ("d", "", "", "closed"),
    )
    column = "open"
    for key, verb, words, after in steps:
        expect(card(maya, id, column)).to_be_visible()
        card(maya, id).focus()
        maya.page.keyboard.press(key)
        if verb:
            answer(maya, verb, words)
        expect(card(maya, id, after)).to_be_visible()
        column = after


def test_w4_w15_the_keys_follow_a_card_to_its_new_column(site: Site, maya: Person) -> None:
    id = make(site, "followed")
    maya.open("board")
    expect(card(maya, id, "open")).to_be_visible()
    press = maya.page.keyboard.press
    while maya.page.evaluate("document.activeElement.dataset.id") != id:
        press("j")
    for key, verb, after in (
        ("c", "Claim", "in_progress"),
        ("r", "", "open"),
        ("c", "Claim", "in_progress"),
        ("d", "", "closed"),
    ):
        press(key)
        if verb:
            maya.sees("dialog h2", verb)
            press("Enter")
            expect(maya.find("dialog")).to_have_count(0)
        expect(card(maya, id, after)).to_be_focused()
    press("Enter")
    expect(maya.page.locator("h1")).to_have_text("followed")


def test_w4_reviews_are_approved_and_rejected_on_their_cards(site: Site, maya: Person) -> None:
    first, second = make(site, "good work", "zoe"), make(site, "bad work", "zoe")
    zoe = site.by("zoe")
    for id in (first, second):
        zoe.tasks.complete(id, summary="done", review=True)
    maya.open("board")
    card(maya, first, "review").get_by_role("button", name="approve").click()
    expect(card(maya, first, "closed")).to_be_visible()
    card(maya, second, "review").get_by_role("button", name="reject").click()
    answer(maya, "Reject", "tests are missing")
    expect(card(maya, second, "blocked")).to_contain_text("tests are missing")


def test_w4_columns_come_page_by_page_and_filters_are_in_the_address(site: Site, maya: Person) -> None:
    maya.open("board")
    closed = maya.find('.column[data-column="closed"] .card')
    expect(closed).to_have_count(40)
    maya.find('.column[data-column="closed"] .more').click()
    expect(closed).to_have_count(80)
    maya.page.get_by_label("Filter by text").fill("smoke tes")
    expect(maya.find(".card")).to_have_count(1)
    maya.sees(".card", "smoke test the preview")
    assert "text=smoke" in maya.page.url
    maya.page.reload()
    expect(maya.find(".card")).to_have_count(1)
    maya.page.get_by_label("Filter by text").fill("")
    maya.page.get_by_label("holder").select_option("ada")
    expect(maya.find(".card")).to_have_count(1)
    maya.sees(".card", "move the lexer")


def test_w4_what_others_do_shows_by_itself(site: Site, maya: Person) -> None:
    maya.open("board")
    expect(maya.find(".card").first).to_be_visible()
    id = make(site, "somebody else made this")
    expect(card(maya, id, "open")).to_contain_text("somebody else made this")
    zoe = site.by("zoe")
    zoe.tasks.claim(id)
    expect(card(maya, id, "in_progress")).to_contain_text("zoe")


def test_w4_narrow_there_is_one_column_at_a_time_and_a_menu_moves_a_card(site: Site, chromium: Browser) -> None:
    id = make(site, "on a small screen")
    with site.person(chromium, "maya", size=NARROW) as maya:
        maya.open("board")
        expect(maya.find(".column:visible")).to_have_count(1)
        maya.page.get_by_role("tab", name="Open").click()
        card(maya, id, "open").get_by_role("button", name=f"move {id}").click()
        maya.page.get_by_role("button", name="Move", exact=True).click()
        answer(maya, "Claim")
        maya.page.get_by_role("tab", name="In progress").click()
        expect(card(maya, id, "in_progress")).to_contain_text("maya")
