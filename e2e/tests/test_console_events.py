"""The console's page of events in a real browser, and the document that it is made from."""

from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect

from e2e.support.console_screen import PHONE, open_screen
from e2e.support.installation import Installation
from fern.asyncapi import document

DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, **DARK}], ids=str)
def test_the_event_reference_is_accessible_and_has_every_topic(
    browser: Browser, installation: Installation, options: Any
) -> None:
    with open_screen(browser, installation.settings.url("console"), **options) as screen:
        logged = list[str]()
        screen.page.on("console", lambda message: logged.append(message.text))

        screen.page.get_by_role("link", name="event reference").click()

        expect(screen.page.get_by_role("heading", name="Events", exact=True)).to_be_visible()
        headings = screen.page.get_by_role("heading", level=2).all_inner_texts()
        assert headings == list(document()["channels"])
        screen.page.get_by_role("link", name="labour.completed", exact=True).click()
        expect(screen.page.get_by_role("region", name="labour.completed", exact=True)).to_be_in_viewport()
        found = Axe().run(screen.page)
        assert found.violations_count == 0, found.generate_report()
        width = screen.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1]
        assert logged == []


def test_the_document_is_served_and_no_other_host_is_answered(installation: Installation) -> None:
    url = installation.settings.url("console")

    assert httpx.get(f"{url}/asyncapi.json").json() == document()
    for path in ("/events", "/asyncapi.json"):
        assert "default-src 'self'" in httpx.get(f"{url}{path}").headers["content-security-policy"]
        assert httpx.get(f"{url}{path}", headers={"Host": "elsewhere.example"}).status_code == 403
