"""Looks at the whole system, for all browsers at once, and only while one is looking.

What was seen lies on the board by name. Each look is `{"ok": true, "data": …}`, or, when somebody did not answer,
`{"ok": false, "why": …, "since": …, "data": what was seen last}`: old news is shown as old.
"""

import asyncio
import time
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
from structlog import get_logger

from fern.errors import FernError
from fern.runtime.system import processes_now
from fern.settings import OPERATIONS_TOKEN, PROJECT_ROOT, Settings
from fern.tokens import make_token
from messaging.backoff import wait, wait_for_any

log = get_logger()

MOTHER = "ada"  # who `fern up` seeds a first labour for
EVENTS, TEXTS = 12, 60  # how many of the newest are shown
EAGER_SECONDS, CALM_SECONDS = 0.2, 1.0  # between looks: while things move, and otherwise
EAGER_FOR = 3.0
PING_SECONDS = 2.0
TIMEOUT = 2.0

OPERATOR = {"Authorization": f"Bearer {OPERATIONS_TOKEN}"}
GOOGLE = "In Docker the bus is Google's, which cannot be broken on purpose. Ours can: make up ARGS=--embedded"


class Board:
    """The latest of everything. A listener gets what changed since it last took something, so none can fall behind."""

    def __init__(self) -> None:
        self.seq = 0
        self.listeners = 0
        self.somebody_looks = asyncio.Event()
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
        """Server-sent events: all of it first, then what changes, and a ping when nothing does."""
        self.listeners += 1
        self.somebody_looks.set()
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
                self.somebody_looks.clear()


