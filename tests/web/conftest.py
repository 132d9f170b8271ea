"""One Chromium for all tests of the page, and for each test a server of its own on a copy of the story.

Nothing is shared but the browser: a test has its own workspace, server and browser context, so the order of the tests
does not matter. A test fails if its page raised an error or broke its Content-Security-Policy.

While Playwright runs, an event loop runs in its thread, so it ends when the worker leaves this folder: tests of other
rooms that use asyncio may follow. The tests of this folder are one group, for one worker. `make web` runs all of them;
those marked `core` are also part of `make test`, where tests/e2e/test_page.py runs them in a process of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.web.browser import MISSING, find_browser, launch
from tests.web.site import Person, Site, Template

HERE = Path(__file__).parent
TIMEOUT = 600  # seconds: a wait of the page may take a minute on a busy machine, and a test has several


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("web"))
            item.add_marker(pytest.mark.web)
            item.add_marker(pytest.mark.early)
            item.add_marker(pytest.mark.timeout(TIMEOUT), append=False)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A browser; where CI=true a missing one is a failure."""
    if find_browser() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)
    with launch() as browser:
        yield browser


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The workspace of the story, to be copied."""
    return Template(tmp_path_factory.mktemp("template") / "workspace")


@pytest.fixture
def site(template: Template, tmp_path: Path) -> Iterator[Site]:
    """A server on a copy of the story."""
    folder = tmp_path / "workspace"
    site = Site(folder, template.copy(folder))
    try:
        yield site
    finally:
        site.end()


@pytest.fixture
def maya(site: Site, chromium: Browser) -> Iterator[Person]:
    """An admin who is signed in; her page must raise no error."""
    with site.person(chromium, "maya") as person:
        yield person
