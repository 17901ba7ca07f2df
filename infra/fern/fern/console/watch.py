"""Polls the whole system, once for all browsers, and only while one is connected.

The board has three parts. `flow` is one snapshot of everything that follows from an event: the labour, the tokens on the stage,
the texts and the account. It is put together from one round of queries, so that no effect is shown without its cause. `processes`
and `faults` are the present state of what can be broken. A part is `{"ok": true, "data": …}`, or, after a failure,
`{"ok": false, "why": …, "data": the last good result}`, which the page shows as stale.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from structlog import get_logger

from fern.client import AsyncClient
from fern.console.account import draw_up
from fern.console.actions import LABOURS
from fern.console.board import Board
from fern.console.records import Records
from fern.console.tokens import Token, tokens
from fern.dead_letters import SUFFIX, DeadLetter
from fern.errors import FernError
from fern.overrides import Overrides
from fern.runtime.system import processes_now
from fern.settings import MOTHER, Settings
from messaging.backoff import wait, wait_for_any

log = get_logger()

EVENTS, STATUSES, TEXTS = 12, 90, 100  # how many of the newest events, status events and texts are followed
EAGER_SECONDS, CALM_SECONDS = 0.2, 1.0  # between two polls: while something happens, and otherwise
EAGER_FOR = 3.0  # seconds
TIMEOUT = 2.0
WAITS_SECONDS = 1.0  # a message that is unacked for longer counts as waiting at its topic

GOOGLE = 'The bus is Google\'s emulator, which has no faults. To use ours: make up ARGS="--bus ours"'


class Watch:
    def __init__(self, settings: Settings, board: Board) -> None:
        self._settings = settings
        self._board = board
        self._client = AsyncClient(settings, TIMEOUT)
        self._nudged = asyncio.Event()
        self._eager_until = 0.0
        self._sources: dict[str, dict[str, Any]] = {}  # of the flow: the last result of each query
        self._repeats: dict[tuple[str, str], list[float]] = {}
        self._killed: dict[str, int | None] = {}  # the pid that a process had when it was killed
        self._dead: frozenset[tuple[str, str]] = frozenset()  # the consumer and the event of each dead letter

    def nudge(self) -> None:
        """Poll at once, and more often for some seconds. Call it when something happens."""
        self._eager_until = time.monotonic() + EAGER_FOR
        self._nudged.set()
        self._nudged = asyncio.Event()

    def show_killed(self, name: str) -> None:
        """Show a process as killed at once, without waiting for the next query, until another process is in its place."""
        part = self._board["processes"]
        if part and (row := next((row for row in part["data"] or () if row["process"] == name), None)) and row["pid"]:
            self._killed[name] = row["pid"]
            self._board.put("processes", {**part, "data": [self.seen(one) for one in part["data"]]})

    def show_dead(self, letters: Sequence[DeadLetter]) -> None:
        """Show these as dead letters, from the next snapshot on. None were seen while another look held them all."""
        if letters:
            self._dead = frozenset((letter.consumer, letter.event_id) for letter in letters)
            self.nudge()

    async def run(self, stop: asyncio.Event) -> None:
        async with self._client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._flow, stop))
            for name, query in (("processes", self._processes), ("faults", self._faults)):
                tasks.create_task(self._repeat(partial(self._see, name, query), stop))
            following = tasks.create_task(self._follow_the_phones(stop))
            await stop.wait()
            following.cancel()

    async def _repeat(self, poll: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await wait_for_any(self._board.is_watched, stop, seconds=3600)
            nudged, began = self._nudged, time.monotonic()
            await poll()
            took = time.monotonic() - began
            pause = EAGER_SECONDS if began < self._eager_until else CALM_SECONDS
            await wait_for_any(nudged, stop, seconds=max(pause, 5 * took))  # a slow query is repeated less often

    async def _processes(self) -> Any:
        rows = await asyncio.to_thread(processes_now, self._settings)
        names = ("process", "state", "health", "restarts", "pid", "is_held", "uptime_seconds")
        return [self.seen({name: getattr(row, name) for name in names}) for row in rows]

    def seen(self, row: dict[str, Any]) -> dict[str, Any]:
        pid = self._killed.get(row["process"])
        if pid and row["pid"] in (pid, None) and not row["is_held"]:
            return {**row, "state": "killed", "health": "killed"}
        self._killed.pop(row["process"], None)
        return row

    async def _faults(self) -> Any:
        """The faults of both targets, with the error of one that does not answer; and whether consent is required."""
        found: dict[str, Any] = {"bus": {"why": GOOGLE, "items": []}, "waiting": {}, "dead": 0}
        found["consent"] = Overrides.load(self._settings).consent
        if self._settings.bus == "ours":
            found["bus"] = await self._faults_of("bus")
            if found["bus"]["why"] is None:
                backlog = (await self._client.get("bus", "/backlog"))["items"]
                found["dead"] = sum(item["unacked"] for item in backlog if item["subscription"].endswith(SUFFIX))
                found["waiting"] = waiting_at_topics(backlog)
        return {**found, "sms": await self._faults_of("sms")}

    async def _faults_of(self, target: str) -> dict[str, Any]:
        try:
            return {"why": None, "items": (await self._client.get(target, "/faults"))["items"]}
        except FernError as error:
            return {"why": error.message, "items": []}

    async def _flow(self) -> None:
        """Query from the effects back to their causes, so that the cause of everything seen is seen too."""
        before = self._sources.get("labour", {}).get("data")
        await self._ask("told", self._told)
        await self._ask("sms", self._sms)
        await self._ask("notification", partial(self._service, "notification"))
        await self._ask("labour", partial(self._service, "labour"))
        await self._ask("story", self._story)
        await self._ask("details", self._details)
        await self._see("flow", partial(self._snapshot, before))
        flow = self._board["flow"]
        if flow["ok"] and (flow["data"]["account"] or {}).get("on_the_way"):
            self._eager_until = max(self._eager_until, time.monotonic() + CALM_SECONDS)

    async def _ask(self, name: str, query: Callable[[], Awaitable[Any]]) -> None:
        last = self._sources.get(name, {"data": None, "since": None})
        try:
            self._sources[name] = {"why": None, "since": datetime.now(UTC), "data": await query()}
        except FernError as error:
            self._sources[name] = {**last, "why": str(error).removesuffix(".")}

    async def _snapshot(self, labour_before: Any) -> Any:
        known = {name: source["data"] for name, source in self._sources.items()}
        labour, notification, sms, details = (known[name] for name in ("labour", "notification", "sms", "details"))
        story, told = known["story"], known["told"]
        people = (story or {}).get("subscribers", [])
        faults = (self._board["faults"] or {}).get("data") or {"dead": 0, "waiting": {}}
        records = Records(
            (labour or {}).get("events", []),
            (notification or {}).get("events", []),
            (details or {}).get("claims", []),
            (details or {}).get("messages", []),
            (sms or {}).get("texts", []),
            {person["id"]: person["phone"] for person in people},
            self._repeats,
            self._dead if faults["dead"] else frozenset(),
        )
        drawn = tokens(records)
        silent = {name: self._sources[name] for name in ("labour", "notification", "sms") if self._sources[name]["why"]}
        account = None
        if labour and notification and sms and not silent:
            claims_before = (labour_before or labour)["claims"]
            account = draw_up(labour, notification, sms["total"], claims_before, faults["dead"])
        return {
            "story": story and {**story, "told": told["items"] if told and told["labour"] == story["id"] else []},
            "tokens": drawn,
            "texts": (sms or {}).get("texts", []),
            "more_texts": _more_texts(sms) if sms else 0,
            "phones": self._settings.url("sms-sandbox"),
            "account": account,
            "silent": {name: {"why": one["why"], "since": one["since"]} for name, one in silent.items()},
            "more": more_waiting(drawn, {**_waiting(labour, notification), **faults["waiting"]}),
        }

    async def _sms(self) -> Any:
        texts = await self._client.get("sms", "/sandbox/messages", limit=TEXTS)
        return {"texts": texts["items"], "total": texts["total"]}

    async def _service(self, service: str) -> Any:
        ledger = {}
        if service == "notification":
            ledger = {"ledger": await self._client.get(service, "/operations/notifications/counts")}
        totals = await self._client.get(service, "/operations/totals")
        limit = EVENTS if service == "labour" else STATUSES
        newest = await self._client.get(service, "/operations/outbox", newest="true", limit=limit)
        return {**totals, "events": newest["items"], **ledger}

    async def _details(self) -> Any:
        """The claims and the messages of the events that are followed."""
        labour, notification = (self._sources[name]["data"] or {"events": []} for name in ("labour", "notification"))
        events = [row["event_id"] for row in labour["events"]]
        statuses = [row["event_id"] for row in notification["events"] if row["cause_id"] in set(events)]
        claims, messages = list[Any](), list[Any]()
        if events:
            found = await self._client.get("notification", "/operations/notifications", event_id=events)
            messages = found["items"]
            claims += (await self._client.get("notification", "/operations/claims", event_id=events))["items"]
            claims += (await self._client.get("labour", "/operations/claims", event_id=events + statuses))["items"]
        before, now = self._repeats, time.time() * 1000  # the claims count the repeats and keep no time of them
        self._repeats = {}
        for claim in claims:
            key = claim["consumer"], claim["event_id"]
            seen = before.get(key, [])
            self._repeats[key] = seen + [now] * (claim["deliveries"] - 1 - len(seen))
        return {"claims": claims, "messages": messages}

    async def _told(self) -> Any:
        """The status of each person's messages in the Labour service, the last effect of an event."""
        if (labour := await self._newest_labour()) is None:
            return None
        told = await self._client.get("labour", f"{LABOURS}/{labour['id']}/told", MOTHER)
        return {"labour": labour["id"], "items": told["items"]}

    async def _story(self) -> Any:
        """The mother's newest labour, as she sees it: the cause of its events, so it is read after them."""
        if (labour := await self._newest_labour()) is None:
            return None
        path = f"{LABOURS}/{labour['id']}"
        contractions = await self._client.get("labour", f"{path}/contractions", MOTHER)
        updates = await self._client.get("labour", f"{path}/updates", MOTHER)
        is_announced = any(update["kind"] == "announcement" for update in updates["items"])
        return {**labour, "contractions": contractions["items"], "is_announced": is_announced}

    async def _newest_labour(self) -> dict[str, Any] | None:
        labours: list[dict[str, Any]] = (await self._client.get("labour", LABOURS, MOTHER, limit=1))["items"]
        return labours[0] if labours else None

    async def _follow_the_phones(self, stop: asyncio.Event) -> None:
        """Poll when the sandbox sends an event, such as that a text has arrived."""
        while not stop.is_set():
            await wait_for_any(self._board.is_watched, stop, seconds=3600)
            async for line in self._client.lines("sms", "/sandbox/events"):
                if line.startswith("event:"):
                    self.nudge()
            await wait(stop, CALM_SECONDS)

    async def _see(self, name: str, query: Callable[[], Awaitable[Any]]) -> None:
        try:
            data = await query()
        except Exception as error:  # of any kind: the console stays up and shows it
            if not isinstance(error, FernError):
                log.warning("a query of the console failed", part=name, exc_info=error)
            last = (self._board[name] or {}).get("data")
            self._board.put(name, {"ok": False, "why": str(error).removesuffix("."), "data": last})
        else:
            self._board.put(name, {"ok": True, "data": data})


