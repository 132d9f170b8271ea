"""What the tests of the page share: the story, servers on copies of it, and people who are signed in to them."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

import holdfast
from holdfast import errors
from tests.http.running import Running
from tests.web.seed import seed

WIDE = (1440, 900)
NARROW = (390, 844)
PATIENCE = 60_000  # milliseconds: machines that run tests are busy
OLD = 240.0  # seconds after which the claims of the story would begin to end
expect.set_options(timeout=PATIENCE)

# Every view, and what shows that it has been filled.
SIGNS = {
    "fleet": ".count-box b",
    "board": ".card",
    "graph": ".node",
    "timeline": ".claim-bar",
    "task": ".event",
    "mail": ".thread-row",
    "locks": "tr[data-lock]",
    "state": ".tree-row",
    "log": ".event",
    "server": ".counts b",
}


class Person:
    """A page on which somebody is signed in, and what went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        # Chromium reports every refusal of the server as an error, though the page shows it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def open(self, view: str, *rest: str, query: str = "") -> Page:
        """Open a view by its address."""
        self.page.goto("/".join([f"{self.url}/ui/-/{view}", *rest]) + query)
        return self.page

    def find(self, selector: str, **given: Any) -> Locator:
        return self.page.locator(selector, **given)

    def sees(self, selector: str, text: str) -> None:
        """Wait until an element shows a text."""
        expect(self.page.locator(selector).first).to_contain_text(text)


class Template:
    """The workspace of the story, told once and copied for each test; an old one is told again, since it ends now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = -OLD

    def copy(self, folder: Path) -> dict[str, str]:
        """Copy the workspace into a new folder; returns the ids of its tasks by their keys."""
        if time.monotonic() - self._told >= OLD:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._ids = seed(self._folder)
            self._told = time.monotonic()
        shutil.copytree(self._folder, folder)
        return self._ids


class Site:
    """A server on a workspace that exists; `ids` are the tasks of the story by their keys."""

    def __init__(self, folder: Path, ids: dict[str, str] | None = None) -> None:
        self.ids = ids or {}
        self.server = Running(folder)
        self.url = self.server.url
        self._handles: dict[str, Any] = {}

    def by(self, name: str) -> Any:
        """The workspace as an agent has it."""
        if name not in self._handles:
            self._handles[name] = holdfast.connect(self.url, token=self.server.token, actor=name)
        return self._handles[name]

    @contextmanager
    def person(
        self, browser: Browser, name: str, token: str | None = None, size: tuple[int, int] = WIDE, dark: bool = False
    ) -> Iterator[Person]:
        """Somebody with a browser of their own, signed in; afterwards their page must have raised no error."""
        answer = httpx.post(f"{self.url}/ui/session", json={"token": token or self.server.token}, timeout=60)
        session = {**answer.raise_for_status().json(), "name": name}
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", locale="en-GB"
        )
        context.set_default_timeout(PATIENCE)
        context.add_init_script(f"localStorage.setItem('holdfast.session', {json.dumps(json.dumps(session))})")
        try:
            person = Person(context.new_page(), self.url)
            yield person
            assert person.errors == []
        finally:
            context.close()

    @contextmanager
    def waiting(self, *waits: tuple[str, str]) -> Iterator[None]:
        """Agents that stand in line, in this order, each (name, path or lock); they wait for a minute."""
        for wait in waits:
            before = self.by("maya").revision
            threading.Thread(target=self._wait, args=wait, daemon=True).start()
            with self.by("maya").watch(kinds=["lock", "path"], after=before, timeout=60) as seen:
                assert any(event.op == "wait" for event in seen), f"{wait[0]} does not wait"
        yield

    def _wait(self, name: str, what: str) -> None:
        with holdfast.connect(self.url, token=self.server.token, actor=name) as ws, suppress(errors.HoldfastError):
            (ws.paths.lock if "/" in what else ws.locks.acquire)(what, wait=60)

    def end(self) -> None:
        for handle in self._handles.values():
            handle.close()
        self.server.end()
