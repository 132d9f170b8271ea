"""W13: one stream for a browser, live, resumed without a gap or a repeat."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

import holdfast
from tests.http.running import PATIENCE, command
from tests.web.site import PATIENCE as PAGE_PATIENCE


def quiet_port() -> int:
    """A free port that the system gives to nobody by itself, so that it is still free when a server starts again."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20_000, 32_000)))
            found: int = probe.getsockname()[1]
            return found


class Mortal:
    """A server that is killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = quiet_port()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            command(self.folder, "--port", str(self.port)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]
        self.token = (self.folder / "token").read_text().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def streams(self) -> int:
        """How many clients watch, as the metrics have it."""
        text = httpx.get(f"{self.url}/metrics", headers={"authorization": f"Bearer {self.token}"}).text
        found = re.search(r"^holdfast_watchers (\d+)", text, re.MULTILINE)
        assert found, text
        return int(found[1])


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Mortal]:
    mortal = Mortal(tmp_path / "store")
    yield mortal
    if mortal.process.poll() is None:
        mortal.kill()


@pytest.fixture
def browser(chromium: Browser, mortal: Mortal) -> Iterator[BrowserContext]:
    context = chromium.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(PAGE_PATIENCE)
    answer = httpx.post(f"{mortal.url}/ui/session", json={"token": mortal.token}).json()
    session = json.dumps({**answer, "name": "maya"})
    context.add_init_script(f"localStorage.setItem('holdfast.session', {json.dumps(session)})")
    yield context
    context.close()


def revisions(page: Page) -> list[int]:
    """The revisions on the screen of the log, oldest first."""
    found: list[str] = page.locator(".event").evaluate_all("rows => rows.map(row => row.dataset.cursor)")
    assert len(found) == len(set(found)), "no event is shown twice"
    return [int(cursor.partition("-")[0]) for cursor in reversed(found)]


@pytest.mark.core
def test_w13_a_killed_server_is_said_and_the_stream_goes_on_without_gap_or_repeat(
    mortal: Mortal, browser: BrowserContext
) -> None:
    with holdfast.connect(mortal.url, token=mortal.token, actor="ada") as ws:
        for number in range(20):
            ws.tasks.create(f"before {number}")
    page = browser.new_page()
    page.goto(f"{mortal.url}/ui/-/log")
    expect(page.locator(".event")).to_have_count(20)
    expect(page.locator(".live")).to_have_text("live")
    mortal.kill()
    banner = page.locator(".banner")
    expect(banner).to_contain_text("Connection lost at")
    expect(banner).to_contain_text("It goes on from there without a gap.")
    expect(page.locator(".live")).to_contain_text("old")
    with holdfast.open(mortal.folder, actor="ada") as local:  # others go on meanwhile
        for number in range(30):
            local.tasks.create(f"meanwhile {number}")
    mortal.start()
    with holdfast.connect(mortal.url, token=mortal.token, actor="ada") as ws:
        for number in range(10):
            ws.tasks.create(f"after {number}")
    page.locator(".banner button", has_text="try now").dispatch_event("click")  # it may have come back by itself
    expect(page.locator(".event")).to_have_count(60)
    expect(banner).to_be_hidden()
    shown = revisions(page)
    assert shown == list(range(shown[0], shown[0] + 60))


def test_w13_acts_are_off_while_the_connection_is_lost(mortal: Mortal, browser: BrowserContext) -> None:
    with holdfast.connect(mortal.url, token=mortal.token, actor="ada") as ws:
        task = ws.tasks.create("a task")
        ws.tasks.claim(task.id)
        ws.tasks.block(task.id, reason="which port?")
    page = browser.new_page()
    page.goto(f"{mortal.url}/ui/-/fleet")
    answer = page.get_by_role("button", name=f"answer {task.id}")
    expect(answer).to_be_enabled()
    mortal.kill()
    expect(answer).to_be_disabled()
    expect(page.get_by_text("which port?")).to_be_visible()
    page.keyboard.press("n")
    page.keyboard.press("g")
    page.keyboard.press("b")
    fresh = page.get_by_role("button", name="New task")
    expect(fresh).to_be_disabled()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("f")
    mortal.start()
    expect(answer).to_be_enabled()
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(fresh).to_be_enabled()
    page.keyboard.press("n")
    expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text("New task")


def test_w13_eight_tabs_share_one_stream_also_after_the_server_was_killed(
    mortal: Mortal, browser: BrowserContext
) -> None:
    tabs = [browser.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{mortal.url}/ui/-/log")
        expect(tab.locator(".live")).to_have_text("live")
    assert mortal.streams() == 1
    with holdfast.connect(mortal.url, token=mortal.token, actor="ada") as ws:
        ws.tasks.create("seen everywhere")
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator(".event")).to_have_count(1)
    mortal.kill()
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator(".banner")).to_contain_text("Connection lost at")
    with holdfast.open(mortal.folder, actor="ada") as local:
        for number in range(5):
            local.tasks.create(f"meanwhile {number}")
    mortal.start()
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.locator(".banner")).to_be_hidden()
        expect(tab.locator(".event")).to_have_count(6)
        shown = revisions(tab)
        assert shown == list(range(shown[0], shown[0] + 6))
    assert mortal.streams() == 1


def test_w13_a_thousand_changes_at_once_are_shown_and_the_page_stays_small(
    mortal: Mortal, browser: BrowserContext
) -> None:
    page = browser.new_page()
    page.goto(f"{mortal.url}/ui/-/log")
    expect(page.locator(".live")).to_have_text("live")
    with holdfast.open(mortal.folder, actor="ada") as ws:
        for number in range(1000):
            ws.cells.set("run", f"c{number}", number)
        last = ws.tasks.create("the last one")
    expect(page.locator(".event").first).to_contain_text(last.id)
    assert page.locator(".event").count() <= 300


def test_w13_something_new_that_needs_you_is_notified_with_leave(mortal: Mortal, browser: BrowserContext) -> None:
    browser.add_init_script(
        "window.shown = []; window.Notification = class { static permission = 'granted';"
        " constructor(title, more) { window.shown.push([title, more.body]); } };"
    )
    page = browser.new_page()
    page.goto(f"{mortal.url}/ui/-/fleet")
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()
    with holdfast.connect(mortal.url, token=mortal.token, actor="ada") as ws:
        task = ws.tasks.create("deploy the preview")
        ws.tasks.claim(task.id)
        ws.tasks.block(task.id, reason="no access")
    expect(page.locator("table").first).to_contain_text("no access")
    assert page.evaluate("window.shown") == [["blocked: deploy the preview", "no access"]]
