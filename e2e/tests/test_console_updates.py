"""The console's page under many updates, and the account that it shows, with data from the test instead of a running system."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from litestar import Litestar
from playwright.sync_api import Browser, expect

from e2e.support.console_film import look_at
from e2e.support.console_screen import box, open_screen
from e2e.support.http_server import served
from e2e.support.installation import Installation
from e2e.support.waiting import until
from fern.console.account import draw_up
from fern.console.board import Board
from fern.console.server import create_app
from fern.console.tokens import Token
from fern.console.watch import Watch
from fern.runtime.system import processes_now
from fern.settings import PROJECT_ROOT, Settings

UPDATES, A_SECOND = 60, 60


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
        expect(screen.phone("+13125550199").locator(".body").first).to_have_text(f"text {UPDATES}")
        expect(screen.tokens("event").filter(has_text=f"event {UPDATES}")).to_have_attribute("data-at", "ledger")


def test_the_account_follows_the_film_and_does_not_wait_for_its_end(browser: Browser) -> None:
    with console_with_updates() as (url, put), open_screen(browser, url, by_hand=True) as screen:

        def see(last: int) -> None:
            until(lambda: look_at(screen) and screen.seq() >= last, what="the page has the update")

        see(put(0))
        screen.button("Pause").click()
        see(put(5))
        see(put(10))  # two snapshots, none of them played yet
        screen.button("Go on").click()
        arrived, shown = set[str](), list[int]()
        while (look := look_at(screen))["film"] == "playing":
            arrived |= {token["name"] for token in look["tokens"] if token["at"] == "ledger"}
            shown.append(screen.account()["committed"])
            assert shown[-1] <= 2 * len(arrived)  # never before the events that it counts, which are in both outboxes

        assert list(dict.fromkeys(shown)) == [0, 10]
        assert screen.account()["committed"] == 20


def test_events_that_wait_at_a_station_do_not_hide_each_other_and_nothing_around_them_moves(browser: Browser) -> None:
    def row(health: str, **more: Any) -> dict[str, Any]:
        facts = {"process": "notification-relay", "state": "running", "restarts": 0, "pid": 7, "is_held": False}
        return {**facts, "health": health, **more}

    def flow(waiting: int, **silent: Any) -> dict[str, Any]:
        hops = [("client", 1000.0), ("outbox", 1001.0)]
        tokens = [
            Token(str(n), "event", str(n), "labour.announced", "announced", hops, "waits")
            for n in range(min(waiting, 12))
        ]
        empty: dict[str, Any] = {"story": None, "texts": [], "more_texts": 0, "phones": "", "account": None}
        return {
            "ok": True,
            "data": {**empty, "tokens": tokens, "silent": silent, "more": {"outbox": waiting - len(tokens)}},
        }

    def texts_at_the_ledger(number: int, *, phones: int, more: int) -> dict[str, Any]:
        tokens = [
            Token(f"t{n}", "text", "1", "labour.announced", "Ken", [("ledger", 1002.0)], "waits") for n in range(number)
        ]
        texts = [text(n, f"+1312555010{n}") for n in range(phones)]
        return {"ok": True, "data": {**flow(0)["data"], "tokens": tokens, "texts": texts, "more_texts": more}}

    board, settings = Board(), Settings(0, PROJECT_ROOT)
    board.put("processes", {"ok": True, "data": [row("healthy")]})
    board.put("flow", flow(0))
    with served_board(board, settings, Watch(settings, board)) as (url, portal), open_screen(browser, url) as screen:
        health = screen.process("notification-relay").locator(".mark")
        expect(health).to_have_text("✓ healthy")
        before = [box(station) for station in screen.page.locator(".station, #stories").all()]

        portal.call(
            board.put, "flow", flow(20, notification={"why": "notification-api does not answer", "since": None})
        )
        for state, words in (
            (row("stopped", state="stopped", is_held=True, restarts=3), "✕ held down"),
            (row("no answer in 2 s", uptime_seconds=9), "◷ starting"),
            (row("no answer in 2 s", uptime_seconds=900), "◷ no answer"),
            (row("waiting: subscription labour.notification.sent is unavailable (NOT_FOUND)"), "◷ waiting"),
        ):
            portal.call(board.put, "processes", {"ok": True, "data": [state]})
            expect(health).to_have_text(words)
            assert [box(station) for station in screen.page.locator(".station, #stories").all()] == before

        expect(screen.tokens("event")).to_have_count(12)
        places = [box(token) for token in screen.tokens("event").all()]
        assert len({(round(place["x"]), round(place["y"])) for place in places}) == 12
        expect(screen.station("outbox").locator(".more")).to_have_text("8 more wait")
        expect(screen.station("ledger").locator(".more")).to_have_text("does not answer")
        portal.call(board.put, "flow", texts_at_the_ledger(40, phones=8, more=5))
        expect(screen.tokens("text")).to_have_count(40)
        places = [box(token) for token in screen.tokens("text").all()]
        assert len({(round(place["x"]), round(place["y"])) for place in places}) == 40
        ledger = box(screen.station("ledger"))
        assert all(
            abs(p["x"] + p["width"] / 2 - ledger["x"] - ledger["width"] / 2) <= ledger["width"] / 2 for p in places
        )
        expect(screen.page.locator("#phones-note")).to_have_text(
            re.compile("From the newest 8 texts; 5 earlier ones on .* own page. 2 more phones on their own page.")
        )

        portal.call(board.put, "flow", flow(12))
        expect(screen.tokens("text")).to_have_count(0)
        name = screen.tokens("event").first
        assert name.evaluate("(node) => node.scrollWidth <= node.clientWidth"), "the name is not cut"


def test_a_killed_process_is_shown_at_once_and_until_another_has_its_place(browser: Browser) -> None:
    def row(pid: int | None, health: str = "healthy") -> dict[str, Any]:
        return {
            "process": "labour-relay",
            "state": "running",
            "health": health,
            "restarts": 0,
            "pid": pid,
            "is_held": False,
        }

    board, settings = Board(), Settings(0, PROJECT_ROOT)
    watch = Watch(settings, board)
    board.put("processes", {"ok": True, "data": [row(7)]})

    watch.show_killed("labour-relay")

    assert board["processes"]["data"][0]["health"] == "killed"
    assert watch.seen(row(7))["health"] == "killed"  # a query from before
    assert watch.seen(row(8, "starting"))["health"] == "starting"
    with served_board(board, settings, watch) as (url, _), open_screen(browser, url) as screen:
        expect(screen.process("labour-relay").locator(".mark.bad")).to_have_text("✕ killed")


def test_the_button_that_kills_a_process_shows_it_as_killed_before_any_query(installation: Installation) -> None:
    board, settings = Board(), installation.settings
    watch = Watch(settings, board)  # which does not run, so nothing else changes the board
    alive = next(row for row in processes_now(settings) if row.process == "labour-statistics")
    row = {"process": alive.process, "state": alive.state, "health": "healthy", "restarts": 0, "is_held": False}
    board.put("processes", {"ok": True, "data": [{**row, "pid": alive.pid}]})

    with served_board(board, settings, watch) as (url, _):
        answer = httpx.post(f"{url}/api/processes/{alive.process}/kill", json={}, headers={"Origin": url})

    assert "Killed labour-statistics" in answer.json()[0]["words"]
    assert board["processes"]["data"][0]["health"] == "killed"
    until(lambda: {row.health for row in processes_now(settings)}, lambda seen: seen == {"healthy"})


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
    names = ("AWAITING_CONSENT", "SENDING", "IN_DOUBT", "DELIVERED", "UNDELIVERED", "FAILED", "SUPERSEDED")
    states = dict.fromkeys(names, 0)
    claims = {"completed": number, "discarded": 0, "repeats": number // 3}
    common = {"outbox": {**outbox, "oldest_waiting_seconds": None}, "claims": claims, "held": {}, "events": []}
    ledger = {"states": {**states, "SENT": number, "PENDING": unsettled}, "oldest_unsettled_seconds": unsettled / 2}
    notification = {**common, "topics": {"notification.sent": number}, "ledger": ledger}
    return {**common, "topics": {"labour.announced": number}}, notification, number


def text(number: int, to: str) -> dict[str, Any]:
    """A text of the sandbox that was delivered."""
    times = dict.fromkeys(("created_at", "updated_at"), "2030-01-01T00:00:00Z")
    facts = {"from": "+15005550006", "direction": "outbound-api", "status": "delivered", **times}
    return {**facts, "sid": str(number), "to": to, "body": f"text {number}"}


@contextmanager
def console_with_updates() -> Iterator[tuple[str, Callable[[int], int]]]:
    """The real server, with data from the test. Yields its URL and a function that writes data and returns the sequence."""
    settings, board = Settings(0, PROJECT_ROOT), Board()

    async def write(number: int) -> int:
        labour, notification, texts = counts(number, unsettled=number % 5)
        account = draw_up(labour, notification, texts, labour["claims"], dead=0)
        flow = {
            "story": None,
            "tokens": [token(n) for n in range(max(1, number - 12), number + 1)],
            "texts": [
                text(n, "+13125550199" if n % 2 == 0 else f"+1312555010{n % 7}")
                for n in range(number, max(0, number - 60), -1)
            ],
            "more_texts": 0,
            "phones": "",
            "account": account,
            "silent": {},
            "more": {},
        }
        board.put("flow", {"ok": True, "data": flow})
        return board.seq

    def token(number: int) -> Token:
        hops = [
            (station, 1000.0 * number + place) for place, station in enumerate(("client", "outbox", "topic", "ledger"))
        ]
        return Token(str(number), "event", str(number), "labour.announced", f"event {number}", hops, "done")

    with served_board(board, settings, Watch(settings, board)) as (url, portal):
        portal.call(write, 0)
        yield url, lambda number: portal.call(write, number)


@contextmanager
def served_board(board: Board, settings: Settings, watch: Watch) -> Iterator[tuple[str, BlockingPortal]]:
    def app(url: str) -> Litestar:
        return create_app(settings, int(url.rpartition(":")[2]), board, watch)

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served(app)) as url:
        yield url, portal