def _more_texts(sms: Any) -> int:
    """How many texts to phones are older than those that are shown. Replies are not counted."""
    shown = sum(text["direction"] != "inbound" for text in sms["texts"])
    more: int = max(0, sms["total"] - shown)
    return more


def _waiting(labour: Any, notification: Any) -> dict[str, int]:
    """How many events wait in each outbox, and messages in the ledger, also those too old to be followed."""
    found = {}
    if labour:
        found["outbox"] = labour["outbox"]["waiting"]
    if notification:
        states = notification["ledger"]["states"]
        found["back-outbox"] = notification["outbox"]["waiting"]
        found["ledger"] = states["PENDING"] + states["AWAITING_CONSENT"]
    return found


def waiting_at_topics(backlog: Sequence[dict[str, Any]]) -> dict[str, int]:
    """The unacked messages of both topic stations, without those of subscriptions whose oldest message is being handled."""
    found = {"topic": 0, "back-topic": 0}
    for item in backlog:
        if not item["subscription"].endswith(SUFFIX) and (item["oldest_seconds"] or 0) >= WAITS_SECONDS:
            found["back-topic" if item["topic"].startswith("notification.") else "topic"] += item["unacked"]
    return found


def more_waiting(drawn: Sequence[Token], waiting: dict[str, int]) -> dict[str, int]:
    """How many wait at each station beside the tokens that are drawn there."""
    shown = Counter(token.hops[-1][0] for token in drawn if token.hops and token.state == "waits")
    return {station: max(0, count - shown[station]) for station, count in waiting.items()}
