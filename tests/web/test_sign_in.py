"""W1, W2: signing in as a person does it, in a real browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from holdfast.faces.http.auth import Tokens
from holdfast.faces.http.sessions import Sessions
from tests.http.running import Running
from tests.web.site import PATIENCE, SIGNS, Site


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Running]:
    """A server on a workspace in which nothing has happened."""
    running = Running(tmp_path / "store")
    yield running
    running.end()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """A browser that nobody is signed in with."""
    context = chromium.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB")
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


def link_of(folder: Path) -> str:
    """What `holdfast ui` prints."""
    printed = [sys.executable, "-m", "holdfast", "ui", "--no-open", "--dir", str(folder)]
    return subprocess.run(printed, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.mark.core
def test_w2_a_link_signs_in_once_and_asks_an_unbound_token_for_a_name(empty: Running, context: BrowserContext) -> None:
    page, link = context.new_page(), link_of(empty.folder)
    page.goto(link)
    page.get_by_label("Your name").fill("maya")
    assert "#" not in page.url, "the ticket leaves the address at once"
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", name="Needs you")).to_be_visible()
    assert re.fullmatch(re.escape(empty.url) + r"/ui/-/fleet", page.url)
    assert empty.call("GET", "/api/agents/maya").json()["role"] == "person"
    assert context.cookies() == []
    page.reload()
    expect(page.get_by_role("heading", name="Needs you")).to_be_visible()

    other = context.browser.new_context()  # type: ignore[union-attr]
    again = other.new_page()
    again.goto(link)
    expect(again.get_by_role("alert").first).to_contain_text("The link was used already")
    other.close()


def test_w2_a_token_pasted_into_the_form_signs_in_and_a_wrong_one_is_refused(
    empty: Running, context: BrowserContext
) -> None:
    page = context.new_page()
    page.goto(empty.url)
    assert page.url == f"{empty.url}/ui/"
    field = page.get_by_label("Or paste a token")
    field.fill("hft_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Unknown token")).to_be_visible()
    bound = Tokens(empty.folder).create("agent", actor="zoe")[1]
    field.fill(bound)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("zoe, agent")).to_be_visible()
    assert bound not in page.evaluate("JSON.stringify({...localStorage})"), "the token itself is not kept"


def test_w2_a_reader_sees_everything_and_is_offered_no_act(site: Site, chromium: Browser) -> None:
    token = Tokens(site.server.folder).create("read")[1]
    with site.person(chromium, "", token=token) as reader:
        for view, sign in SIGNS.items():
            page = reader.open(view, *([site.ids["lexer"]] if view == "task" else []))
            expect(page.locator(f"main {sign}").first).to_be_attached()
            assert page.locator("main [data-act]:visible, main .force:visible").count() == 0, view
        for key in "ncxdra":
            page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_have_count(0)
        reader.open("task", site.ids["lexer"])
        reader.sees("h1", "move the lexer")
        expect(page.locator(".note-form")).to_be_hidden()
        assert page.locator(".task-title button").count() == 0


def test_w2_roles_in_the_page_an_agent_acts_but_does_not_force(site: Site, chromium: Browser) -> None:
    token = Tokens(site.server.folder).create("agent")[1]
    with site.person(chromium, "noa", token=token) as agent:
        for view, sign in SIGNS.items():
            page = agent.open(view, *([site.ids["lexer"]] if view == "task" else []))
            expect(page.locator(f"main {sign}").first).to_be_attached()
            assert page.locator("main .force").count() == 0, view
        agent.open("task", site.ids["lexer"])
        expect(page.get_by_role("button", name="edit")).to_be_visible()
        assert page.get_by_role("button", name="force release").count() == 0
    with site.person(chromium, "maya") as admin:
        expect(admin.open("task", site.ids["lexer"]).get_by_role("button", name="force release")).to_be_visible()


@pytest.mark.core
def test_w2_signing_out_and_a_revoked_session_end_every_tab_and_leave_nothing(
    empty: Running, context: BrowserContext
) -> None:
    empty.call("POST", "/api/tasks", json={"title": "a secret plan"}, headers={"x-agent-id": "ada"})
    page, tab = context.new_page(), context.new_page()
    page.goto(link_of(empty.folder))
    page.get_by_label("Your name").fill("maya")
    page.get_by_role("button", name="Go on").click()
    expect(page.locator(".live")).to_have_text("live")
    tab.goto(f"{empty.url}/ui/-/log")
    expect(tab.locator(".events")).to_contain_text("made")
    sessions = Sessions(empty.folder, Tokens(empty.folder))
    sessions.revoke(sessions.all()[-1].id)
    for each in (page, tab):
        expect(each.get_by_role("heading", name="Sign in to this server")).to_be_visible()
        assert "secret" not in each.content()
    assert page.evaluate("localStorage.length") == 0


def test_w2_w15_an_empty_workspace_says_what_to_do_first(empty: Running, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(empty.url)
    page.get_by_label("Or paste a token").fill(Tokens(empty.folder).create("read")[1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()


def test_w2_what_is_no_token_or_no_free_name_is_refused_in_words(empty: Running, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{empty.url}/ui/")
    page.get_by_label("Or paste a token").fill("x" * 100_000)
    page.get_by_role("button", name="Sign in").click()
    refused = page.get_by_role("alert").last
    expect(refused).to_contain_text("That is no token: it has 100000 characters.")
    empty.call("POST", "/api/agents", json={"name": "ada"}, headers={"x-agent-id": "ada"})
    page.goto(link_of(empty.folder))
    name = page.get_by_label("Your name")
    name.fill("ada")
    page.get_by_role("button", name="Go on").click()
    expect(refused).to_contain_text("The name ada belongs to an agent: choose another one.")
    name.fill("")
    expect(refused).to_be_hidden()
