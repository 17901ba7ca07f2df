"""`fern quest consent`: where a design asks for consent, in every order of an answer, a text and the dispatcher.

A person was asked. YES and STOP arrive before, between and after the moments at which the text about the birth is written and at
which the dispatcher sends it. Each order runs without a fault, with an event that is delivered twice, and with a dispatcher that
dies between the take and the call. All orders are tried, so nothing is drawn and nothing depends on timing.

Exit code 1 if our design sent a text without consent, or did not send one after a YES, or if `--check` finds other numbers in
the documentation.
"""

import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import click
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourCompletedV2, SubscriberAdded
from e2e.experiments import documentation
from e2e.support.databases import connect, fresh_database, migrated_server
from fern.output import json_option, print_json, print_table
from fern.runtime.postgres import TemporaryServer
from messaging.consumer import Received
from messaging.database import create_engine
from messaging.envelope import Envelope
from messaging.unit_of_work import UnitOfWork
from notification.application.batch_reaction import react_to_batch
from notification.delivery import callbacks, ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Twilio
from notification.domain.consent import Mode
from servicekit.logs import configure
from sms_sandbox import Address, running

COMMAND, PAGE = "fern quest consent", documentation.DOCS / "quest.md"
WRITE, SEND, YES, STOP = "write", "send", "YES", "STOP"
ANSWERS = ((), (YES,), (STOP,), (YES, STOP), (STOP, YES))
NOTHING, TWICE, KILLED = FAULTS = ("nothing", "event delivered twice", "dispatcher killed")
Order = tuple[str, ...]


def orders() -> Iterator[Order]:
    """Every order of the answers, of the writing of the text, and of the pass of the dispatcher after it."""
    for answers in ANSWERS:
        for write, send in itertools.combinations(range(len(answers) + 2), 2):
            rest = iter(answers)
            yield tuple({write: WRITE, send: SEND}.get(at) or next(rest) for at in range(len(answers) + 2))


class CheckedWhenWritten:
    """The consumer looks at the consent, and writes no text for a number without it. The dispatcher sends what is written."""

    name: ClassVar[str] = "checked when the text is written"
    on_writing: ClassVar[str] = "CASE WHEN agreed THEN 'PENDING' ELSE 'DROPPED' END"
    on_taking: ClassVar[str] = "'SENDING'"
    tables: ClassVar[str] = """
        CREATE TEMPORARY TABLE answer (phone text PRIMARY KEY, agreed boolean NOT NULL DEFAULT false);
        CREATE TEMPORARY TABLE birth (phone text PRIMARY KEY, state text NOT NULL)
    """

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection, self._sent = connection, Counter[str]()

    async def ask(self, phone: str) -> None:
        await self._connection.execute("INSERT INTO answer (phone) VALUES ($1)", phone)

    async def write(self, phone: str) -> None:
        """The key of the row is the claim: a second delivery writes nothing."""
        row = f"SELECT phone, {self.on_writing} FROM answer WHERE phone = $1"
        await self._connection.execute(f"INSERT INTO birth {row} ON CONFLICT DO NOTHING", phone)

    async def answer(self, phone: str, word: str) -> None:
        await self._connection.execute("UPDATE answer SET agreed = $2 WHERE phone = $1", phone, word == YES)

    async def take(self, phone: str) -> bool:
        """Also takes what a dispatcher that died has taken."""
        taken = await self._connection.fetchval(
            f"""UPDATE birth SET state = {self.on_taking} FROM answer
                WHERE birth.phone = $1 AND answer.phone = $1 AND state IN ('PENDING', 'SENDING') RETURNING state""",
            phone,
        )
        return bool(taken == "SENDING")

    async def send(self, phone: str) -> None:
        if await self.take(phone):
            self._sent[phone] += 1
            await self._connection.execute("UPDATE birth SET state = 'SENT' WHERE phone = $1", phone)

    async def texts(self, phone: str) -> int:
        return self._sent[phone]


class CheckedWhenTaken(CheckedWhenWritten):
    """The consumer writes every text. The dispatcher looks at the consent, and drops a text to a number without it."""

    name = "checked when the text is taken"
    on_writing = "'PENDING'"
    on_taking = "CASE WHEN agreed THEN 'SENDING' ELSE 'DROPPED' END"


class Ours:
    """The code of the Notification service: a text waits for the YES, and the take looks at the consent once more."""

    name: ClassVar[str] = "ours: at both moments"

    def __init__(self, url: str, sms: Address, twilio: Twilio) -> None:
        self._engine, self._sms, self._twilio = create_engine(url, process="quest"), sms, twilio
        self._births = dict[str, Received[Event]]()

    async def close(self) -> None:
        await self._engine.dispose()

    def _unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self._engine, source="notification", committed=lambda: None)

    def _dispatcher(self, **options: float) -> Dispatcher:
        return Dispatcher(self._unit_of_work, self._twilio, callback_url="http://127.0.0.1:9/status", **options)  # type: ignore[arg-type]

    async def _react(self, received: Received[Event]) -> None:
        async with self._unit_of_work() as uow:
            await react_to_batch(uow, [received], wake_dispatcher=lambda: None, consent=Mode.REQUIRED)

    async def ask(self, phone: str) -> None:
        labour_id, person_id = uuid7(), uuid7()
        about: dict[str, Any] = {"labour_id": labour_id, "roster_version": 1, "mother_name": "Ada"}
        await self._react(_received(SubscriberAdded(**about, person_id=person_id, name="Grace", phone=phone)))
        self._births[phone] = _received(LabourCompletedV2(**about, completed_at=datetime.now(UTC), baby_name=None))
        await self.send(phone)  # the question

    async def write(self, phone: str) -> None:
        await self._react(self._births[phone])

    async def answer(self, phone: str, word: str) -> None:
        async with self._unit_of_work() as uow:
            await callbacks.apply_inbound(uow, phone=phone, body=word, validity=3600, wake_dispatcher=lambda: None)

    async def take(self, phone: str) -> bool:
        """The lease ends at once, as if its time were over."""
        return bool(await self._dispatcher(lease_seconds=0.0, call_within=0.0).take(1))

    async def send(self, phone: str) -> None:
        """What a dispatcher that died has taken is in doubt: the provider is asked before it goes back into the queue."""
        async with self._unit_of_work() as uow:
            await ledger.expire_leases(uow.connection)
        await Reconciler(self._unit_of_work, self._twilio, policies={}, quarantine=0.0, ask_interval=0.0).run_once()
        await self._dispatcher().run_once()

    async def texts(self, phone: str) -> int:
        return sum("The baby is here" in one.body for one in self._sms.sandbox.store.newest(phone, 100))


