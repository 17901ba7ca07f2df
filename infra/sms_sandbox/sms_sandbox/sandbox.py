"""The sandbox as a whole: its settings, the live feed, the carrier that moves the messages, and all parts wired by hand."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from sms_sandbox.courier import Courier
from sms_sandbox.faults import Faults
from sms_sandbox.message import FINAL, LATE, NEXT_STATUS, Message
from sms_sandbox.store import Store

PING_SECONDS = 15.0
BACKLOG = 1000  # a listener this far behind is dropped; it connects again and reads the state afresh
BATCH = 500  # messages moved in one transaction


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sandbox behaves.

    auth_token        the one token that is accepted and signs webhooks; None accepts any, and signs with the account's last
    pace              seconds between queued, sending, sent and delivered, and before the first retry of a callback
    callback_retries  how often a webhook that met no answer or a 5xx is tried again (Twilio's own default is 1)
    inbound_url       where replies from phones are posted; None keeps them on the page
    allow_hosts       host names, beside those of this machine, that requests may name and status callbacks may go to
    """

    data_dir: Path
    auth_token: str | None = None
    pace: float = 0.4
    callback_retries: int = 1
    inbound_url: str | None = None
    allow_hosts: tuple[str, ...] = ()


def feed_event(name: str, data: object = None) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


class Feed:
    """Sends what happens in the sandbox to every listener (the page, a test) as it happens."""

    def __init__(self) -> None:
        self.listeners: set[asyncio.Queue[bytes | None]] = set()

    def publish(self, name: str, data: object = None) -> None:
        for listener in list(self.listeners):
            try:
                listener.put_nowait(feed_event(name, data))
            except asyncio.QueueFull:
                self._end(listener)

    def close(self) -> None:
        """End all streams, so that the server need not wait for browsers to leave."""
        for listener in list(self.listeners):
            self._end(listener)

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events, beginning with `ready`: from there on nothing is missed."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(BACKLOG)
        self.listeners.add(queue)
        try:
            yield feed_event("ready")
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), PING_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                yield event
        finally:
            self.listeners.discard(queue)

    def _end(self, listener: asyncio.Queue[bytes | None]) -> None:
        self.listeners.discard(listener)
        while not listener.empty():
            listener.get_nowait()
        listener.put_nowait(None)


class Carrier:
    """The mobile network: moves every message from queued to delivered, one step per pace, and reports each step."""

    def __init__(self, store: Store, faults: Faults, courier: Courier, feed: Feed, *, pace: float) -> None:
        self.store = store
        self.faults = faults
        self.courier = courier
        self.feed = feed
        self.pace = pace
        self.wake = asyncio.Event()

    async def run(self) -> None:
        while True:
            self.wake.clear()
            moved = self.run_once()
            next_at = self.store.next_step_at()
            pause = None if next_at is None else max(next_at - time.time(), 0)
            if moved == BATCH:
                pause = 0  # there is more: only yield to other tasks
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for would lose a cancellation that comes with the wake-up
                    await self.wake.wait()

    def run_once(self) -> int:
        """Move every message that is due by one step. Returns how many there were, at most a batch."""
        now = time.time()
        with self.store.transaction():
            moved = [self._step(message, now) for message in self.store.due(now, BATCH)]
        for message in moved:
            self.feed.publish("message", message.as_seen())
        if moved:
            self.courier.wake.set()
        return len(moved)

    def _step(self, message: Message, now: float) -> Message:
        step_at = now + self.pace
        if message.status == LATE:
            message = replace(message, status=message.first_status, created_at=now, updated_at=now, step_at=step_at)
            self.store.save(message)
            return message
        first_step = message.status == message.first_status
        message = replace(message, status=NEXT_STATUS[message.status], updated_at=now, step_at=step_at)
        if message.status == "sent":
            message = replace(message, sent_at=now)
        elif message.status == "delivered":
            message = replace(message, step_at=None)
            if fault := self.faults.strikes("undelivered", message.recipient):
                message = replace(message, status="undelivered", error_code=fault.code)
        if message.callback_url:
            if first_step and self.faults.strikes("callbacks-reordered", message.recipient):
                message = replace(message, reordered=True)
            self._report(message, now)
        self.store.save(message)
        return message

    def _report(self, message: Message, now: float) -> None:
        """Queue the callbacks of this step; those of a reordered message all at its end, last status first."""
        statuses = [message.status]
        if message.reordered:
            statuses = [message.status, "sent", "sending"] if message.status in FINAL else []
        for status in statuses:
            if self.faults.strikes("callbacks-lost", message.recipient):
                continue
            doubled = self.faults.strikes("callbacks-doubled", message.recipient)
            for _ in range(2 if doubled else 1):
                self.courier.report_status(message, status, now)


class Sandbox:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.data_dir)
        self.feed = Feed()
        self.faults = Faults(self.store, changed=lambda: self.feed.publish("faults"))
        self.courier = Courier(
            self.store, auth_token=settings.auth_token, retries=settings.callback_retries, pace=settings.pace
        )
        self.carrier = Carrier(self.store, self.faults, self.courier, self.feed, pace=settings.pace)

    async def run(self) -> None:
        """Move messages and deliver webhooks until cancelled; what is under way is picked up again by the next start."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.carrier.run())
            tasks.create_task(self.courier.run())

    def close(self) -> None:
        self.store.close()
