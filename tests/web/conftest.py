"""A real server on a workspace with a story, and one Chromium, for all tests of the page.

The tests run in one worker: it starts one server, and a browser for each module. (While Playwright runs, an event loop
runs in its thread, so it must have ended before tests of other rooms run there.) Each test has a browser context of its
own, and fails if the page raised an error or broke its Content-Security-Policy.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.web.browser import MISSING, find_browser, launch
from tests.web.site import Person, Site

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("web"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser; where CI=true a missing one is a failure."""
    if find_browser() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)
    with launch() as browser:
        yield browser


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server on the workspace of the story."""
    site = Site(tmp_path_factory.mktemp("site") / "workspace")
    try:
        yield site
    finally:
        site.end()


@pytest.fixture
def maya(site: Site, chromium: Browser) -> Iterator[Person]:
    """An admin who is signed in; her page must raise no error."""
    with site.person(chromium, "maya") as person:
        yield person
