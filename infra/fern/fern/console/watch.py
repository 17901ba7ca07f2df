"""Polls the whole system, once for all browsers, and only while one is connected.

The board has the latest result of each query by name: `{"ok": true, "data": …}`, or, after a failure,
`{"ok": false, "why": …, "since": …, "data": the last good result}`, which the page shows as stale.
"""

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from structlog import get_logger

from fern.client import APIS, AsyncClient
from fern.errors import FernError
from fern.runtime.system import processes_now
from fern.settings import CONSUMERS, MOTHER, PROJECT_ROOT, Settings
from messaging.backoff import wait, wait_for_any

log = get_logger()

EVENTS, TEXTS = 12, 60  # how many of the newest are shown
EAGER_SECONDS, CALM_SECONDS = 0.2, 1.0  # between two polls: while something happens, and otherwise
EAGER_FOR = 3.0  # seconds
PING_SECONDS = 2.0
TIMEOUT = 2.0

GOOGLE = "In Docker the bus is Google's emulator, which has no faults. Ours has: make up ARGS=--embedded"


class Board:
    """The latest results. A listener gets what changed since its last event, so a slow one skips states instead of lagging."""

    def __init__(self) -> None:
        self.seq = 0
        self.listeners = 0
        self.is_watched = asyncio.Event()
        self._parts: dict[str, tuple[int, Any]] = {}
        self._changed = asyncio.Event()

    def __getitem__(self, name: str) -> Any:
        return self._parts[name][1] if name in self._parts else None

    def put(self, name: str, part: Any) -> None:
        if name not in self._parts or self._parts[name][1] != part:
            self.seq += 1
            self._parts[name] = (self.seq, part)
            self._changed.set()
            self._changed = asyncio.Event()

    async def listen(self, stopping: asyncio.Event) -> AsyncIterator[bytes]:
        """Server-sent events: first everything, then each change, and a ping every 2 s without one."""
        self.listeners += 1
        self.is_watched.set()
        seen = 0
        try:
            while not stopping.is_set():
                changed = self._changed
                fresh = {name: part for name, (seq, part) in self._parts.items() if seq > seen}
                if fresh:
                    seen = self.seq
                    yield b"event: change\ndata: " + msgspec.json.encode({"seq": seen, "parts": fresh}) + b"\n\n"
                    continue
                await wait_for_any(changed, stopping, seconds=PING_SECONDS)
                if not changed.is_set():
                    yield b"event: ping\ndata: \n\n"
        finally:
            self.listeners -= 1
            if not self.listeners:
                self.is_watched.clear()


class Watch:
    def __init__(self, settings: Settings, board: Board) -> None:
        self._settings = settings
        self._board = board
        self._client = AsyncClient(settings, TIMEOUT)
        self._nudged = asyncio.Event()
        self._eager_until = 0.0
        self._seen: dict[str, tuple[datetime, Any]] = {}

    def nudge(self) -> None:
        """Poll at once, and more often for a while: something happens."""
        self._eager_until = time.monotonic() + EAGER_FOR
        self._nudged.set()
        self._nudged = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        async with self._client, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self._counts, stop))
            for name, query in (("processes", self._processes), ("bus", self._bus), ("story", self._story)):
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
        return [{name: getattr(row, name) for name in ("process", "state", "health", "restarts")} for row in rows]

    async def _counts(self) -> None:
        """Query from the phones back to the labour, so that the cause of everything seen is seen too."""
        before = self._board["labour"]
        await self._see("sms", self._sms)
        await self._see("notification", partial(self._service, "notification"))
        await self._see("labour", partial(self._service, "labour"))
        await self._see("account", partial(self._account, before))
        account = self._board["account"]
        if account["ok"] and account["data"]["on_the_way"]:
            self._eager_until = max(self._eager_until, time.monotonic() + CALM_SECONDS)

    async def _account(self, labour_before: Any) -> Any:
        parts = {name: self._board[name] for name in ("sms", "notification", "labour")}
        if silent := [APIS[name] for name, part in parts.items() if not part["ok"]]:
            raise FernError(f"{' and '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer")
        sms, notification, labour = (part["data"] for part in parts.values())
        earlier = labour_before["data"] if labour_before and labour_before["ok"] else labour
        bus = self._board["bus"]
        dead = bus["data"]["dead"] if bus and bus["ok"] else 0
        return draw_up(labour, notification, sms["total"], earlier["claims"], dead)

    async def _bus(self) -> Any:
        if self._settings.mode == "docker":
            raise FernError(GOOGLE)
        faults, backlog = await self._client.get("bus", "/faults"), await self._client.get("bus", "/backlog")
        dead = [item for item in backlog["items"] if item["subscription"].endswith(".dlq")]
        return {
            "faults": faults["items"],
            "backlog": [item for item in backlog["items"] if item not in dead and item["unacked"]],
            "dead": sum(item["unacked"] for item in dead),
        }

    async def _sms(self) -> Any:
        faults = await self._client.get("sms", "/faults")
        texts = await self._client.get("sms", "/sandbox/messages", limit=TEXTS)
        url = self._settings.url("sms-sandbox")
        return {"faults": faults["items"], "texts": texts["items"], "total": texts["total"], "url": url}

    async def _service(self, service: str) -> Any:
        ledger = {}
        if service == "notification":
            ledger = {"ledger": await self._client.get(service, "/operations/notifications/counts")}
        pipeline = await self._client.get(service, "/operations/pipeline")
        newest = await self._client.get(service, "/operations/outbox", newest="true", limit=EVENTS)
        return {**pipeline, "events": newest["items"], **ledger}

    async def _story(self) -> Any:
        """The mother's newest labour, as she sees it."""
        path = "/api/v1/labours"
        if not (labours := (await self._client.get("labour", path, MOTHER, limit=1))["items"]):
            return None
        path = f"{path}/{labours[0]['id']}"
        contractions = await self._client.get("labour", f"{path}/contractions", MOTHER)
        told = await self._client.get("labour", f"{path}/told", MOTHER)
        return {**labours[0], "contractions": contractions["items"], "told": told["items"]}

    async def _follow_the_phones(self, stop: asyncio.Event) -> None:
        """The sandbox sends an event when a text arrives."""
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
            since, last = self._seen.get(name, (None, None))
            self._board.put(name, {"ok": False, "why": str(error).removesuffix("."), "since": since, "data": last})
        else:
            self._seen[name] = (datetime.now(UTC), data)
            self._board.put(name, {"ok": True, "data": data})


