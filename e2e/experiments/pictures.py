"""`python -m e2e.experiments.pictures`: take the pictures of the console in docs/images. Needs Chromium."""

from typing import Any

import click
from playwright.sync_api import expect

from e2e.support.console_screen import CHROMIUM, PHONE, Screen, chromium, open_screen
from e2e.support.installation import Installation, running_installation
from fern.errors import FernError
from fern.settings import PROJECT_ROOT

IMAGES = PROJECT_ROOT / "docs" / "images"
OPTIONS: dict[str, dict[str, Any]] = {  # of the browser
    "console-dark": {"color_scheme": "dark"},
    "console-phone": {"viewport": PHONE},
}
PICTURES = ("console-light", *OPTIONS, "console-broken")


def complete_a_labour(screen: Screen) -> None:
    screen.plan("Barbara", "Radia")
    screen.press("Begin", "The labour has begun.")
    screen.press("Start a contraction", "A contraction starts.")
    screen.press("End the contraction", "The contraction is over.")
    screen.press("Announce", "Announced.")
    screen.press("Complete twice, same key", "the same answer, replayed")
    screen.until_balanced()


def begin_a_labour_under_faults(screen: Screen, installation: Installation) -> None:
    screen.plan("Edsger", "Frances")
    screen.until_balanced()
    for fault in ("duplicate", "reply-lost"):
        screen.switch(fault).click()
        expect(screen.said.first).to_contain_text(f"{fault} is on")
    screen.press("Kill notification-consumer", "Killed notification-consumer")
    with installation.stopped("labour-relay"):
        screen.press("Begin", "The labour has begun.")
        expect(screen.tile("Labour outbox").locator(".figure")).to_contain_text("1 waiting")
        take(screen, "console-broken")


def take(screen: Screen, name: str) -> None:
    """A picture of the page without the hint."""
    if (hide := screen.button("Got it")).is_visible():
        hide.click()
    screen.page.evaluate("scrollTo(0, 0)")
    screen.page.screenshot(path=IMAGES / f"{name}.png")


@click.command()
def main() -> None:
    """Take the pictures of the console in docs/images, of a system of its own."""
    if CHROMIUM is None:
        raise FernError("no Chromium is installed.", command="apt install chromium")
    with running_installation() as installation, chromium() as browser:
        url = installation.settings.url("console")
        with open_screen(browser, url) as screen:
            complete_a_labour(screen)
            take(screen, "console-light")
        for name, options in OPTIONS.items():
            with open_screen(browser, url, reduced_motion="reduce", **options) as screen:
                expect(screen.verdict).to_have_class("mark ok")
                expect(screen.page.locator(".phone").first).to_be_visible()
                take(screen, name)
        with open_screen(browser, url) as screen:
            begin_a_labour_under_faults(screen, installation)


if __name__ == "__main__":
    main(prog_name="python -m e2e.experiments.pictures")