def _received(event: Event) -> Received[Event]:
    envelope = Envelope(uuid7(), "labour", event.type, 1, "", datetime.now(UTC), None, b"", 1)
    return Received(envelope.id, envelope, event)


Design = CheckedWhenWritten | Ours


@dataclass(slots=True)
class Count:
    """Texts of a design, about the people to whom one fault happened."""

    sent: int = 0
    without_consent: int = 0  # the last answer before the call was no YES
    never_came: int = (
        0  # the last answer is YES, no STOP held when the text was written or came since, and no text came
    )

    @property
    def wrong(self) -> int:
        return self.without_consent + self.never_came


Results = dict[str, dict[str, Count]]  # by design and fault


async def run_order(design: Design, phone: str, order: Order, fault: str, count: Count) -> None:
    """Dispatchers go on for ever, so each order ends with one more pass."""
    await design.ask(phone)
    agreed, refused, due, before = False, False, False, 0
    for step in (*order, SEND):
        match step:
            case "write":
                due = not refused
                await design.write(phone)
            case "send":
                if fault == TWICE:
                    await design.write(phone)
                await (design.take if fault == KILLED else design.send)(phone)
                fault = NOTHING
            case answer:
                agreed, refused = answer == YES, answer == STOP
                due = due and agreed
                await design.answer(phone, answer)
        sent = await design.texts(phone)
        count.sent += sent - before
        count.without_consent += sent - before if not agreed else 0
        before = sent
    count.never_came += int(agreed and due and not before)


async def run_designs(server: TemporaryServer, directory: Path) -> Results:
    """The server must have the migrated database of the Notification service, to be copied."""
    url, results = await fresh_database(server, "notification"), Results()
    cases = list(itertools.product(FAULTS, orders()))
    async with _designs(url, directory) as designs:
        for design in designs:
            counts = results[design.name] = {fault: Count() for fault in FAULTS}
            for number, (fault, order) in enumerate(cases):
                await run_order(design, f"+120255501{number:02}", order, fault, counts[fault])
    return results


@asynccontextmanager
async def _designs(url: str, directory: Path) -> AsyncIterator[Sequence[Design]]:
    connections = [await connect(url) for _ in range(2)]  # temporary tables belong to a connection
    for connection in connections:
        await connection.execute(CheckedWhenWritten.tables)
    async with running(directory, pace=3600.0) as sms:
        twilio = Twilio(
            account_sid="AC" + "1" * 32, auth_token="quest", sender="+15005550006", base_url=sms.url, timeout=30
        )
        ours = Ours(url, sms, twilio)
        try:
            yield CheckedWhenWritten(connections[0]), CheckedWhenTaken(connections[1]), ours
        finally:
            await ours.close()
            await twilio.close()
            for connection in connections:
                await connection.close()


def broken(results: Results) -> list[str]:
    """The faults under which our design is wrong."""
    return [fault for fault, count in results[Ours.name].items() if count.wrong]


def rows(results: Results) -> list[list[str]]:
    """The first row is the heading."""
    heading = ["design", "what happens", "texts", "without consent", "never came after a YES"]
    cells = [
        [design, fault, str(count.sent), str(count.without_consent), str(count.never_came)]
        for design, counts in results.items()
        for fault, count in counts.items()
    ]
    return [heading, *cells]


def pages(results: Results) -> dict[Path, str]:
    """What the page must contain after this run."""
    table = documentation.markdown_table(rows(results), "|---|---|--:|--:|--:|")
    intro = f"{len(list(orders()))} people for each row: one for each order of YES, STOP, the text and the dispatcher."
    return {PAGE: documentation.with_section(PAGE, "\n".join([intro, "", *table]), COMMAND)}


def compare() -> Results:
    with (
        tempfile.TemporaryDirectory(prefix="fern-quest-") as directory,
        tempfile.TemporaryDirectory(prefix="fern-quest-sms-") as sms,
        migrated_server(Path(directory)) as server,
    ):
        return asyncio.run(run_designs(server, Path(sms)))


@click.command("consent")
@click.option("--docs/--no-docs", default=True, help="Write docs/quest.md.")
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the documentation has other numbers.")
@json_option
def main(docs: bool, check: bool, as_json: bool) -> None:
    """Compare where a design asks for consent: who is texted without it, and who is not although they said YES?"""
    configure("quest", "CRITICAL")
    results = compare()
    if as_json:
        counts = {design: {fault: asdict(one) for fault, one in by.items()} for design, by in results.items()}
        print_json({"results": counts, "broken": broken(results)})
    else:
        heading, *cells = rows(results)
        print_table(" | ".join(heading), cells)
    if wrong := broken(results):
        click.echo(f"our design broke its promise under: {', '.join(wrong)}", err=True)
        sys.exit(1)
    if check:
        documentation.check(pages(results), COMMAND)
    elif docs:
        documentation.write(pages(results))