TOPICS: dict[str, list[str]] = tomllib.loads((PROJECT_ROOT / "infra/topology.toml").read_text())["topics"]


def draw_up(labour: Any, notification: Any, texts: int, labour_claims: Any, dead: int) -> dict[str, int]:
    """Three equations: committed = published, wanted = claimed, owed = sent = texts. The difference is on the way, refused, or
    waits for a person's decision; a stage that has more than the stage before is unexplained. A superseded text is not owed. An
    event that two consumers take is wanted and claimed twice.

    `labour_claims` and `texts` were read before the others, so that nothing in motion seems to have no cause.
    """
    outboxes, states = (labour["outbox"], notification["outbox"]), notification["ledger"]["states"]
    wanted_there = _wanted_by("notification", labour["topics"])
    wanted_back = _wanted_by("labour", notification["topics"]) + _wanted_by("statistics", labour["topics"])
    held = sum(_wanted_by(consumer, service["held"]) for consumer in CONSUMERS for service in (labour, notification))
    claimed_there, claimed_back = notification["claims"]["completed"], labour_claims["completed"]
    sent = sum(states[state] for state in ("SENT", "DELIVERED", "UNDELIVERED"))
    unsettled = sum(states[state] for state in ("PENDING", "SENDING", "IN_DOUBT"))
    given_up = notification["claims"]["discarded"] + labour_claims["discarded"]
    account = {
        **{name: sum(outbox[name] for outbox in outboxes) for name in ("recorded", "published", "waiting", "parked")},
        "discarded": sum(outbox["discarded"] for outbox in outboxes) + given_up,
        "wanted": wanted_there + wanted_back,
        "claimed": claimed_there + claimed_back,
        "repeats": notification["claims"]["repeats"] + labour["claims"]["repeats"],
        "dead": dead,
        "owed": sum(states.values()) - states["SUPERSEDED"],
        "sent": sent,
        "texts": texts,
        "refused": states["FAILED"],
        "superseded": states["SUPERSEDED"],
        "in_doubt": states["IN_DOUBT"],
        "unsettled": unsettled,
    }
    unclaimed = account["wanted"] - account["claimed"] - held - given_up - dead
    account["on_the_way"] = max(account["waiting"], unclaimed) + unsettled  # what waits in an outbox has no claim yet
    surpluses = (claimed_there - wanted_there, claimed_back - wanted_back, texts - sent - unsettled)
    account["unexplained"] = sum(max(0, surplus) for surplus in surpluses)
    return account


def _wanted_by(consumer: str, topics: dict[str, int]) -> int:
    return sum(count for topic, count in topics.items() if consumer in TOPICS.get(topic, ()))
