"""Presets: each breaks the system at one place, lets an event pass, and says what to see and why no text is sent twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from fern.client import AsyncClient
from fern.console.actions import ActionResult, Actions
from fern.errors import FernError
from fern.overrides import Overrides
from fern.runtime.system import change, crash_once
from fern.settings import Settings
from servicekit.http.problems import Problem

CONSUMER, RELAY = "notification-consumer", "labour-relay"
QUIET_SECONDS = 10.0  # for which a story waits until earlier events are published
PAUSE = 0.1
PEOPLE = {"Grace": "+12025550111", "Alan": "+12025550122"}


class Story(msgspec.Struct, frozen=True):
    name: str
    title: str
    sees: str
    why: str


STORIES = {
    story.name: story
    for story in (
        Story(
            "publish-then-die",
            "Publish, then die",
            "The relay publishes the event and is killed before it can mark the outbox row. The event reaches the phones. The "
            "new relay finds the row unmarked and publishes it again. The duplicate turns back at the claims.",
            "The consumer commits a claim on the event's id together with its effect. The duplicate finds the claim, so it "
            "is acknowledged and has no effect.",
        ),
        Story(
            "answer-lost",
            "The answer is lost",
            "The provider takes one text, and the connection breaks before it answers. The text is on the phone, and the "
            "ledger does not know it: a question mark waits at the dispatcher, which then asks the provider and finds the "
            "text.",
            "A message in doubt is never sent again on a guess. The dispatcher looks for its reference at the provider first.",
        ),
        Story(
            "two-consumers-race",
            "Two consumers race",
            "Two consumers run, and the bus delivers every message twice, so both can get the event at the same time. One of "
            "them writes the texts into the ledger; the duplicate turns back.",
            "Both need the same advisory lock and the same claim row. A consumer that does not get the lock asks for a "
            "redelivery; one that comes later finds the claim completed.",
        ),
        Story(
            "bus-repeats",
            "The bus repeats everything",
            "Every message is delivered twice, also on the way back. Each duplicate turns back at the claims, and the count of "
            "absorbed duplicates grows.",
            "At-least-once delivery is the normal case. The claim is keyed by the event's id, not by the bus's message id, so "
            "a duplicate under another message id is still the same event.",
        ),
    )
}


class Stories:
    def __init__(self, settings: Settings, client: AsyncClient) -> None:
        self._settings, self._client = settings, client
        self._actions = Actions(settings, client)
        self._has_scaled = False

    async def play(self, name: str) -> list[ActionResult]:
        arms: dict[str, Callable[[], Awaitable[ActionResult]]] = {
            "publish-then-die": self._crash_the_relay,
            "answer-lost": lambda: self._actions.set_fault("sms", "reply-lost", {"rate": 1, "times": 1}),
            "two-consumers-race": self._race,
            "bus-repeats": lambda: self._actions.set_fault("bus", "duplicate", {"rate": 1}),
        }
        if name not in STORIES:
            raise Problem(404, "no-such-story", f"There is no story {name}; there are {', '.join(STORIES)}.")
        results = await self._prepare()
        if all(result.ok for result in results):
            results.append(await arms[name]())
        if all(result.ok for result in results):
            results += await self._tap()
        return results

    async def end(self) -> list[ActionResult]:
        """Run one consumer again, if a story has started a second one. Faults are cleared by `Actions.clear_faults`."""
        if not self._has_scaled:
            return []
        result = await self._scale(1)
        self._has_scaled = not result.ok
        return [result]

    async def _prepare(self) -> list[ActionResult]:
        """Make sure that there is a labour that is not complete, with people to tell, whose earlier events are published."""
        results = list[ActionResult]()
        labour = await self._actions.newest_labour()
        if labour is None or labour["phase"] == "complete":
            results += await self._actions.act("plan", {"mother_name": "Ada"})
        if all(result.ok for result in results):
            labour = await self._actions.newest_labour()
            if labour and not any(person["state"] == "approved" for person in labour["subscribers"]):
                for person, phone in PEOPLE.items():
                    results += await self._actions.act("subscribe", {"name": person, "phone": phone})
        deadline = time.monotonic() + QUIET_SECONDS
        while await self._waiting() and time.monotonic() < deadline:  # noqa: ASYNC110  (of another process)
            await asyncio.sleep(PAUSE)
        return results

    async def _waiting(self) -> int:
        return int((await self._client.get("labour", "/operations/pipeline"))["outbox"]["waiting"])

    async def _tap(self) -> list[ActionResult]:
        """Cause the next event that notifies. No announcement: it could be refused, if it follows another too soon."""
        labour = await self._actions.newest_labour()
        return await self._actions.act("begin" if labour and labour["phase"] == "planned" else "complete", {})

    async def _crash_the_relay(self) -> ActionResult:
        def arm(settings: Settings, process: str) -> str:
            return crash_once(settings, process, "relay.after_publish_before_mark")

        return await self._actions.change_process(arm, RELAY)

    async def _race(self) -> ActionResult:
        scaled = await self._scale(2)
        self._has_scaled = scaled.ok
        return await self._actions.set_fault("bus", "duplicate", {"rate": 1}) if scaled.ok else scaled

    async def _scale(self, count: int) -> ActionResult:
        overrides = Overrides.load(self._settings)
        others = {name: number for name, number in overrides.replicas.items() if name != CONSUMER}
        replicas = {**others, **({CONSUMER: count} if count > 1 else {})}
        try:
            await asyncio.to_thread(change, self._settings, replace(overrides, replicas=replicas))
        except FernError as error:
            return ActionResult(False, error.message)
        return ActionResult(True, f"{CONSUMER}: {count} running.")
