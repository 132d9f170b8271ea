"""W3, W7, W11: what a person sees and does on Fleet, on a task and in the log."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from holdfast.faces.http.auth import Tokens
from tests.web.site import Person, Site


@pytest.mark.core
def test_w3_fleet_answers_who_works_on_what_what_is_stuck_and_what_needs_me(maya: Person, site: Site) -> None:
    page = maya.open("fleet")
    needs = page.get_by_role("table", name="Needs you")
    expect(needs).to_contain_text("no access to the registry: the token of ci-bot ended yesterday")
    expect(needs).to_contain_text("gus holds it, not seen for")
    expect(needs).to_contain_text("decision required; eli is parked until you answer")
    kinds = needs.locator("tbody tr .what").all_inner_texts()
    assert {"blocked", "review", "mail", "lock"} <= set(kinds)
    agents = page.get_by_role("table", name="Agents")
    ada = agents.locator("tr", has=page.locator("b", has_text=re.compile("^ada$")))
    expect(ada).to_contain_text("move the lexer")
    expect(ada).to_contain_text("in progress")
    expect(ada.locator(".time-left")).to_contain_text("min")
    expect(ada.locator("time").first).to_have_attribute("title", re.compile(r"\d{4}, \d\d:\d\d:\d\d"))
    expect(agents.locator("tr.trouble", has_text="ira")).to_contain_text("late write was refused")
    expect(agents.locator("tr", has_text="eli")).to_contain_text("no end")
    expect(page.locator(".moving")).to_contain_text("closed in the last hour")
    expect(page.get_by_role("region", name="Stuck")).to_contain_text("this machine")
    assert "maya" not in agents.inner_text(), "a person is not a row of the fleet"


def test_w3_what_needs_me_is_done_from_its_row(maya: Person, site: Site) -> None:
    ws = site.by("fay")
    asked = ws.tasks.create("which grammar is meant")
    ws.tasks.claim(asked.id)
    ws.tasks.block(asked.id, reason="is it the old grammar?")
    shown = ws.tasks.create("draw the railroad")
    ws.tasks.claim(shown.id)
    ws.tasks.complete(shown.id, review=True)
    page = maya.open("fleet")
    expect(page.locator("[data-need]").first).to_be_visible()
    more = page.locator(".fleet button.quiet")
    if more.is_visible():
        more.click()
    page.get_by_role("button", name=f"answer {asked.id}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("is it the old grammar?")
    dialog.get_by_label("Answer").fill("No, the new one.")
    dialog.get_by_role("button", name="Answer").click()
    expect(page.locator(f"[data-need={asked.id}]")).to_have_count(0)
    assert ws.tasks.get(asked.id).status == "open"
    page.get_by_role("button", name=f"approve {shown.id}").click()
    expect(page.locator(f"[data-need={shown.id}]")).to_have_count(0)
    assert ws.tasks.get(shown.id).status == "closed"


def test_w3_w15_the_keys_go_on_where_a_row_was_that_is_done(maya: Person, site: Site) -> None:
    page = maya.open("fleet")
    rows, press = page.get_by_role("table", name="Needs you").locator("tbody tr"), page.keyboard.press
    expect(rows.nth(2)).to_be_visible()
    before = rows.evaluate_all("rows => rows.map(row => row.dataset.need)")
    while "approve" not in page.evaluate("document.activeElement.textContent") or page.evaluate(
        "!document.activeElement.dataset.need"
    ):
        press("j")
    at = page.evaluate("document.activeElement.sectionRowIndex")
    press("a")
    expect(rows).to_have_count(len(before) - 1)
    press("j")
    expect(rows.nth(at)).to_be_focused()
    assert rows.nth(at).get_attribute("data-need") == before[at + 1]


def test_w3_a_claim_shows_up_by_itself_and_the_count_with_it(maya: Person, site: Site) -> None:
    page = maya.open("fleet")
    ready = page.locator(".count-box").first.locator("b")
    expect(ready).not_to_have_text("")
    before = int(ready.inner_text())
    made = [site.by("noa").tasks.create(f"a new task {number}") for number in range(3)]
    expect(ready).to_have_text(str(before + 3))
    site.by("noa").tasks.claim(made[0].id)
    expect(page.get_by_role("table", name="Agents").locator("tr", has_text="noa")).to_contain_text("a new task 0")


def test_w3_a_person_who_holds_a_task_is_a_row_of_the_fleet(maya: Person, site: Site) -> None:
    page = maya.open("fleet")
    row = page.get_by_role("table", name="Agents").locator("tr", has=page.locator("b", has_text=re.compile("^maya$")))
    expect(page.get_by_role("table", name="Agents").locator("tr", has_text="ada").first).to_be_visible()
    expect(row).to_have_count(0)
    mine = site.by("maya").tasks.create("read the plan")
    site.by("maya").tasks.claim(mine.id)
    expect(row).to_contain_text("read the plan")


def test_w7_the_menu_of_a_task_closes_by_choice_by_a_click_elsewhere_and_by_escape(maya: Person, site: Site) -> None:
    page = maya.open("task", site.ids["lexer"])
    menu, items = page.locator(".task-title summary"), page.locator(".task-title .menu-list")
    menu.click()
    expect(items).to_be_visible()
    page.locator(".history").click()
    expect(items).to_be_hidden()
    menu.click()
    page.keyboard.press("Escape")
    expect(items).to_be_hidden()
    expect(menu).to_be_focused()
    menu.click()
    items.get_by_role("button", name="tags").click()
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text(f"Tags of {site.ids['lexer']}")
    page.keyboard.press("Escape")
    expect(items).to_be_hidden()


def test_w15_a_search_narrows_by_status_tag_and_holder(maya: Person, site: Site) -> None:
    page = maya.open("log")
    found, box = page.locator(".search-list a"), page.get_by_label("search", exact=True)
    box.fill("status:blocked tag:ci")
    expect(found).to_have_count(1)
    expect(found).to_contain_text("deploy the preview")
    box.fill("holder:ada")
    expect(found).to_have_text(re.compile("move the lexer"))
    box.fill("status:ready retr")
    expect(found.first).to_contain_text("retry")
    box.fill("status:nonsense")
    expect(page.locator(".search-list")).to_contain_text("nonsense")


@pytest.mark.core
def test_w7_a_task_tells_everything_and_a_person_takes_it_through_its_life(maya: Person, site: Site) -> None:
    ws = site.by("ada")
    first = ws.tasks.create("read the grammar")
    task = ws.tasks.create(
        "write the tests", "# Plan\n\n- `one`\n- **two** and <b>three</b>\n\n![x](https://example.com/i.png)"
    )
    ws.tasks.depend(task.id, first.id)
    child = ws.tasks.create("below it", parent_id=task.id)
    page = maya.open("task", task.id)
    body = page.locator(".md").first
    expect(body.locator("li")).to_have_count(2)
    expect(body.locator("code")).to_have_text("one")
    expect(body).to_contain_text("<b>three</b>")
    assert page.locator("img").count() == 0
    assert body.locator("a").get_attribute("href") == "https://example.com/i.png"
    rail = page.get_by_role("complementary", name="what is true now")
    for words in ("Waits for", first.id, "Children", "below it", "Route", "Not ready"):
        expect(rail).to_contain_text(words)
    ws.tasks.cancel(child.id)  # a task waits for those below it, too
    ws.tasks.cancel(first.id)
    expect(rail).to_contain_text("nothing more, 1 of 1 closed")

    def act(name: str, more: bool = False) -> None:
        if more:
            page.locator(".task-title summary").click()
        page.locator(f"[data-name={name}]").click()

    def save(name: str) -> None:
        page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()

    page.get_by_label("note").fill("See **this** first.")
    page.get_by_role("button", name="add note").click()
    expect(page.locator(".event").first.locator("strong")).to_have_text("this")
    act("edit")
    page.get_by_role("dialog").get_by_label("Body, Markdown").fill("# Plan\n\nshorter")
    page.get_by_role("dialog").get_by_label("Priority").select_option("0")
    save("Save")
    expect(page.locator(".event").first.locator(".diff .added")).to_contain_text("shorter")
    expect(page.locator(".event").first).to_contain_text("P2 → P0")
    act("claim")
    expect(page.get_by_role("dialog")).to_contain_text("will be yours until")
    save("Claim")
    expect(page.locator(".task-facts")).to_contain_text("held by maya")
    act("release")
    save("Release")
    expect(page.locator(".task-facts")).to_contain_text("ready")
    act("assign")
    page.get_by_role("dialog").get_by_label("Agent").select_option("maya")
    save("Assign")
    expect(page.locator(".event").first).to_contain_text("assign")
    act("tag", more=True)
    page.get_by_role("dialog").get_by_label("Tags").fill("backend parser")
    save("Save")
    expect(page.locator(".task-facts .chip")).to_have_text(["backend", "parser"])
    act("claim")
    save("Claim")
    expect(page.locator(".task-facts")).to_contain_text("held by maya")
    act("block", more=True)
    page.get_by_role("dialog").get_by_label("Why nobody can go on").fill("no grammar")
    save("Block")
    expect(page.locator(".task-facts")).to_contain_text("blocked")
    act("answer")
    page.get_by_role("dialog").get_by_label("Answer").fill("here it is")
    save("Answer")
    act("claim")
    save("Claim")
    act("done")
    save("Complete")
    expect(page.locator(".task-facts")).to_contain_text("closed")
    act("reopen")
    save("Reopen")
    expect(page.locator(".task-facts")).to_contain_text("ready")
    assert "token" not in page.content(), "a page never shows a claim's token"
    page.get_by_role("button", name="Resume packet").click()
    expect(page.locator("pre")).to_contain_text('"title": "write the tests"')
    assert page.locator(".facts-rail").evaluate("rail => rail.scrollWidth <= rail.clientWidth"), (
        "it stays in its column"
    )
    assert "token" not in page.locator("pre").inner_text()


def act(page: Page, name: str, verb: str, **fields: str) -> None:
    """Press a button of the task, fill its dialog, and go on when it has closed."""
    button = page.locator(f"[data-name={name}]")
    expect(button).to_be_attached()
    if not button.is_visible():
        page.locator(".task-title summary").click()
    button.click()
    dialog = page.get_by_role("dialog")
    for label, words in fields.items():
        dialog.get_by_label(label.replace("_", " ")).fill(words)
    dialog.get_by_role("button", name=verb, exact=True).click()
    expect(dialog).to_have_count(0)


def test_w7_a_person_reviews_ends_and_orders_tasks(maya: Person, site: Site) -> None:
    ws = site.by("ada")
    good, bad, other, stopped = (ws.tasks.create(f"task {n}") for n in range(4))
    for task in (good, bad):
        ws.tasks.claim(task.id)
        ws.tasks.complete(task.id, summary="done", review=True)
    page, facts = maya.open("task", good.id), maya.find(".task-facts")
    page.locator("[data-name=approve]").click()
    expect(facts).to_contain_text("closed")
    page = maya.open("task", bad.id)
    act(page, "reject", "Reject", What_is_missing="a test for the empty file")
    expect(facts).to_contain_text("blocked")
    expect(page.locator(".event").first).to_contain_text("a test for the empty file")
    act(page, "close", "Close", Reason="it is done elsewhere")
    expect(facts).to_contain_text("closed")
    page = maya.open("task", other.id)
    act(page, "depend", "Depend", Id_of_the_other_task=stopped.id)
    rail = page.get_by_role("complementary", name="what is true now")
    expect(rail).to_contain_text("Waits for")
    expect(facts).to_contain_text("waiting")
    rail.get_by_role("link", name=stopped.id).click()
    expect(page.locator("h1")).to_have_text("task 3")
    expect(rail).to_contain_text("Holds up")
    act(page, "child", "Create", Title="the half of it")
    expect(page.locator("h1")).to_have_text("the half of it")
    expect(page.locator(".crumbs")).to_contain_text(stopped.id)
    act(page, "cancel", "Cancel task", Reason="one piece is enough")
    expect(facts).to_contain_text("closed")
    expect(page.locator(".event").first).to_contain_text("one piece is enough")
    act(page, "reopen", "Reopen", Reason="or not")
    expect(facts).to_contain_text("ready")
    statuses = [ws.tasks.get(each.id).status for each in (good, bad)]
    assert (statuses, ws.tasks.explain(other.id).ready) == (["closed", "closed"], False)


def test_w7_a_task_shows_its_path_locks_mail_and_the_stashes_of_its_trail(maya: Person, site: Site) -> None:
    ws = site.by("ada")
    task = ws.tasks.create("with everything")
    ws.tasks.claim(task.id, ttl=900)
    ws.paths.lock(["lib/everything/**"], task=task.id)
    asked = ws.mail.send(["maya"], "Which one first?", task=task.id, type="request", ack=True)
    trail = ws.trails.create("second half")
    ws.trails.add(trail.id, task.id)
    stash = ws.stashes.create("settings", "context", {"depth": 3}, trail=trail.id)
    page = maya.open("task", task.id)
    rail = page.get_by_role("complementary", name="what is true now")
    for words in ("lib/everything/**", "Which one first?", "Stashes of its trail", "settings"):
        expect(rail).to_contain_text(words)
    expect(rail.get_by_role("link", name="Which one first?")).to_have_attribute("href", f"/ui/-/mail/{asked.id}")
    rail.get_by_role("link", name="settings").click()
    expect(page).to_have_url(f"{site.url}/ui/-/state/stash/{stash.id}")
    expect(page.locator("pre.code")).to_contain_text('"depth": 3')


def test_w7_a_refused_act_says_why_and_the_dialog_stays(maya: Person, site: Site) -> None:
    task = site.by("ada").tasks.create("contested")
    page = maya.open("task", task.id)
    page.locator("[data-name=edit]").click()
    page.get_by_role("dialog").get_by_label("Title").fill("mine")
    site.by("ben").tasks.update(task.id, title="somebody else's")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Somebody else changed it meanwhile.")
    page.keyboard.press("Escape")
    expect(page.locator("h1")).to_have_text("somebody else's")


def test_w7_an_edit_that_meets_another_shows_it_and_goes_on_with_what_was_typed(maya: Person, site: Site) -> None:
    ben = site.by("ben")
    task = ben.tasks.create("contested", body="first line\n", priority=2)
    page = maya.open("task", task.id)
    page.locator("[data-name=edit]").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body").fill("mine")
    ben.tasks.update(task.id, body="first line\nhis line", priority=1)
    dialog.get_by_role("button", name="Save").click()
    told = dialog.get_by_role("alert")
    expect(told).to_contain_text("Save again to put yours in place of theirs")
    expect(told.locator(".added")).to_contain_text("his line")
    expect(told).to_contain_text("2 → 1")
    expect(dialog.get_by_label("Body")).to_have_value("mine")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    kept = ben.tasks.get(task.id)
    assert (kept.body, kept.priority, kept.title) == ("mine", 1, "contested"), "what she did not touch stays his"


def test_w7_an_edit_is_not_stopped_by_a_claim(maya: Person, site: Site) -> None:
    task = site.by("ben").tasks.create("edited and claimed")
    page = maya.open("task", task.id)
    page.locator("[data-name=edit]").click()
    site.by("ben").tasks.claim(task.id)
    expect(page.locator(".task-facts")).to_contain_text("held by ben")
    page.get_by_role("dialog").get_by_label("Title").fill("edited")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Save again to keep both.")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_have_text("edited")


def test_w7_a_claim_that_was_overtaken_says_so_in_its_dialog(maya: Person, site: Site) -> None:
    task = site.by("ben").tasks.create("wanted by two")
    page = maya.open("task", task.id)
    page.locator("[data-name=claim]").click()
    expect(page.get_by_role("dialog")).to_contain_text("will be yours until")
    site.by("ben").tasks.claim(task.id)
    expect(page.get_by_role("dialog")).to_contain_text("it is in progress, held by ben by now")
    expect(page.get_by_role("dialog").get_by_role("button", name="Claim")).to_be_disabled()


def test_w7_d_closes_an_open_task_as_on_the_board(maya: Person, site: Site) -> None:
    task = site.by("ben").tasks.create("done by hand")
    page = maya.open("task", task.id)
    expect(page.locator("h1")).to_have_text("done by hand")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog")).to_contain_text("what waits for it can go on")
    page.get_by_role("dialog").get_by_label("Reason").fill("done")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.locator(".task-facts")).to_contain_text("closed")


def test_w7_an_admin_releases_by_force_with_a_reason(maya: Person, site: Site) -> None:
    ws = site.by("gus")
    task = ws.tasks.create("held by somebody who is gone")
    ws.tasks.claim(task.id)
    page = maya.open("task", task.id)
    page.get_by_role("button", name="force release").click()
    page.get_by_role("dialog").get_by_label("Reason, kept in the log").fill("the machine was rebuilt")
    page.get_by_role("dialog").get_by_role("button", name="Release by force").click()
    expect(page.locator(".task-facts")).to_contain_text("ready")
    expect(page.locator(".event").first).to_contain_text("the machine was rebuilt")


def test_w7_a_task_that_does_not_exist_says_so(maya: Person) -> None:
    page = maya.open("task", "hf-none")
    expect(page.get_by_role("alert").first).to_contain_text(
        "There is no task 'hf-none'. The search finds tasks by words or id."
    )
    expect(page.get_by_placeholder("Write a note")).to_be_hidden()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("bogus", "There is no view bogus."),
        ("mail/xx", "There is no thread or message 'xx'."),
        ("state/none/none", "There is nothing called none here"),
        ("state/stash/xx", "xx"),
        ("graph/hf-nope", "There is no task 'hf-nope'."),
        ("graph?root=hf-nope", "There is no task 'hf-nope'."),
    ],
)
def test_w15_an_address_of_nothing_says_so(maya: Person, address: str, said: str) -> None:
    page = maya.open(address)
    place = page.locator("main .note-red, main h1 + p")
    expect(place.first).to_contain_text(said)
    assert "GET" not in place.first.inner_text()
    expect(page.locator("main .node, main .letter, main pre.code")).to_have_count(0)
    place.get_by_role("link").first.click()
    expect(page.locator("main .note-red")).to_have_count(0)


NAMES = (
    "agent-1",
    "agent-2",
    "claude-7f3a",
    "coordinator",
    "reviewer",
    "fix-agent-session-20261119-a1",
    "fix-agent-session-20261119-b2",
)


def test_w3_ordinary_names_are_read_whole_and_long_ones_are_told_apart(maya: Person, site: Site) -> None:
    for name in NAMES:
        site.by(name).agents.register(program="claude")
        site.by(name).locks.acquire(f"lock-{name}", ttl=600)
    page = maya.open("fleet")
    for view in ("fleet", "locks"):
        page = maya.open(view)
        shown = {}
        for name in NAMES:
            cell = page.locator(f'main td[title="{name}"]').first
            expect(cell).to_be_visible()
            assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth"), f"{name} is cut in {view}"
            shown[name] = cell.inner_text()
        assert len(set(shown.values())) == len(NAMES), shown
        assert all(shown[name] == name for name in NAMES if len(name) <= 16), shown


def test_w15_the_first_tab_leads_past_the_navigation(maya: Person) -> None:
    page = maya.open("fleet")
    expect(page.locator(".count-box").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_w11_the_log_says_what_the_command_line_says(maya: Person, site: Site) -> None:
    noa = site.by("noa")
    task = noa.tasks.create("name the ports")
    noa.paths.lock(["src/web/app.ts"], ttl=600, reason="a new view")
    noa.locks.acquire("deploy-2", ttl=600)
    noa.agents.register(role="maintainer")
    noa.mail.send([f"agent-{n}" for n in range(9)], "To many")
    page = maya.open("log", query="?actor=noa")
    told = page.locator(".event-head")
    expect(told.filter(has_text=f"made {task.id}: name the ports")).to_have_count(1)
    expect(told.filter(has_text="noa locked src/web/app.ts: a new view")).to_have_count(1)
    expect(told.filter(has_text="noa took the lock deploy-2")).to_have_count(1)
    expect(told.filter(has_text="noa registered, role maintainer")).to_have_count(1)
    expect(told.filter(has_text="agent-4 and 4 more: To many")).to_have_count(1)


@pytest.mark.core
def test_w11_the_log_is_live_filtered_and_jumps_to_a_revision(maya: Person, site: Site) -> None:
    page = maya.open("log")
    expect(page.locator(".event").first).to_be_visible()
    made = site.by("noa").tasks.create("a task for the log")
    expect(page.locator(".event", has_text=made.id)).to_be_visible()
    page.get_by_label("actor").fill("noa")
    page.get_by_label("actor").press("Enter")
    expect(page.locator(".event").first).to_contain_text(made.id)
    others = page.locator(".event .event-head > b:first-child").filter(has_not_text=re.compile("^noa$"))
    expect(others).to_have_count(0)
    assert "actor=noa" in page.url
    site.by("ben").cells.set("run-9", "x", 1)
    site.by("noa").cells.set("run-9", "y", 2)
    expect(page.locator(".event").first).to_contain_text("run-9/y")
    page.get_by_label("actor").fill("")
    page.get_by_label("actor").press("Enter")
    page.get_by_label("kind").select_option("cell")
    expect(page.locator(".event", has_text="run-9/x")).to_be_visible()
    page.get_by_label("jump to a revision").fill("20")
    page.get_by_label("jump to a revision").press("Enter")
    page.get_by_label("kind").select_option("")
    expect(page.locator(".event").first).to_have_attribute("data-revision", "20")
    page.get_by_role("button", name="back to live").click()
    expect(page.locator(".event", has_text="run-9/y")).to_be_visible()


def test_w12_the_server_shows_health_and_requests_and_switches_between_workspaces(maya: Person, site: Site) -> None:
    (site.server.folder / "workspaces" / "team-b").mkdir(parents=True, exist_ok=True)
    page = maya.open("server")
    expect(page.locator(".counts")).to_contain_text("answers")
    expect(page.locator(".counts")).to_contain_text("requests a second")
    expect(page.locator(".count-box").first).to_contain_text("healthy")
    expect(page.locator(".counts")).to_contain_text("version")
    expect(page.get_by_text("This server makes none while it runs.")).to_be_visible()
    expect(page.get_by_text("holdfast_requests_total")).to_be_hidden()
    page.get_by_text("All figures").click()
    expect(page.get_by_text("holdfast_requests_total")).to_be_visible()
    page.reload()
    page.get_by_label("workspace").select_option("team-b")
    expect(page).to_have_url(f"{site.url}/ui/team-b/fleet")
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Server")).to_be_visible()


def test_w12_the_server_says_whether_it_is_well_and_where_the_newest_backup_lies(maya: Person) -> None:
    failures = 0

    def answer(route: Route) -> None:
        real = route.fetch()
        made = f'holdfast_newest_backup_timestamp_seconds{{file="/b/main-1.backup"}} {time.time() - 300:.0f}\n'
        told = real.text().replace("upkeep_failures_total 0", f"upkeep_failures_total {failures}")
        route.fulfill(response=real, body=made + told)

    maya.page.route("**/metrics", answer)
    page = maya.open("server")
    expect(page.locator(".count-box").first).to_contain_text("healthy")
    expect(page.locator(".server")).to_contain_text("The newest is 5 min old")
    expect(page.locator(".server")).to_contain_text("/b/main-1.backup")
    failures = 2
    expect(page.locator(".count-box").first).to_contain_text("2 failures of upkeep")


def test_w12_a_reader_sees_that_it_answers_and_no_figure_or_workspace_of_others(site: Site, chromium: Browser) -> None:
    (site.server.folder / "workspaces" / "team-b").mkdir(parents=True, exist_ok=True)
    token = Tokens(site.server.folder).create("read", workspace="team-b")[1]
    with site.person(chromium, "", token=token) as reader:
        page = reader.page
        asked: list[tuple[str, int]] = []
        page.on("response", lambda answer: asked.append((answer.url, answer.status)))
        page.goto(f"{site.url}/ui/team-b/server")
        expect(page.locator(".counts")).to_contain_text("answers")
        expect(page.locator(".server")).to_contain_text("for tokens of the role admin")
        assert page.locator(".counts .count-box").count() == 3
        expect(page.locator(".count-box").first).to_contain_text("up")
        assert page.locator(".rate-bar").count() == 0
        assert "holdfast_" not in page.content()
        assert page.get_by_label("workspace").locator("option").all_inner_texts() == ["team-b"]
        assert page.locator(".server .rows a").all_inner_texts() == ["team-b"]
        assert [url for url, _ in asked if url.endswith("/metrics")] == [], "what is not for it is not even asked for"
        page.goto(f"{site.url}/ui/-/fleet")  # the address of a workspace that its token may not see
        expect(page.get_by_role("heading")).to_have_text("No such workspace")
        assert page.locator("main a").all_inner_texts() == ["team-b"]
        assert "move the lexer" not in page.content()
        page.get_by_role("link", name="team-b").click()
        expect(page.get_by_text("Nothing needs you.")).to_be_visible()
