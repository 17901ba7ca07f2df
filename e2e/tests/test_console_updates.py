"""The console's page under many updates, and the account that it shows, with data from the test instead of a running system."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import start_blocking_portal
from litestar import Litestar
from playwright.sync_api import Browser, expect

from e2e.support.console_screen import open_screen
from e2e.support.http_server import served
from e2e.support.waiting import until
from fern.console.server import create_app
from fern.console.watch import Board, Watch, draw_up
from fern.settings import PROJECT_ROOT, Settings

UPDATES, A_SECOND = 360, 60


def test_the_page_keeps_up_with_sixty_updates_a_second(browser: Browser) -> None:
    """An update takes the page less than a sixtieth of a second of CPU time, which other work on the machine does not change."""
    with console_with_updates() as (url, put), open_screen(browser, url) as screen:
        devtools = screen.page.context.new_cdp_session(screen.page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

        def cpu_seconds() -> float:
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

        before, last = cpu_seconds(), 0
        for number in range(1, UPDATES + 1):
            last = put(number)
            screen.page.wait_for_timeout(1000 / A_SECOND)
        until(screen.seq, lambda seq: seq == last, what="the page has the last update")

        assert 0 < cpu_seconds() - before < UPDATES / A_SECOND
        expect(screen.tile("Phones").locator(".figure b")).to_have_text(str(UPDATES))
        expect(screen.phone("+13125550199").locator(".body").first).to_have_text(f"text {UPDATES}")


def test_the_account_explains_what_is_being_processed_and_nothing_else() -> None:
    labour, notification, texts = counts(10)

    def account(texts: int = texts, claims: int = 10, there: int = 10, given_up: int = 0) -> dict[str, int]:
        claimed = {**notification, "claims": {**notification["claims"], "completed": there, "discarded": given_up}}
        return draw_up(labour, claimed, texts, {**labour["claims"], "completed": claims}, dead=0)

    assert (account()["on_the_way"], account()["unexplained"]) == (0, 0)
    assert (account(there=8)["on_the_way"], account(there=8)["unexplained"]) == (2, 0)
    assert (account(there=8, given_up=2)["on_the_way"], account(there=8, given_up=2)["discarded"]) == (0, 2)
    assert account(texts=texts + 1)["unexplained"] == 1  # a text without a row in the ledger
    assert account(claims=11)["unexplained"] == 1  # a claim without an event
    assert account(there=11)["unexplained"] == 1


def test_an_event_that_two_consumers_take_is_wanted_twice_and_held_twice() -> None:
    labour, notification, texts = counts(10)
    both = {**labour, "topics": {"labour.completed": 10}}

    def account(labour: dict[str, Any], claims: int, there: int) -> dict[str, int]:
        claimed = {**notification, "claims": {**notification["claims"], "completed": there}}
        return draw_up(labour, claimed, texts, {**labour["claims"], "completed": claims}, dead=0)

    complete, parked = account(both, 20, 10), account({**both, "held": {"labour.completed": 1}}, 19, 9)

    assert (complete["wanted"], complete["claimed"], complete["on_the_way"]) == (30, 30, 0)
    assert (account(both, 18, 10)["on_the_way"], account(both, 21, 10)["unexplained"]) == (2, 1)
    assert (parked["on_the_way"], parked["unexplained"]) == (0, 0)


def counts(number: int, unsettled: int = 0) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The data of both services after so many events in each direction, and the number of texts."""
    outbox = {"recorded": number, "published": number, "waiting": 0, "parked": 0, "discarded": 0}
    states = dict.fromkeys(("SENDING", "IN_DOUBT", "DELIVERED", "UNDELIVERED", "FAILED", "SUPERSEDED"), 0)
    claims = {"completed": number, "discarded": 0, "repeats": number // 3}
    common = {"outbox": {**outbox, "oldest_waiting_seconds": None}, "claims": claims, "held": {}, "events": []}
    ledger = {"states": {**states, "SENT": number, "PENDING": unsettled}, "oldest_unsettled_seconds": unsettled / 2}
    notification = {**common, "topics": {"notification.sent": number}, "ledger": ledger}
    return {**common, "topics": {"labour.announced": number}}, notification, number


@contextmanager
def console_with_updates() -> Iterator[tuple[str, Callable[[int], int]]]:
    """The real server, with data from the test. Yields its URL and a function that writes data and returns the sequence."""
    settings, board = Settings(0, PROJECT_ROOT), Board()

    def app(url: str) -> Litestar:
        return create_app(settings, int(url.rpartition(":")[2]), board, Watch(settings, board))

    async def write(number: int) -> int:
        labour, notification, texts = counts(number, unsettled=number % 5)
        newest = [text(n) for n in range(number, max(0, number - 60), -1)]
        sms = {"faults": [], "total": number, "url": "", "texts": newest}
        account = draw_up(labour, notification, texts, labour["claims"], dead=0)
        for name, data in (("labour", labour), ("notification", notification), ("sms", sms), ("account", account)):
            board.put(name, {"ok": True, "data": data})
        return board.seq

    def text(number: int) -> dict[str, Any]:
        to = "+13125550199" if number % 2 == 0 else f"+1312555010{number % 7}"
        facts = {"from": "+15005550006", "direction": "outbound-api", "status": "delivered"}
        return {**facts, "sid": str(number), "to": to, "body": f"text {number}", "created_at": "2030-01-01T00:00:00Z"}

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served(app)) as url:
        portal.call(write, 0)
        yield url, lambda number: portal.call(write, number)
