"""The mobile network: moves every message from queued to delivered, one step per pace, and reports each step."""

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

from fern.sms.courier import Courier
from fern.sms.events import Feed
from fern.sms.faults import Faults
from fern.sms.message import FINAL, LATE, NEXT_STATUS, Message
from fern.sms.store import Store

BATCH = 500


class Carrier:
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
                pause = 0  # there is more; only let others have a turn
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for would lose a cancellation that comes with the wake-up
                    await self.wake.wait()

    def run_once(self) -> int:
        """Move every message that is due by one step; how many there were (at most a batch)."""
        now = time.time()
        with self.store.transaction():
            moved = [self._step(message, now) for message in self.store.due(now, BATCH)]
        for message in moved:
            self.feed.publish("message", message.as_seen())
        if moved:
            self.courier.wake.set()
        return len(moved)

    def _step(self, message: Message, now: float) -> Message:
        if message.status == LATE:
            message = replace(
                message, status=message.first_status, created_at=now, updated_at=now, step_at=now + self.pace
            )
            self.store.save(message)
            return message
        first_step = message.status == message.first_status
        status = NEXT_STATUS[message.status]
        message = replace(message, status=status, updated_at=now, step_at=now + self.pace)
        if status == "sent":
            message = replace(message, sent_at=now)
        elif status == "delivered":
            fault = self.faults.strikes("undelivered", message.recipient)
            message = replace(message, step_at=None)
            if fault:
                message = replace(message, status="undelivered", error_code=fault.code)
        if message.callback_url:
            if first_step and self.faults.strikes("callbacks-reordered", message.recipient):
                message = replace(message, reordered=True)
            self._report(message, now)
        self.store.save(message)
        return message

    def _report(self, message: Message, now: float) -> None:
        """Queue the callbacks of this step. A reordered message keeps quiet until its end, then tells it backwards."""
        statuses = [message.status]
        if message.reordered:
            statuses = [message.status, "sent", "sending"] if message.status in FINAL else []
        for status in statuses:
            if self.faults.strikes("callbacks-lost", message.recipient):
                continue
            told_twice = self.faults.strikes("callbacks-doubled", message.recipient)
            for _ in range(2 if told_twice else 1):
                self.courier.report_status(message, status, now)
