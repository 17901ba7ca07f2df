"""Parts of the tests of delivery: a ledger in a real database, the real client, and the sandbox as the provider."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
from litestar.testing import AsyncTestClient
from uuid_utils.compat import uuid7

from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import callbacks, ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Twilio
from notification.domain import wording
from notification.domain.notification import Notification
from notification.settings import ApiSettings
from sms_sandbox import Address, running

ACCOUNT = "AC" + "a1" * 16
TOKEN = "a-token"
SENDER = "+15005550006"
PHONE = "+12025550123"
SID = "SM" + "1" * 32
PUBLIC_URL = "https://fern.example"
NOWHERE = "http://127.0.0.1:9/webhooks/twilio/status"  # for tests without callbacks: nothing listens there
DEADLINE = 120.0  # seconds; only a failing test waits that long

os.environ["NO_PROXY"] = "*"  # the provider of these tests runs on this machine

Api = AsyncTestClient[Any]


def local_settings(notification_url: str, **variables: str) -> ApiSettings:
    ours = {"NOTIFICATION_DATABASE_URL": notification_url, "PUBLIC_URL": PUBLIC_URL, "TWILIO_AUTH_TOKEN": TOKEN}
    return ApiSettings.load({"FERN_MODE": "local", **ours, **variables})


@asynccontextmanager
async def client(url: str, *, token: str = TOKEN, sender: str = SENDER, timeout: float = 30.0) -> AsyncIterator[Twilio]:
    twilio = Twilio(account_sid=ACCOUNT, auth_token=token, sender=sender, base_url=url, timeout=timeout)
    try:
        yield twilio
    finally:
        await twilio.close()


def notification(
    phone: str = PHONE,
    *,
    event_type: str = "labour.begun",
    sequence: int | None = None,
    labour_id: UUID | None = None,
    person_id: UUID | None = None,
) -> Notification:
    new_id = uuid7()
    return Notification(
        id=new_id,
        event_id=uuid7(),
        event_type=event_type,
        labour_id=labour_id or uuid7(),
        person_id=person_id or uuid7(),
        person_name="Grace",
        phone=phone,
        body=wording.write(event_type, mother_name="Ada", notification_id=new_id),
        segments=1,
        sequence=sequence,
    )


def in_order(phone: str = PHONE, *, count: int = 2) -> list[Notification]:
    """Messages to one person about one labour, oldest first: the beginning, announcements, and the birth."""
    types = ["labour.begun", *["labour.announced"] * (count - 2), "labour.completed"]
    labour_id, person_id = uuid7(), uuid7()
    return [
        notification(phone, event_type=event_type, sequence=number, labour_id=labour_id, person_id=person_id)
        for number, event_type in enumerate(types, 1)
    ]


def notifications(count: int) -> list[Notification]:
    """Messages, each to a phone of its own."""
    return [notification(f"+1202555{number:04}") for number in range(100, 100 + count)]


@asynccontextmanager
async def held_at(point: FaultPoint, work: Coroutine[Any, Any, object], *, tasks: int = 1) -> AsyncIterator[None]:
    """Starts `work`, holds the first `tasks` of it that reach `point` during the block, and then lets it finish."""
    held, full, opened = 0, asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        nonlocal held
        held += 1
        if held == tasks:
            full.set()
        if held <= tasks:
            await opened.wait()

    point.arm(hold)
    task = asyncio.create_task(work)
    await asyncio.wait_for(full.wait(), DEADLINE)
    try:
        yield
    finally:
        opened.set()
        await task


@dataclass(frozen=True, slots=True)
class PostOffice:
    """One ledger, one provider, and as many dispatchers and reconcilers as a test wants."""

    units: UnitsOfWork
    sms: Address
    provider: Twilio

    def dispatcher(self, provider: Twilio | None = None, **options: Any) -> Dispatcher:
        defaults: dict[str, Any] = {"callback_url": NOWHERE, "poll_interval": 0.05}
        return Dispatcher(self.units, provider or self.provider, **(defaults | options))

    def reconciler(self, provider: Twilio | None = None, **options: Any) -> Reconciler:
        defaults: dict[str, Any] = {"policies": {}, "quarantine": 0.0, "ask_interval": 0.0}
        return Reconciler(self.units, provider or self.provider, **(defaults | options))

    async def post(self, *new: Notification) -> Sequence[Notification]:
        async with self.units() as uow:
            await ledger.insert_pending(uow, new)
        return new

    async def post_one(self, phone: str = PHONE, **fields: Any) -> Notification:
        return (await self.post(notification(phone, **fields)))[0]

    async def post_many(self, count: int) -> Sequence[Notification]:
        return await self.post(*notifications(count))

    async def post_sending(self, attempt: int = 1) -> UUID:
        """The id of a message whose dispatcher has called in this attempt and has no answer yet."""
        one = await self.post_one()
        for _ in range(attempt - 1):
            assert await self.put_in_doubt(one)
            await self.reconciler().run_once()
        async with self.units() as uow:
            await ledger.take(uow, limit=1, lease_seconds=60, call_within=1)
        return one.id

    async def expire_leases(self) -> int:
        async with self.units() as uow:
            return await ledger.expire_leases(uow.connection)

    async def callback(self, notification_id: UUID, status: str, **facts: Any) -> bool:
        facts = {"sid": SID, "code": 30003, "attempt": 1, **facts}
        async with self.units() as uow:
            return await callbacks.apply_status(uow, notification_id, status=status, **facts)

    async def reply(self, body: str, *, phone: str = PHONE, validity: float = 3600.0) -> None:
        async with self.units() as uow:
            await callbacks.apply_inbound(uow, phone=phone, body=body, validity=validity, wake_dispatcher=lambda: None)

    async def row(self, notification_id: UUID) -> asyncpg.Record:
        async with self.units() as uow:
            [row] = await uow.connection.fetch("SELECT * FROM notification WHERE id = $1", notification_id)
            return row

    async def state(self, notification_id: UUID) -> str:
        return str((await self.row(notification_id))["state"])

    async def events(self, notification_id: UUID) -> list[str]:
        """The types of the events about this notification, in the order of the outbox."""
        async with self.units() as uow:
            rows = await uow.connection.fetch("SELECT topic, payload FROM outbox ORDER BY position")
            return [topic for topic, payload in rows if json.loads(payload)["notification_id"] == str(notification_id)]

    async def event_ids(self) -> set[UUID]:
        async with self.units() as uow:
            return {row["event_id"] for row in await uow.connection.fetch("SELECT event_id FROM outbox")}

    async def suppressed(self) -> set[str]:
        async with self.units() as uow:
            return {
                row["phone"] for row in await uow.connection.fetch("SELECT phone FROM consent WHERE state = 'REFUSED'")
            }

    async def put_in_doubt(self, one: Notification) -> bool:
        """Take a message and let its lease expire, as if the dispatcher had died before the call. False if it is not due."""
        async with self.units() as uow:
            leases, _ = await ledger.take(uow, limit=1, lease_seconds=0, call_within=0)
        return [lease.id for lease in leases] == [one.id] and await self.expire_leases() == 1

    def fault(self, name: str, **settings: Any) -> None:
        self.sms.sandbox.faults.set(name, {"rate": 1, "seed": 1, **settings})

    def clear_faults(self) -> None:
        self.sms.sandbox.faults.clear()

    def texts(self, one: Notification) -> list[str]:
        """The sids of all messages that the provider has for this notification, whether its list shows them or not."""
        messages = self.sms.sandbox.store.newest(one.phone, 1000)
        return [message.sid for message in messages if wording.reference(one.id) in message.body]


@asynccontextmanager
async def post_office(
    units: UnitsOfWork, data_dir: Path, *, timeout: float = 30.0, **sandbox: Any
) -> AsyncIterator[PostOffice]:
    async with running(data_dir, auth_token=TOKEN, **sandbox) as sms, client(sms.url, timeout=timeout) as provider:
        yield PostOffice(units, sms, provider)


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_provider(answer: Answer) -> AsyncIterator[str]:
    """A provider whose answer is raw bytes. `answer` gets a connection whose request is not yet read."""

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


def saying(answer: bytes) -> Answer:
    """Reads the request, answers with these bytes, and closes the connection."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()

    return say


def http(status: str, body: str | bytes, content_type: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content