class Watch:
    def __init__(self, settings: Settings, board: Board) -> None:
        self._settings = settings
        self._board = board
        self._http = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)
        self._nudged = asyncio.Event()
        self._eager_until = 0.0
        self._seen: dict[str, tuple[datetime, Any]] = {}

    def nudge(self) -> None:
        """Something happens: look at once, and more often for a while."""
        self._eager_until = time.monotonic() + EAGER_FOR
        self._nudged.set()
        self._nudged = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        async with self._http, asyncio.TaskGroup() as tasks:
            for look in (self._processes, self._counts, self._bus, self._story):
                tasks.create_task(self._again_and_again(look, stop))
            following = tasks.create_task(self._follow_the_phones(stop))
            await stop.wait()
            following.cancel()

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await wait_for_any(self._board.somebody_looks, stop, seconds=3600)
            nudged, began = self._nudged, time.monotonic()
            await look()
            took = time.monotonic() - began
            pause = EAGER_SECONDS if began < self._eager_until else CALM_SECONDS
            await wait_for_any(nudged, stop, seconds=max(pause, 5 * took))  # a big table is not read all the time

    async def _processes(self) -> None:
        async def look() -> Any:
            rows = await asyncio.to_thread(processes_now, self._settings)
            shown = ("process", "state", "health", "restarts")
            return [{name: getattr(row, name) for name in shown} for row in rows]

        await self._see("processes", look)

    async def _counts(self) -> None:
        """From the phones upwards: whatever is seen further down must then be known further up, or it is unexplained."""
        before = self._board["labour"]
        await self._see("sms", self._sms)
        await self._see("notification", lambda: self._service("notification-api"))
        await self._see("labour", lambda: self._service("labour-api"))
        sms, notification, labour = (self._board[name] for name in ("sms", "notification", "labour"))
        parts = {"sms-sandbox": sms, "notification-api": notification, "labour-api": labour}
        silent = [name for name, part in parts.items() if not part["ok"]]

        async def look() -> Any:
            if silent:
                raise Silent(f"{' and '.join(silent)} {'does' if len(silent) == 1 else 'do'} not answer")
            earlier = before["data"] if before and before["ok"] else labour["data"]
            bus = self._board["bus"]
            dead = bus["data"]["dead"] if bus and bus["ok"] else 0
            return draw_up(labour["data"], notification["data"], sms["data"]["total"], earlier["claims"], dead)

        await self._see("account", look)
        account = self._board["account"]
        if account["ok"] and account["data"]["on_the_way"]:
            self._eager_until = max(self._eager_until, time.monotonic() + CALM_SECONDS)

    async def _bus(self) -> None:
        async def look() -> Any:
            if self._settings.mode == "docker":
                raise Silent(GOOGLE)
            faults, backlog = await self._get("pubsub-http", "/faults"), await self._get("pubsub-http", "/backlog")
            dead = [item for item in backlog["items"] if item["subscription"].endswith(".dlq")]
            return {
                "faults": faults["items"],
                "backlog": [item for item in backlog["items"] if item not in dead and item["unacked"]],
                "dead": sum(item["unacked"] for item in dead),
            }

        await self._see("bus", look)

    async def _sms(self) -> Any:
        faults = await self._get("sms-sandbox", "/faults")
        texts = await self._get("sms-sandbox", "/sandbox/messages", limit=TEXTS)
        url = self._settings.url("sms-sandbox")
        return {"faults": faults["items"], "texts": texts["items"], "total": texts["total"], "url": url}

    async def _service(self, api: str) -> Any:
        if api == "notification-api":
            ledger = await self._get(api, "/operations/notifications/counts", OPERATOR)
        pipeline = await self._get(api, "/operations/pipeline", OPERATOR)
        newest = await self._get(api, "/operations/outbox", OPERATOR, newest="true", limit=EVENTS)
        return {**pipeline, "events": newest["items"], **({"ledger": ledger} if api == "notification-api" else {})}

    async def _story(self) -> None:
        """The mother's newest labour, as she sees it."""

        async def look() -> Any:
            mother = {"Authorization": f"Bearer {make_token(MOTHER)}"}
            labours = (await self._get("labour-api", "/api/v1/labours", mother, limit=1))["items"]
            if not labours:
                return None
            here = f"/api/v1/labours/{labours[0]['id']}"
            contractions = await self._get("labour-api", f"{here}/contractions", mother)
            told = await self._get("labour-api", f"{here}/told", mother)
            return {**labours[0], "contractions": contractions["items"], "told": told["items"]}

        await self._see("story", look)

    async def _follow_the_phones(self, stop: asyncio.Event) -> None:
        """The sandbox says at once when a text arrives."""
        while not stop.is_set():
            await wait_for_any(self._board.somebody_looks, stop, seconds=3600)
            url = self._settings.url("sms-sandbox") + "/sandbox/events"
            with suppress(httpx.HTTPError):
                async with self._http.stream("GET", url, timeout=httpx.Timeout(TIMEOUT, read=None)) as feed:
                    async for line in feed.aiter_lines():
                        if line.startswith("event:"):
                            self.nudge()
            await wait(stop, CALM_SECONDS)

    async def _see(self, name: str, look: Callable[[], Awaitable[Any]]) -> None:
        try:
            data = await look()
        except Exception as error:  # whatever it is, the console stays up and says so
            if not isinstance(error, Silent | FernError):
                log.warning("could not look", part=name, exc_info=error)
            since, last = self._seen.get(name, (None, None))
            self._board.put(name, {"ok": False, "why": str(error), "since": since, "data": last})
        else:
            self._seen[name] = (datetime.now(UTC), data)
            self._board.put(name, {"ok": True, "data": data})

    async def _get(self, process: str, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Any:
        try:
            answer = await self._http.get(self._settings.url(process) + path, headers=headers, params=query)
        except httpx.HTTPError:
            raise Silent(f"{process} does not answer") from None
        if not answer.is_success:
            raise Silent(f"{process} answers {answer.status_code} to {path}")
        return msgspec.json.decode(answer.content)


class Silent(Exception):
    """Somebody did not say what was asked for."""


TOPICS: dict[str, list[str]] = tomllib.loads((PROJECT_ROOT / "infra/topology.toml").read_text())["topics"]


def draw_up(labour: Any, notification: Any, texts: int, labour_claims: Any, dead: int) -> dict[str, int]:
    """Three equations: committed = published, wanted = claimed, owed = sent = texts. What they lack is on the way, or refused, or
    waits for a person; what is further down without being known further up is unexplained.

    `labour_claims` are from before the others, `texts` too: so nothing that is on the move looks as if it came from nowhere.
    """
    outboxes, states = (labour["outbox"], notification["outbox"]), notification["ledger"]["states"]
    wanted_there, wanted_back = _wanted_by("notification", labour), _wanted_by("labour", notification)
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
        "owed": sum(states.values()),
        "sent": sent,
        "texts": texts,
        "refused": states["FAILED"],
        "in_doubt": states["IN_DOUBT"],
        "unsettled": unsettled,
    }
    unclaimed = account["wanted"] - account["claimed"] - account["parked"] - account["discarded"] - dead
    account["on_the_way"] = max(account["waiting"], unclaimed) + unsettled  # nobody claims what still waits
    account["unexplained"] = (
        max(0, claimed_there - wanted_there) + max(0, claimed_back - wanted_back) + max(0, texts - sent - unsettled)
    )
    return account


def _wanted_by(consumer: str, service: Any) -> int:
    return sum(count for topic, count in service["topics"].items() if consumer in TOPICS.get(topic, ()))
