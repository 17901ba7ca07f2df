"""`python -m e2e.experiments.pictures`: take the pictures of the console in docs/images. Needs Chromium."""

from hashlib import sha256
from typing import Any

import click
from playwright.sync_api import Browser, expect

from e2e.experiments.animation import animate, stage_of
from e2e.experiments.chapter_pictures import SCENES, take_chapter
from e2e.support.console_film import moved_by_hand, watch
from e2e.support.console_screen import CHROMIUM, Screen, chromium, open_screen
from e2e.support.installation import running_installation
from e2e.support.waiting import until
from fern.errors import FernError
from fern.settings import PROJECT_ROOT

IMAGES = PROJECT_ROOT / "docs" / "images"
OPTIONS: dict[str, dict[str, Any]] = {  # of the browser
    "console-light": {},
    "console-dark": {"color_scheme": "dark"},
}
FILM = "console-travels"
COMPACT = """() => {
  document.querySelectorAll('.processes, .break, .lead, .replies, #newest').forEach((node) => { node.style.display = 'none'; });
}"""  # the film is about the tokens
PICTURES = (*OPTIONS, "console-broken", FILM)
PAGE = PROJECT_ROOT / "infra" / "fern" / "fern" / "console" / "page"
PICTURED = IMAGES / "page.sha256"  # of the page's sources when the pictures were taken


def digest_of_the_page() -> str:
    files = sorted(path for path in PAGE.iterdir() if path.is_file())
    return sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


def film_an_event(browser: Browser, url: str) -> None:
    """Film one event on its way to two phones and back, with a duplicate that the claims absorb."""
    with moved_by_hand(browser, url, "Barbara", "Radia") as screen:
        screen.duplicate("labour.begun")
        screen.page.evaluate(COMPACT)
        screen.switch("Slow motion, 1/20").click()
        screen.press("Begin", "The labour has begun.")
        looks = watch(screen, people=2)
        (IMAGES / f"{FILM}.svg").write_text(animate(stage_of(screen), looks))


def begin(screen: Screen) -> None:
    """Begin a labour, and wait until both texts are with the provider."""
    screen.plan("Barbara", "Radia")
    screen.until_balanced()
    screen.switch("Slow motion, 1/20").click()
    screen.press("Begin", "The labour has begun.")
    until(lambda: screen.page.locator(".token.text[data-at=provider]").count() == 2, what="both texts have been sent")
    screen.button("Pause").click()


def break_it(screen: Screen) -> None:
    """An event waits for its relay, which is held down."""
    screen.plan("Edsger", "Frances")
    screen.until_balanced()
    screen.press("Begin", "The labour has begun.")
    for name in ("Edsger", "Frances"):
        expect(screen.told(name)).to_have_text(f"{name} begun ✓")
    screen.press("Hold labour-relay down", "Killed labour-relay")
    screen.press("Complete", "The baby is here")
    expect(screen.tokens("event").filter(has_text="born").last).to_have_attribute("data-state", "waits")
    expect(screen.process("labour-relay")).to_contain_text("held down")


def take(screen: Screen, name: str, **options: Any) -> None:
    screen.page.evaluate("scrollTo(0, 0)")
    screen.page.screenshot(path=IMAGES / f"{name}.png", **options)


@click.command()
def main() -> None:
    """Take the pictures of the console in docs/images, for the README and the tutorial, of a system of its own."""
    if CHROMIUM is None:
        raise FernError("no Chromium is installed.", command="apt install chromium")
    with running_installation() as installation, chromium() as browser:
        url = installation.settings.url("console")
        film_an_event(browser, url)
        for name, options in OPTIONS.items():
            with open_screen(browser, url, **options) as screen:
                screen.press("Clear all faults", "Every fault of the provider is off.")
                begin(screen)
                take(screen, name)
        with open_screen(browser, url) as screen:
            break_it(screen)
            take(screen, "console-broken")
        for name in SCENES:
            take_chapter(browser, installation, name)
    PICTURED.write_text(f"{digest_of_the_page()}\n")


if __name__ == "__main__":
    main(prog_name="python -m e2e.experiments.pictures")
