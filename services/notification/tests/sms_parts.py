"""What the tests of sending are made of: a ledger in a real database, the real client, and the sandbox as the provider."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping, select, text
from uuid_utils.compat import uuid7

from e2e.support.waiting import eventually
from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Twilio
from notification.domain import wording
from notification.domain.notification import Notification
from sms_sandbox import Address, running

ACCOUNT = "AC" + "a1" * 16
TOKEN = "a-token"
SENDER = "+15005550006"
PHONE = "+12025550123"
NOWHERE = "http://127.0.0.1:9/webhooks/twilio/status"  # callbacks go there when a test wants none

os.environ["NO_PROXY"] = "*"  # the provider of these tests is always on this machine


@asynccontextmanager
async def client(url: str, *, token: str = TOKEN, sender: str = SENDER, timeout: float = 5.0) -> AsyncIterator[Twilio]:
    twilio = Twilio(account_sid=ACCOUNT, auth_token=token, sender=sender, base_url=url, timeout=timeout)
    try:
        yield twilio
    finally:
        await twilio.close()


def notification(phone: str = PHONE, *, event_type: str = "labour.begun", event_id: UUID | None = None) -> Notification:
    new_id = uuid7()
    return Notification(
        id=new_id,
        event_id=event_id or uuid7(),
        event_type=event_type,
        labour_id=uuid7(),
        person_id=uuid7(),
        person_name="Grace",
        phone=phone,
        body=wording.write(event_type, mother_name="Ada", notification_id=new_id),
        segments=1,
    )


class Gate:
    """Holds the first few that come to a fault point until it is opened; whoever comes later passes."""

    def __init__(self, point: FaultPoint, *, holds: int = 1) -> None:
        self.held, self._holds, self._opened = 0, holds, asyncio.Event()
        point.arm(self._hold)

    async def _hold(self) -> None:
        if self.held < self._holds:
            self.held += 1
            await self._opened.wait()

    async def full(self) -> None:
        async def look() -> int:
            return self.held

        await eventually(look, lambda held: held == self._holds)

    def open(self) -> None:
        self._opened.set()


@dataclass(frozen=True, slots=True)
class PostOffice:
    """One ledger, one provider, and as many dispatchers and reconcilers as a test wants."""

    units: UnitsOfWork
    sms: Address
    provider: Twilio

    def dispatcher(self, provider: Twilio | None = None, **options: Any) -> Dispatcher:
        defaults: dict[str, Any] = {"callback_url": NOWHERE, "poll_interval": 0.05, "per_second": 1000.0}
        return Dispatcher(self.units, provider or self.provider, **(defaults | options))

    def reconciler(self, provider: Twilio | None = None, **options: Any) -> Reconciler:
        defaults: dict[str, Any] = {"policies": {}, "quarantine": 0.0, "ask_interval": 0.0}
        return Reconciler(self.units, provider or self.provider, **(defaults | options))

    async def post(self, *notifications: Notification) -> None:
        async with self.units() as uow:
            await ledger.insert_pending(uow.session, notifications)

    async def post_one(self, phone: str = PHONE, **fields: Any) -> Notification:
        one = notification(phone, **fields)
        await self.post(one)
        return one

    async def row(self, notification_id: UUID) -> RowMapping:
        async with self.units() as uow:
            found = await uow.session.execute(select(ledger.ledger).where(ledger.ledger.c.id == notification_id))
            return found.mappings().one()

    async def state(self, notification_id: UUID) -> str:
        return str((await self.row(notification_id))["state"])

    async def news(self, notification_id: UUID) -> list[str]:
        """Types of the events in the outbox about this notification, in order."""
        async with self.units() as uow:
            rows = await uow.session.execute(text("SELECT topic, payload FROM outbox ORDER BY position"))
            return [row.topic for row in rows if json.loads(row.payload)["notification_id"] == str(notification_id)]

    async def suppressed(self) -> set[str]:
        async with self.units() as uow:
            return set(await uow.session.scalars(select(ledger.suppression.c.phone)))

    async def put_in_doubt(self, notification_id: UUID) -> None:
        """As a sender that died leaves it: taken, and the lease over. Nothing was sent."""
        async with self.units() as uow:
            (lease,) = await ledger.take(uow.session, limit=1, lease_seconds=0, call_within=0)
            assert lease.id == notification_id
        async with self.units() as uow:
            assert await ledger.expire_leases(uow.session) == 1

    def fault(self, name: str, **settings: Any) -> None:
        self.sms.sandbox.faults.set(name, {"rate": 1, "seed": 1, **settings})

    def mend(self) -> None:
        self.sms.sandbox.faults.clear()

    def texts(self, one: Notification) -> list[str]:
        """Sids of what the person's phone got or will get, whatever the provider's list shows."""
        messages = self.sms.sandbox.store.newest(one.phone, 1000)
        return [message.sid for message in messages if wording.reference(one.id) in message.body]


@asynccontextmanager
async def post_office(
    units: UnitsOfWork, data_dir: Path, *, timeout: float = 5.0, **sandbox: Any
) -> AsyncIterator[PostOffice]:
    async with running(data_dir, auth_token=TOKEN, **sandbox) as sms, client(sms.url, timeout=timeout) as provider:
        yield PostOffice(units, sms, provider)


@asynccontextmanager
async def raw_provider(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A provider that misbehaves on the level of bytes. `answer` has a connection whose request is still to be read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()


async def read_request(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length:")[2].partition("\r")[0].strip()
    await reader.readexactly(int(length or 0))


def saying(answer: bytes) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Reads the request, says these bytes, and hangs up."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    return say


def http(status: str, body: str | bytes, content_type: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else body.encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        + content
    )
