"""The ground of the other tests: the page opens in a real browser, on the workspace of the story."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.web.site import Person


def test_w3_the_page_opens_in_a_real_browser_and_shows_every_agent(maya: Person) -> None:
    maya.open("fleet")
    for name in ("ada", "ben", "lou"):
        expect(maya.page.get_by_text(name, exact=True).first).to_be_visible()
